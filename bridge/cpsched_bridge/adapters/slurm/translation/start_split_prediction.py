"""Predict how Slurm splits started jobs whose tasks may share nodes.

A dispatcher places a job's tasks on nodes. Slurm accepts the nodes, but not the number of tasks on each: it computes
that number from the free resources when it starts the job (`predicted_task_distribution`). Other starts on the same
nodes may take effect before or after this start. A start is therefore sent only if the split is the same in both cases.
Otherwise, the job waits until the other jobs are running, usually for one cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import IntArray, Placement, Request
from cpsched_bridge.adapters.slurm.translation.predicted_task_distribution import (
    find_needed_node_positions,
    is_split_by_slurm,
    predict_task_distribution,
)
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import FutureCoreReservation

UNCERTAIN_LAYOUT = "it waits for other starts on the same nodes, which would change how Slurm distributes its tasks"
NODES_TAKEN = "its nodes no longer have enough free resources for all of its tasks"


@dataclass(frozen=True, slots=True)
class SentJobStart:
    """A start that has been or is about to be sent."""

    request: Request
    placement: Placement
    walltime_s: int = 0


def predict_start_splits(
    starts: Sequence[SentJobStart], free: IntArray, capacity: IntArray, under_way: Iterable[SentJobStart]
) -> list[SentJobStart | str]:
    """Return each start as Slurm will execute it, or the reason why it must wait.

    Starts are resolved in the given order. `free` (int64[N, R]) is the capacity left by running jobs. `under_way`
    contains sent starts that `free` does not reflect yet.
    """
    rounds = _SentStarts(free, capacity)
    for each in under_way:
        rounds.add(each)
    return [rounds.resolve(start) for start in starts]


def defer_reservation_conflicts(
    starts: Sequence[SentJobStart | str],
    under_way: Iterable[SentJobStart],
    to_come: Iterable[FutureCoreReservation],
    capacity: IntArray,
    now_s: int,
) -> list[SentJobStart | str]:
    """Return each start, or why it must wait if its cores are reserved for later."""
    found = list(starts)
    for each in to_come:
        left = each.room.copy()
        for sent in under_way:
            if each.begins_during_job(now_s, sent.walltime_s):
                _subtract_start(left, sent, capacity)
        for at, start in enumerate(found):
            if not isinstance(start, str) and each.begins_during_job(now_s, start.walltime_s):
                before = left.copy()
                _subtract_start(left, start, capacity)
                if (left[each.parts] < np.minimum(before[each.parts], 0)).any():
                    found[at], left = (
                        f"other starts leave too few resources for it outside reservation {each.name}",
                        before,
                    )
    return found


def _subtract_start(left: IntArray, sent: SentJobStart, capacity: IntArray) -> None:
    for node, amounts in amounts_by_node(sent.request, sent.placement, capacity).items():
        left[node] -= amounts


class _SentStarts:
    """The starts sent so far, and their use of each node."""

    def __init__(self, free: IntArray, capacity: IntArray) -> None:
        self._free, self._capacity = free, capacity
        self._taken = np.zeros_like(free)
        self._split: list[SentJobStart] = []

    def add(self, sent: SentJobStart, sign: int = 1) -> None:
        """Add a sent start, or remove it if `sign` is -1."""
        for node, amounts in amounts_by_node(sent.request, sent.placement, self._capacity).items():
            self._taken[node] += sign * amounts
        if is_split_by_slurm(sent.request):
            self._split = [*self._split, sent] if sign > 0 else self._split[:-1]

    def resolve(self, start: SentJobStart) -> SentJobStart | str:
        """Add and return the start as Slurm will execute it, or return why it must wait."""
        found = self._predict_split(start) if is_split_by_slurm(start.request) else start
        if found is None:
            return NODES_TAKEN
        self.add(found)
        nodes = {node for node, _ in found.placement}
        if all(
            self._has_fixed_split(each)
            for each in self._split
            if nodes.intersection(node for node, _ in each.placement)
        ):
            return found
        self.add(found, -1)
        return UNCERTAIN_LAYOUT

    def _predict_split(self, start: SentJobStart) -> SentJobStart | None:
        nodes = sorted(node for node, _ in start.placement)
        room = self._count_units(start.request, nodes, self._free[nodes] - self._taken[nodes])
        kept = find_needed_node_positions(start.request.units, room)
        tasks = predict_task_distribution(start.request.units, [room[at] for at in kept])
        if tasks is None:
            return None
        return replace(start, placement=tuple(zip((nodes[at] for at in kept), tasks, strict=True)))

    def _has_fixed_split(self, sent: SentJobStart) -> bool:
        """Return whether the split is the same before and after all other starts."""
        nodes = [node for node, _ in sent.placement]
        own = np.array(list(amounts_by_node(sent.request, sent.placement, self._capacity).values()))
        planned = [tasks for _, tasks in sent.placement]
        least = self._count_units(sent.request, nodes, self._free[nodes] - self._taken[nodes] + own)
        most = self._count_units(sent.request, nodes, self._free[nodes])
        return all(predict_task_distribution(sent.request.units, room) == planned for room in (least, most))

    def _count_units(self, request: Request, nodes: list[int], free: IntArray) -> list[int]:
        """Return how many units of the request fit on each node.

        `free` is int64[nodes, R].
        """
        found = units_fitting_by_row(request, free)
        if request.exclusive:
            found[(free != self._capacity[nodes]).any(axis=1)] = 0
        return [int(units) for units in found]
