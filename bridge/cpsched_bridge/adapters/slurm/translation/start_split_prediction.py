"""Predict how Slurm splits started jobs whose tasks may share nodes.

A dispatcher places a job's tasks on nodes. Slurm accepts the nodes, but not the number of tasks on each: it computes
that number from the free resources when it starts the job. Other starts on the same nodes may take effect before or
after this start. A start is therefore sent only if the split is the same in both cases. Otherwise, the job waits until
the other jobs are running, usually for one cycle.

A start sets the number of nodes and no other setting. The rules of the split were measured on Slurm 26.05
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

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import IntArray, Placement, Request
from cpsched_bridge.adapters.shared.node_table import ConfiguredNodeTable
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import FutureCoreReservation
from cpsched_bridge.ports import Outcome, StartOrder

UNCERTAIN_LAYOUT = "it waits for other starts on the same nodes, which would change how Slurm distributes its tasks"
NODES_TAKEN = "its nodes no longer have enough free resources for all of its tasks"


def predict_start_splits(
    orders: Sequence[StartOrder], under_way: Iterable[StartOrder], free: IntArray, machine: ConfiguredNodeTable
) -> list[StartOrder | Outcome]:
    """Return each start as Slurm will execute it, or the reason why it must wait.

    Starts are resolved in the given order. `free` (int64[N, R]) is the capacity left by running jobs. `under_way`
    contains sent starts that `free` does not reflect yet.
    """
    sent = _SentStarts(free, machine)
    for order in under_way:
        sent.add(order)
    return [sent.resolve(order) for order in orders]


def defer_reservation_conflicts(
    orders: Sequence[StartOrder | Outcome],
    under_way: Iterable[StartOrder],
    to_come: Iterable[FutureCoreReservation],
    machine: ConfiguredNodeTable,
    now_s: int,
) -> list[StartOrder | Outcome]:
    """Return each start, or why it must wait if its cores are reserved for later."""
    found = list(orders)
    for reservation in to_come:
        left = reservation.room.copy()
        for sent in under_way:
            if reservation.begins_during_job(now_s, sent.job.walltime_s):
                _subtract_start(left, sent, machine)
        for at, order in enumerate(found):
            if isinstance(order, StartOrder) and reservation.begins_during_job(now_s, order.job.walltime_s):
                before = left.copy()
                _subtract_start(left, order, machine)
                if (left[reservation.parts] < np.minimum(before[reservation.parts], 0)).any():
                    why = f"other starts leave too few resources for it outside reservation {reservation.name}"
                    found[at], left = Outcome.not_sent(order.job_id, why), before
    return found


def _subtract_start(left: IntArray, order: StartOrder, machine: ConfiguredNodeTable) -> None:
    for node, amounts in _get_amounts(order, machine).items():
        left[node] -= amounts


def _get_amounts(order: StartOrder, machine: ConfiguredNodeTable) -> dict[int, IntArray]:
    return amounts_by_node(order.job.request, _get_placement(order, machine), machine.capacity)


def _get_placement(order: StartOrder, machine: ConfiguredNodeTable) -> Placement:
    """Return the units of a start by node index. Nodes that have left the machine are omitted."""
    return tuple(sorted((machine.index[name], units) for name, units in order.nodes if name in machine.index))


class _SentStarts:
    """The starts sent so far, and their use of each node."""

    def __init__(self, free: IntArray, machine: ConfiguredNodeTable) -> None:
        self._free, self._machine = free, machine
        self._taken = np.zeros_like(free)
        self._split: list[StartOrder] = []

    def add(self, order: StartOrder, sign: int = 1) -> None:
        """Add a sent start, or remove it if `sign` is -1."""
        for node, amounts in _get_amounts(order, self._machine).items():
            self._taken[node] += sign * amounts
        if is_split_by_slurm(order.job.request):
            self._split = [*self._split, order] if sign > 0 else self._split[:-1]

    def resolve(self, order: StartOrder) -> StartOrder | Outcome:
        """Add and return the start as Slurm will execute it, or return why it must wait."""
        found = self._predict_split(order) if is_split_by_slurm(order.job.request) else order
        if found is None:
            return Outcome.not_sent(order.job_id, NODES_TAKEN)
        self.add(found)
        names = {name for name, _ in found.nodes}
        near = [sent for sent in self._split if names.intersection(name for name, _ in sent.nodes)]
        if all(map(self._has_fixed_split, near)):
            return found
        self.add(found, -1)
        return Outcome.not_sent(order.job_id, UNCERTAIN_LAYOUT)

    def _predict_split(self, order: StartOrder) -> StartOrder | None:
        request, nodes = order.job.request, [node for node, _ in _get_placement(order, self._machine)]
        room = self._count_units(request, nodes, self._free[nodes] - self._taken[nodes])
        kept = find_needed_node_positions(request.units, room)
        tasks = predict_task_distribution(request.units, [room[at] for at in kept])
        if tasks is None:
            return None
        names = (self._machine.names[nodes[at]] for at in kept)
        return replace(order, nodes=tuple(zip(names, tasks, strict=True)))

    def _has_fixed_split(self, sent: StartOrder) -> bool:
        """Return whether the split is the same before and after all other starts."""
        request, placement = sent.job.request, _get_placement(sent, self._machine)
        nodes = [node for node, _ in placement]
        own = np.array(list(amounts_by_node(request, placement, self._machine.capacity).values()))
        planned = [tasks for _, tasks in placement]
        least = self._count_units(request, nodes, self._free[nodes] - self._taken[nodes] + own)
        most = self._count_units(request, nodes, self._free[nodes])
        return all(predict_task_distribution(request.units, room) == planned for room in (least, most))

    def _count_units(self, request: Request, nodes: list[int], free: IntArray) -> list[int]:
        """Return how many units of the request fit on each node.

        `free` is int64[nodes, R].
        """
        found = units_fitting_by_row(request, free)
        if request.exclusive:
            found[(free != self._machine.capacity[nodes]).any(axis=1)] = 0
        return [int(units) for units in found]


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
