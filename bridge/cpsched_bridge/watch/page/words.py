"""Durations, instants, amounts and numbers for people."""

from __future__ import annotations

from collections.abc import Collection

from cpsched_bridge.ports import MOST_TASKS


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


def to_come(at_s: int, now_s: int) -> str:
    """An instant that is still to come, by a plan that may be a little older than now: one that is past is `now`."""
    return from_now(max(at_s, now_s), now_s)


def behind_its_array(asked: str, labels: Collection[str]) -> str:
    """Why a waiting task of an array is in no reading, where `labels` are those of the waiting jobs; else empty."""
    array, _, task = asked.partition("_")
    shown = [tail for label in labels for head, _, tail in [label.partition("_")] if head == array and tail.isdecimal()]
    if not task.isdecimal() or len(task) > 9 or len(shown) < MOST_TASKS or int(task) <= max(map(int, shown)):
        return ""
    return (
        f"It may wait behind the first {len(shown):,} waiting tasks of array {array}: the others follow as these start."
    )


def change(expected_s: int | None, first_s: int | None) -> str:
    """How an expected start has moved since it was first given: `5 min later`; empty where it has not."""
    if expected_s is None or first_s is None or expected_s == first_s:
        return ""
    moved_s = expected_s - first_s
    return f"{span(abs(moved_s))} {'later' if moved_s > 0 else 'earlier'}"


def amount(resource: str, value: int) -> str:
    """An amount of a resource: memory in GiB, everything else as a number."""
    mib = _mib(resource)
    if mib is None:
        return f"{value:,}"
    whole = value * mib
    if 0 < whole < 1024:
        return f"{whole:,} MiB"
    gib = whole / 1024
    return f"{gib:,.0f} GiB" if gib >= 100 or gib == int(gib) else f"{gib:,.1f} GiB"


def resource(name: str, number: int = 2) -> str:
    """What so many of a resource are called: `memory_mib` is memory, `gpu:a100` are GPUs (a100)."""
    if _mib(name) is not None:
        return "memory"
    kind, _, model = name.removeprefix("gres/").partition(":")
    plural = "GPUs" if kind in ("gpu", "gpus") else kind
    words = plural.removesuffix("s") if number == 1 else plural
    return f"{words} ({model})" if model else words


def quantity(name: str, number: int) -> str:
    """An amount with what it is an amount of: `256 cores`, `1 GPU`, `12 GiB`."""
    return amount(name, number) if _mib(name) is not None else f"{number:,} {resource(name, number)}"


def _mib(resource: str) -> int | None:
    return {"memory_mib": 1, "memory_gib": 1024}.get(resource)


def many(number: int, one: str, more: str = "") -> str:
    """`1 node`, `1,608 nodes`; `more` where the plural is not made by an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def ordinal(number: int) -> str:
    """`first`, `2nd`, `1,608th`."""
    if number == 1:
        return "first"
    tens = 10 < number % 100 < 20
    return f"{number:,}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
