"""How Slurm shares out the tasks of a job over its node list, where it is told the number of nodes and no more.

Measured on Slurm 26.05 (`tests/data/slurm/splits.json` has what was asked and what came of it), the same for CR_Core,
CR_Core_Memory, CR_CPU_Memory, with and without CR_LLN and CR_Pack_Nodes:

- Slurm takes every node of the list that it needs, in the order of its node table, and fills one after the other; the
  last one gets the rest.
- Nodes that the job could do without would get a task each. So a list is one of which no node can be spared
  (`required_nodes`).
- Without the number of nodes Slurm may leave nodes out, add others, or fill a job of several CPUs a task in another
  order.
"""

from __future__ import annotations

from collections.abc import Sequence

from cpsched.model import Request


def splits_by_itself(request: Request) -> bool:
    """Whether Slurm decides how many units each node gets."""
    return request.units > 1 and not request.distinct


def required_nodes(tasks: int, room: Sequence[int]) -> list[int]:
    """The positions of a list of nodes without those that can be spared, the smallest first; ascending.

    `room` says how many of the `tasks` each node holds. No position is left where all together do not hold them.
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


def distribute_tasks(tasks: int, room: Sequence[int]) -> list[int] | None:
    """Tasks on each node, in the order of Slurm's node table; None where it is not certain what Slurm does.

    >>> distribute_tasks(17, [10, 12])
    [10, 7]
    >>> distribute_tasks(10, [10, 12])
    """
    if len(required_nodes(tasks, room)) < len(room) or not room:
        return None
    return [*room[:-1], tasks - sum(room[:-1])]
