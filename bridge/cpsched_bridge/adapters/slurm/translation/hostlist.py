"""Slurm's node lists: `n[1-3,07],gpu1` and back to names."""

from __future__ import annotations

from functools import lru_cache

from cpsched_bridge.adapters.slurm.translation.ids import MOST_TASK

MOST_NODES = 200_000
"""No node list of a real site is longer; a wrong one must not eat the memory."""


@lru_cache(maxsize=8192)
def expand(nodes: str | None) -> tuple[str, ...]:
    """The names of a node list, in its order; raises ValueError where brackets or ranges are broken."""
    if not nodes:
        return ()
    names = [name for item in _split(nodes) for name in _expand_item(item)]
    if len(names) > MOST_NODES:
        raise ValueError(f"node list {nodes[:60]!r}: more than {MOST_NODES} nodes")
    return tuple(names)


def known(nodes: str | None) -> tuple[str, ...]:
    """The names of a node list as `expand` has them; none where the list cannot be read."""
    try:
        return expand(nodes)
    except ValueError:
        return ()


def _split(text: str) -> list[str]:
    """`text` cut at the commas outside of brackets."""
    items, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise ValueError(f"node list {text[:60]!r}: brackets do not match")
        if sign == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    if depth:
        raise ValueError(f"node list {text[:60]!r}: brackets do not match")
    return [item for item in (*items, text[start:]) if item]


def _expand_item(item: str) -> list[str]:
    """The names of one item; the last dimension runs fastest."""
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inside, _, tail = rest.partition("]")
    tails = _expand_item(tail) if tail else [""]
    return [f"{head}{number}{end}" for number in _numbers(inside) for end in tails]


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"node list range {part!r}: must be numbers")
        if dash and int(high) - int(low) > MOST_NODES:
            raise ValueError(f"node list range {part!r}: more than {MOST_NODES} nodes")
        numbers.extend(str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1))
    return numbers


def compact(numbers: list[int]) -> str:
    """Ascending numbers as ranges: [1, 2, 3, 7] -> "1-3,7" (array tasks)."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@lru_cache(maxsize=1024)
def task_ranges(waiting: str | None) -> tuple[range, ...]:
    """An array's waiting tasks, "0-5,9" or "0-8:2" (every second), as ranges; raises ValueError for what is none.

    They are not counted out: an array may have millions of tasks.
    """
    if not waiting:
        return ()
    ranges: list[range] = []
    for part in waiting.strip("[]").split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        ranges.append(range(_task(low), _task(high or low) + 1, _task(step or "1")))
    return tuple(ranges)


def _task(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MOST_TASK:
        raise ValueError(f"array task {text[:20]}: must be from 0 to {MOST_TASK}")
    return number
