"""Parse and format Slurm's lists of task indices, such as `0-5,9` and `0-8:2`."""

from __future__ import annotations

from functools import lru_cache

MAX_TASK_INDEX = 1 << 22


@lru_cache(maxsize=1024)
def parse_task_ranges(waiting: str | None) -> tuple[range, ...]:
    """Return an array's waiting tasks as ranges, because there may be millions.

    `waiting` has a form such as "0-5,9" or "0-8:2" (every second task). Raise `ValueError` for any other form.
    """
    if not waiting:
        return ()
    ranges: list[range] = []
    for part in waiting.strip("[]").split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        ranges.append(range(_parse_task_index(low), _parse_task_index(high or low) + 1, _parse_task_index(step or "1")))
    return tuple(ranges)


def _parse_task_index(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MAX_TASK_INDEX:
        raise ValueError(f"array task {text[:20]}: must be from 0 to {MAX_TASK_INDEX}")
    return number


def format_ranges(numbers: list[int]) -> str:
    """Return numbers as ascending ranges, such as "1-3,7" for [1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
