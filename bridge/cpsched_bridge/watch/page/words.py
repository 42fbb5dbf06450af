"""Durations and instants for people."""

from __future__ import annotations


def span(seconds: float) -> str:
    """A duration with its two largest units: `45 s`, `12 min 30 s`, `2 h 05 min`, `3 d 4 h`."""
    whole = int(abs(seconds))
    sign = "-" if seconds < 0 else ""
    if whole < 60:
        return f"{sign}{whole} s"
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02d} s" if whole % 60 else f"{sign}{whole // 60} min"
    if whole < 86400:
        return f"{sign}{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{sign}{whole // 86400} d {whole % 86400 // 3600} h"


def from_now(at_s: int, now_s: int) -> str:
    """An instant beside now: `in 2 h 05 min`, `5 min ago`, `now`."""
    ahead_s = at_s - now_s
    return "now" if ahead_s == 0 else f"in {span(ahead_s)}" if ahead_s > 0 else f"{span(-ahead_s)} ago"


def change(expected_s: int | None, first_s: int | None) -> str:
    """How an expected start has moved since it was first given: `5 min later`; empty where it has not."""
    if expected_s is None or first_s is None or expected_s == first_s:
        return ""
    moved_s = expected_s - first_s
    return f"{span(abs(moved_s))} {'later' if moved_s > 0 else 'earlier'}"
