"""Expand Slurm's node lists, such as `n[1-3,07],gpu1`, to node names."""

from __future__ import annotations

from functools import lru_cache

MOST_NODES = 200_000
"""Maximum length of a node list, so that an invalid list cannot exhaust memory."""


@lru_cache(maxsize=8192)
def expand_hostlist(nodes: str | None) -> tuple[str, ...]:
    """Return the node names of a list, in its order; raise ValueError for invalid brackets or ranges."""
    if not nodes:
        return ()
    names: list[str] = []
    for item in _split(nodes):
        names += _expand_item(item)
        _bounded(len(names), nodes)
    return tuple(names)


def expand_if_valid(nodes: str | None) -> tuple[str, ...]:
    """Return the same as `expand_hostlist`, but an empty tuple if the list is invalid."""
    try:
        return expand_hostlist(nodes)
    except ValueError:
        return ()


def _split(text: str) -> list[str]:
    """Return `text` split at commas outside brackets."""
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
    """Return the names of one item; the last dimension varies fastest."""
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inside, _, tail = rest.partition("]")
    tails, numbers = _expand_item(tail) if tail else [""], _numbers(inside)
    _bounded(len(numbers) * len(tails), item)
    return [f"{head}{number}{end}" for number in numbers for end in tails]


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"node list range {part!r}: must be numbers")
        if dash and int(high) - int(low) > MOST_NODES:
            raise ValueError(f"node list range {part!r}: more than {MOST_NODES} nodes")
        numbers.extend(str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1))
        _bounded(len(numbers), ranges)
    return numbers


def _bounded(count: int, text: str) -> None:
    """Raise ValueError if a list is longer than `MOST_NODES`."""
    if count > MOST_NODES:
        raise ValueError(f"node list {text[:60]!r}: more than {MOST_NODES} nodes")
