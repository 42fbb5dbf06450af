"""Shorten a failing history while it still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.chaos.history import History


def shrunk(history: History, goes_wrong: Callable[[History], bool], tries: int = 400) -> History:
    """Return the shortest failing history found by omitting parts, largest first, in a limited number of tries."""
    size = len(history.steps) // 2
    while size and tries > 0:
        at, found = 0, False
        while at < len(history.steps) and tries > 0:
            shorter = replace(history, steps=history.steps[:at] + history.steps[at + size :])
            tries -= 1
            if goes_wrong(shorter):
                history, found = shorter, True
            else:
                at += size
        size = size if found and size == 1 else size // 2
    return history
