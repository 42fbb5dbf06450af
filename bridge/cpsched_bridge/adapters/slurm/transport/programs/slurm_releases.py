"""Compare releases of Slurm: a client must not be newer than the controller."""

from __future__ import annotations


def parse_release(version: str) -> tuple[int, ...]:
    """Return the release part of a version, for example (26, 5) for "26.05.5"; () for any other text."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
