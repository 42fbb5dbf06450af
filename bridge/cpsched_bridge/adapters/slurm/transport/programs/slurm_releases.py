"""Parse Slurm releases, because clients must not be newer than the controller."""

from __future__ import annotations


def parse_release(version: str) -> tuple[int, ...]:
    """Return a version's release as numbers, or () for any other text.

    Example: (26, 5) for "26.05.5".
    """
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
