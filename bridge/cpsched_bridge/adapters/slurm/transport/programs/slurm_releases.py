"""Releases of Slurm: a client may be older than the controller, never newer."""

from __future__ import annotations


def release(version: str) -> tuple[int, ...]:
    """The release of a version: "26.05.5" is of (26, 5); of what is no version, ()."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
