"""Sizes, durations and times as PBS prints them."""

from __future__ import annotations

import calendar
import re
from datetime import datetime
from fractions import Fraction

MIB = 1 << 20
FOREVER_S = 365 * 86400
"""Walltime of a job without one; how long what has no end that can be read is expected to last."""
_SIZE = re.compile(r"(\d{1,18})([kmgtpe]?)([bw]?)", re.IGNORECASE | re.ASCII)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_WORD_BYTES = 8
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)
_CLOCK = re.compile(r"(?:(?:(\d{1,7}):)?(\d{1,7}):)?(\d{1,10})(?:\.\d{1,9})?", re.ASCII)


def size_bytes(text: str) -> int:
    """ "24684084kb" in bytes; a word has eight. Raises `ValueError`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is no size")
    return (int(found[1]) << _SHIFT[found[2].lower()]) * (_WORD_BYTES if found[3].lower() == "w" else 1)


def amount(text: str, is_size: bool) -> Fraction:
    """An amount of a resource: a size in MiB, any other as it is. Raises `ValueError`."""
    if is_size:
        return Fraction(size_bytes(text), MIB)
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is no number")
    return Fraction(text.strip())


def duration_s(text: str) -> int:
    """ "01:00:00", "30:00" or "90" in seconds; raises `ValueError`."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is no duration")
    return int(found[1] or 0) * 3600 + int(found[2] or 0) * 60 + int(found[3])


def time_s(text: str) -> int:
    """ "Sun Nov 22 12:40:38 2026", in UTC, or seconds, as Unix time; raises `ValueError`."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return calendar.timegm(datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").timetuple())
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no time") from None
