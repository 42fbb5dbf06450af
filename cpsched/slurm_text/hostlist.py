"""Expand Slurm's node lists, such as `n[1-3,07],gpu1`, into node names."""

from __future__ import annotations

from functools import lru_cache

MAX_LISTED_NODES = 200_000
"""Maximum length of a node list, so that an invalid list cannot exhaust memory."""


@lru_cache(maxsize=8192)
def expand_hostlist(nodes: str | None) -> tuple[str, ...]:
    """Return a list's node names in order. Raise `ValueError` for an invalid list."""
    if not nodes:
        return ()
    names: list[str] = []
    for item in _split_hostlist_items(nodes):
        names += _expand_hostlist_item(item)
        _check_list_length(len(names), nodes)
    return tuple(names)


def expand_hostlist_or_empty(nodes: str | None) -> tuple[str, ...]:
    """Return the result of `expand_hostlist`, or an empty tuple for an invalid list."""
    try:
        return expand_hostlist(nodes)
    except ValueError:
        return ()


def _split_hostlist_items(text: str) -> list[str]:
    """Split `text` at commas outside brackets."""
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


def _expand_hostlist_item(item: str) -> list[str]:
    """Return the names in one item, with the last dimension varying fastest."""
    head, bracket, rest = item.partition("[")
    if not bracket:
        return [item]
    inside, _, tail = rest.partition("]")
    tails, numbers = _expand_hostlist_item(tail) if tail else [""], _expand_number_ranges(inside)
    _check_list_length(len(numbers) * len(tails), item)
    return [f"{head}{number}{end}" for number in numbers for end in tails]


def _expand_number_ranges(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"node list range {part!r}: must be numbers")
        if dash and int(high) - int(low) > MAX_LISTED_NODES:
            raise ValueError(f"node list range {part!r}: more than {MAX_LISTED_NODES} nodes")
        numbers.extend(str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1))
        _check_list_length(len(numbers), ranges)
    return numbers


def _check_list_length(count: int, text: str) -> None:
    """Raise `ValueError` if a list has more than `MAX_LISTED_NODES` names."""
    if count > MAX_LISTED_NODES:
        raise ValueError(f"node list {text[:60]!r}: more than {MAX_LISTED_NODES} nodes")
