"""Parse PBS's amounts and times.

`cpsched.parsing.pbs_select` parses sizes and durations.
"""

from __future__ import annotations

import calendar
import re
from datetime import datetime
from fractions import Fraction

from cpsched.parsing.pbs_select import parse_size_bytes

MIB = 1 << 20
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{0,9})?|\.\d{1,9}", re.ASCII)


def parse_resource_amount(text: str, is_size: bool) -> Fraction:
    """Return an amount, with sizes in MiB. Raise `ValueError` for malformed text."""
    if is_size:
        return Fraction(parse_size_bytes(text), MIB)
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is not a number")
    return Fraction(text.strip())


def parse_unix_time_s(text: str) -> int:
    """Return the Unix time from a UTC time or a number of seconds.

    Example: "Sun Nov 22 12:40:38 2026". Raise `ValueError` for other text.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return calendar.timegm(datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y").timetuple())
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time") from None
