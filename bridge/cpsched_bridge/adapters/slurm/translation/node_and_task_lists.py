"""Parse Slurm's node lists, such as `n[1-3,07],gpu1`, and lists of task indices.

`cpsched.slurm_text.hostlist` expands node lists.
"""

from __future__ import annotations

from cpsched.slurm_text.hostlist import expand_hostlist, expand_hostlist_or_empty
from cpsched.slurm_text.task_ranges import parse_task_ranges

__all__ = ["expand_hostlist", "expand_hostlist_or_empty", "format_ranges", "parse_task_ranges"]


def format_ranges(numbers: list[int]) -> str:
    """Return numbers as ascending ranges, such as "1-3,7" for [1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
