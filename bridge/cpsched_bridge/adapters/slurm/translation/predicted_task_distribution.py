"""Predict how Slurm distributes a job's tasks over its node list.

A start sets the number of nodes and no other setting. The rules were measured on Slurm 26.05
(`tests/data/slurm/splits.json` contains requests and results). They are the same for CR_Core, CR_Core_Memory and
CR_CPU_Memory, with and without CR_LLN and CR_Pack_Nodes:

- Slurm uses every node in the list that it needs, in the order of its node table, and fills one after the other. The
  last node gets the remaining tasks.
- A node that the job does not need would get one task, so a list contains only needed nodes
  (`find_needed_node_positions`).
- Without the number of nodes, Slurm may skip nodes or add others. If a task has several CPUs, it may also fill nodes in
  a different order.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpsched.model import Request


def is_split_by_slurm(request: Request) -> bool:
    """Return whether Slurm decides how many units each node gets."""
    return request.units > 1 and not request.distinct


def find_needed_node_positions(tasks: int, room: Sequence[int]) -> list[int]:
    """Return the ascending positions of the needed nodes in a node list.

    The smallest unneeded nodes are removed first. `room` contains the number of tasks that fit on each node. The result
    is empty if the nodes together cannot hold all tasks.
    """
    spare = sum(room) - tasks
    if spare < 0:
        return []
    kept = set(range(len(room)))
    for at in sorted(kept, key=lambda at: (room[at], at)):
        if room[at] <= spare:
            spare -= room[at]
            kept.discard(at)
    return sorted(kept)


def predict_task_distribution(tasks: int, room: Sequence[int]) -> list[int] | None:
    """Return the number of tasks on each node, in the order of Slurm's node table.

    Return None if Slurm's split is uncertain.

    >>> predict_task_distribution(17, [10, 12])
    [10, 7]
    >>> predict_task_distribution(10, [10, 12])
    """
    if len(find_needed_node_positions(tasks, room)) < len(room) or not room:
        return None
    return [*room[:-1], tasks - sum(room[:-1])]
