"""Parse Slurm releases for comparison, because a client must not be newer than the controller."""

from __future__ import annotations


def parse_release(version: str) -> tuple[int, ...]:
    """Return a version's release as numbers, for example (26, 5) for "26.05.5", or () for any other text."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
