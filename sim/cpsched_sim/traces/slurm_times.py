"""Parse times and durations that Slurm's commands print. Times are local and have no zone.

Such times are ambiguous for one hour each autumn.

`TZ=UTC sacct` avoids the ambiguity. Otherwise, the user sets the zone (`--zone Europe/Berlin`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import pairwise, product
from zoneinfo import ZoneInfo

from cpsched.errors import InvalidValue

UNKNOWN_VALUES = frozenset({"", "unknown", "none", "n/a", "-", "null", "(null)", "nan", "nat", "<na>"})
"""Values that mean an unknown time, in lower case."""
HOUR_S = 3600
_EPOCH_DIGITS = range(9, 13)
"""Numbers with this many digits are seconds since 1970, as printed with `SLURM_TIME_FORMAT=%s`."""
_WHOLE_FLOAT = re.compile(r"^(\d+)\.0*$", re.ASCII)
"""Seconds as a table stores them if the value of some job is missing: `1763862092.0`."""
_TIME_FORM = "must be a time like 2016-12-22T07:15:12, or seconds since 1970 (is SLURM_TIME_FORMAT set?)"

NO_LIMIT_VALUES = UNKNOWN_VALUES | {"unlimited", "infinite", "partition_limit", "not_set", "invalid"}
"""Values that mean no limit, in lower case; Slurm prints `INVALID` for a negative time."""
_CLOCK = re.compile(r"(?:(\d{1,18}):)?(\d{1,18}):(\d{1,18})(?:\.\d+)?", re.ASCII)
_DAYS = re.compile(
    r"(\d{1,18})(?:-|\s+days?(?:,?\s+|$))(?:(\d{1,3})(?::(\d{1,3}))?(?::(\d{1,3}))?(?:\.\d+)?)?", re.ASCII
)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{0,9})?", re.ASCII)

PossibleTimes = tuple[int, ...]
"""Possible interpretations in seconds since 1970: none for a missing time, two within an ambiguous hour."""


def parse_time_zone(name: str) -> tzinfo:
    """Return the time zone with this IANA name, or UTC for "". Raise `InvalidValue`."""
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        rule = "must be a zone such as Europe/Berlin (no such file in the time zone database)"
        raise InvalidValue("--zone", name, rule) from error


@lru_cache(maxsize=1024)
def possible_unix_times_s(text: str, zone: tzinfo) -> PossibleTimes:
    """Return a time's possible interpretations, or () for an unknown time.

    Raise `InvalidValue` if it is not a time or does not exist in the zone.
    """
    if not text[:1].isdigit() and text.lower() in UNKNOWN_VALUES:
        return ()
    text = _WHOLE_FLOAT.sub(r"\1", text)
    if len(text) in _EPOCH_DIGITS and text.isdecimal() and text.isascii():
        return (int(text),)
    try:
        at = datetime.fromisoformat(text)
        if zone is UTC and at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        if at.tzinfo is not None:
            return (int(at.timestamp()),)
        first, second = (int(at.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    except (ValueError, OverflowError):
        raise InvalidValue("time", text, _TIME_FORM) from None
    if first > second:
        raise InvalidValue(
            "time", text, f"does not exist in {zone}, whose clock skipped it: set --zone to the zone in which sacct ran"
        )
    return (first,) if first == second else (first, second)


def resolve_ambiguous_times(times: Sequence[PossibleTimes], elapsed_s: int | None) -> tuple[list[int | None], bool]:
    """Choose one interpretation of each time.

    Also return whether this is the only possible choice.

    The times must not decrease, and the last two (start and end) must be `elapsed_s` apart if possible. The first
    consistent choice is used, or the first interpretation of each time if no choice is consistent.
    """
    known = [at for at in times if at]
    ascending = [choice for choice in product(*known) if all(a <= b for a, b in pairwise(choice))]
    exact = [choice for choice in ascending if times[-2] and times[-1] and choice[-1] - choice[-2] == elapsed_s]
    possible = exact or ascending
    chosen = iter(possible[0] if possible else [at[0] for at in known])
    return [next(chosen) if at else None for at in times], len(possible) == 1


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
