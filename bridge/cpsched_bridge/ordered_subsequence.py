"""Find the largest part of a sequence that is already in order, so that only the rest must move."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def find_longest_ordered_subsequence(keys: Sequence[int]) -> list[int]:
    """Return the positions of a longest non-decreasing subsequence of keys (patience sorting)."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for at, key in enumerate(keys):
        length = bisect_right(ends, key)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(key)
            last.append(at)
        else:
            ends[length], last[length] = key, at

    found, at = [], last[-1] if last else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]
