"""Parse Slurm releases, because clients must not be newer than the controller."""

from __future__ import annotations

import re


def parse_release(version: str) -> tuple[int, ...]:
    """Return a version's release as numbers, or () for any other text.

    Example: (26, 5) for "26.05.5".
    """
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def parse_maintenance_release(version: str) -> tuple[int, ...]:
    """Return a version as numbers, such as (26, 5, 2) for "26.05.2-1"."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
