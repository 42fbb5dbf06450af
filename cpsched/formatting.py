"""Format all durations, times, amounts, counts and metrics in user-facing text."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

UNIX_TIME_S = 10**9
"""Times from this value on are Unix time (2001 and later). A simulated cluster's clock starts near zero."""
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_YEAR_10000_S = 253_402_300_800
"""First second that the calendar of `datetime` lacks."""


# ------------------------------------------------------------------------------------------------------------- times


def format_duration(seconds: float) -> str:
    """Format a duration with its two largest units: `45 s`, `12 min 30 s`, `3 d 4 h`."""
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 < whole else ""
    if whole < _MINUTE_S:
        return f"{sign}{whole} s"
    if whole < _HOUR_S:
        rest_s = whole % _MINUTE_S
        return f"{sign}{whole // _MINUTE_S} min" + (f" {rest_s:02d} s" if rest_s else "")
    if whole < _DAY_S:
        return f"{sign}{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"
    return f"{sign}{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def is_unknown_time(at_s: int, now_s: int) -> bool:
    """Return whether 0 stands for a time that the cluster did not report: on a simulated clock, 0 is a time."""
    return at_s <= 0 and now_s >= UNIX_TIME_S


def format_milliseconds(seconds: float) -> str:
    """Format seconds as `1.2 ms`."""
    return f"{1e3 * seconds:,.1f} ms"


def format_unix_time(unix_s: float) -> str:
    """Format a Unix time in UTC, without the zone: `2026-11-25 16:53:28`.

    Users choose begin times, and Slurm sets no bound on them. Times outside the calendar are `after the year 9999` or
    `before the year 1970`.
    """
    if unix_s >= _YEAR_10000_S:
        return "after the year 9999"
    if unix_s < 0:
        return "before the year 1970"
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S}"


def format_cluster_time(cluster_s: int) -> str:
    """Format a cluster time: `2026-11-25 16:53:28 UTC`, or `day 3, 02:05:00`.

    The second form is for simulated clocks, which start near zero.
    """
    if cluster_s >= _YEAR_10000_S:
        return format_unix_time(cluster_s)
    if cluster_s >= UNIX_TIME_S:
        return f"{format_unix_time(cluster_s)} UTC"
    days, rest = divmod(abs(cluster_s), _DAY_S)
    sign = "-" if cluster_s < 0 else ""
    return f"{sign}day {days}, {rest // _HOUR_S:02d}:{rest % _HOUR_S // _MINUTE_S:02d}:{rest % _MINUTE_S:02d}"


def format_relative_time(at_s: int, now_s: int) -> str:
    """Format a time relative to now: `in 2 h 05 min`, `5 min ago`, `now`."""
    ahead_s = at_s - now_s
    return f"{format_duration(-ahead_s)} ago" if ahead_s < 0 else format_planned_time(at_s, now_s)


def format_planned_time(at_s: int, now_s: int) -> str:
    """Format a planned time relative to now: `in 5 min`, or `now` if it has passed.

    A planned time can be in the past, because plans can be outdated.
    """
    return f"in {format_duration(at_s - now_s)}" if at_s > now_s else "now"


def format_start_interval(from_s: int, to_s: int, now_s: int) -> str:
    """Format the interval of a start relative to now: `in 5 min to 2 h 05 min`, or `within 2 h 05 min`.

    A job that waits cannot start in the past.
    """
    if to_s <= now_s or from_s == to_s:
        return format_planned_time(to_s, now_s)
    if from_s <= now_s:
        return f"within {format_duration(to_s - now_s)}"
    return f"in {format_duration(from_s - now_s)} to {format_duration(to_s - now_s)}"


def format_start_change(expected_s: int | None, first_s: int | None) -> str:
    """Format an expected start's shift since the first plan, such as `5 min later`.

    Return "" if it is unchanged or unknown.
    """
    if expected_s is None or first_s is None or expected_s == first_s:
        return ""
    moved_s = expected_s - first_s
    return f"{format_duration(abs(moved_s))} {'later' if moved_s > 0 else 'earlier'}"


# ---------------------------------------------------------------------------------------------- amounts of resources


def format_amount(resource: str, value: int) -> str:
    """Format an amount of a resource: memory in MiB or GiB, others as a number."""
    mib = _mib_per_unit(resource)
    if mib is None:
        return f"{value:,}"
    whole = value * mib
    if 0 < whole < 1024:
        return f"{whole:,} MiB"
    gib = whole / 1024
    return f"{gib:,.0f} GiB" if gib >= 100 or gib == int(gib) else f"{gib:,.1f} GiB"


