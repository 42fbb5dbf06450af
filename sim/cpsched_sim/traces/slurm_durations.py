"""Parse durations that Slurm prints or that derived tables contain.

1-02:00:00, 02:00:00, 30:00 (minutes and seconds), 1-02, 1-02:00; pandas: 1 days 02:00:00
"""

from __future__ import annotations

import re

from cpsched_sim.traces.slurm_timestamps import UNKNOWN_VALUES

NO_LIMIT_VALUES = UNKNOWN_VALUES | {"unlimited", "infinite", "partition_limit", "not_set", "invalid"}
"""Values that mean no limit, in lower case; Slurm prints `INVALID` for a negative time."""
_CLOCK = re.compile(r"(?:(\d{1,18}):)?(\d{1,18}):(\d{1,18})(?:\.\d+)?", re.ASCII)
_DAYS = re.compile(
    r"(\d{1,18})(?:-|\s+days?(?:,?\s+|$))(?:(\d{1,3})(?::(\d{1,3}))?(?::(\d{1,3}))?(?:\.\d+)?)?", re.ASCII
)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{0,9})?", re.ASCII)


def is_plain_number(text: str) -> bool:
    """Return whether the text is a plain number.

    Some tables contain decimal numbers (`240.0`).
    """
    return _NUMBER.fullmatch(text.strip()) is not None


def number_to_seconds(text: str, unit_s: int) -> int:
    """Convert a number of units of `unit_s` seconds to seconds, rounded up."""
    whole, _, fraction = text.strip().partition(".")
    parts: int = 10 ** len(fraction)
    return int(whole) * unit_s + -(-int(fraction or "0") * unit_s // parts)


def parse_slurm_duration_s(text: str) -> int | None:
    """Return a duration in whole seconds, or None for no limit.

    Raise `ValueError` for any other text.

    >>> [parse_slurm_duration_s(text) for text in ("1-02:00:00", "30:00", "1-12", "UNLIMITED")]
    [93600, 1800, 129600, None]
    """
    text = text.strip()
    if text.lower() in NO_LIMIT_VALUES:
        return None
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return (hours * 60 + minutes) * 60 + seconds
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    raise ValueError(text)