def resource_label(name: str, number: int = 2) -> str:
    """Return a resource's label, such as `memory`, or `GPUs (a100)` for `gpu:a100`."""
    if _mib_per_unit(name) is not None:
        return "memory"
    kind, _, model = name.removeprefix("gres/").partition(":")
    plural = "GPUs" if kind in ("gpu", "gpus") else kind
    text = plural.removesuffix("s") if number == 1 else plural
    return f"{text} ({model})" if model else text


def format_quantity(name: str, number: int) -> str:
    """Format an amount with its resource: `256 cores`, `1 GPU`, `12 GiB`."""
    return (
        format_amount(name, number) if _mib_per_unit(name) is not None else f"{number:,} {resource_label(name, number)}"
    )


def _mib_per_unit(resource: str) -> int | None:
    return {"memory_mib": 1, "memory_gib": 1024}.get(resource)


# ---------------------------------------------------------------------------------------------------------- numbers


def format_count(number: int, one: str, more: str = "") -> str:
    """Format a count with its noun: `1 node`, `1,608 nodes`.

    `more` is an irregular plural.
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def format_ordinal(number: int) -> str:
    """Format an ordinal: `first`, `2nd`, `1,608th`."""
    if number == 1:
        return "first"
    tens = 10 < number % 100 < 20
    return f"{number:,}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def format_percent(share: float | None, digits: int = 0) -> str:
    """Format a share as `12 %`. Return "" for None."""
    return "" if share is None else f"{100 * share:.{digits}f} %"


def format_number(value: float) -> str:
    """Format a value with five significant digits: `92.688`, `15,694`, `1,060,430`."""
    return f"{value:,.5g}" if abs(value) < 1e5 else f"{value:,.0f}"


def format_short_number(value: float | None) -> str:
    """Format a value with three significant digits: 132k, 16.8k, 0.686; `-` for None."""
    if value is None:
        return "-"
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def format_with_unit(value: float | None, unit: str) -> str:
    """Format a value: seconds as a duration, `%` with one decimal, None as `-`."""
    if value is None:
        return "-"
    if unit == "s":
        return format_duration(value)
    return f"{value:.1f} %" if unit == "%" else f"{value:,.4g}"


def format_difference(value: float | None, unit: str) -> str:
    """Format a difference with its sign. Zero has no sign, and None is `-`."""
    if value is None:
        return "-"
    size = format_with_unit(abs(value), unit)
    return size if size == format_with_unit(0.0, unit) else ("+" if value > 0 else "-") + size


def format_difference_range(ends: Sequence[float] | None, unit: str) -> str:
    """Format an interval of differences: `-2 min to +3 min`; `none` for None."""
    return "none" if ends is None else f"{format_difference(ends[0], unit)} to {format_difference(ends[1], unit)}"


# ---------------------------------------------------------------------------------------------------- representations

MAX_REPR_LINES, MAX_REPR_CHARS = 20, 2000
"""Maximum length of an object's representation, so that printing a result never prints all of its jobs."""
_MAX_FIELD_CHARS, _MAX_LINE_CHARS = 80, 500

_abbreviation = reprlib.Repr()
_abbreviation.maxlevel = 2
_abbreviation.maxdict = _abbreviation.maxlist = _abbreviation.maxtuple = _abbreviation.maxset = 4
_abbreviation.maxstring = _abbreviation.maxother = _MAX_FIELD_CHARS


def abbreviated_repr(instance: Any) -> str:
    """Return the representation of a dataclass with its long values abbreviated. It is a `__repr__` for classes."""
    values = (
        (each.name, " ".join(_abbreviation.repr(getattr(instance, each.name)).split())) for each in fields(instance)
    )
    parts = (f"{name}={_abbreviate(value, _MAX_FIELD_CHARS)}" for name, value in values)
    return f"{type(instance).__name__}({', '.join(parts)})"


def join_repr_lines(lines: Sequence[str], rest: str) -> str:
    """Join the lines of a representation. If there are too many, `rest` names where to find all of them."""
    shown, chars = list[str](), 0
    most = MAX_REPR_LINES if len(lines) <= MAX_REPR_LINES else MAX_REPR_LINES - 1
    for line in lines[:most]:
        short = _abbreviate(line, _MAX_LINE_CHARS)
        chars += len(short) + 1
        if chars > MAX_REPR_CHARS - _MAX_FIELD_CHARS:
            break
        shown.append(short)
    if left := len(lines) - len(shown):
        shown.append(f"... {format_count(left, 'more line')}: see {rest}")
    return "\n".join(shown)


def _abbreviate(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 3]}..."
