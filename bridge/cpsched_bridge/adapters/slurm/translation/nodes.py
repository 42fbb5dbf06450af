"""What Slurm's nodes have to give at a moment: which of them take jobs, and what is free on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cpsched.fit import used_by
from cpsched.model import BoolArray, IntArray, RunningJob
from cpsched.model.bounds import MOST_AMOUNT
from cpsched_bridge.adapters.shared.machine import CORES, MEMORY
from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.adapters.slurm.translation import states
from cpsched_bridge.adapters.slurm.translation.gres import tres_gres
from cpsched_bridge.adapters.slurm.translation.machine import Machine
from cpsched_bridge.adapters.slurm.translation.reservations import Reservation


def available(nodes: Sequence[Record], reservations: Iterable[Reservation], now_s: int) -> BoolArray:
    """Nodes that may be given a job now, bool[N]: up, responding, not drained, not under an active reservation."""
    mask = np.fromiter((states.node_takes_jobs(node["state"]) for node in nodes), np.bool_, len(nodes))
    for reservation in reservations:
        if reservation.start_s <= now_s:
            mask &= ~reservation.members
    return mask


def in_use(nodes: Sequence[Record], machine: Machine) -> IntArray:
    """What the node records say is allocated, int64[N, R]; generic resources only where accounting tracks them."""
    used = np.zeros_like(machine.capacity)
    used[:, CORES] = [min(node["allocated_cpus"] or 0, MOST_AMOUNT) for node in nodes]
    if machine.counts_memory:
        used[:, MEMORY] = [min(node["allocated_memory"] or 0, MOST_AMOUNT) for node in nodes]
    for row, node in enumerate(nodes):
        for name, count in tres_gres(_counts(node["allocated_tres"])).items():
            if name in machine.resources:
                used[row, machine.resources.index(name)] = min(count, MOST_AMOUNT)
    return used


def _counts(tres: Mapping[str, object] | None) -> dict[str, int]:
    """The entries of an allocated_tres dict that are numbers ("mem" may read "4G")."""
    return {key: value for key, value in (tres or {}).items() if isinstance(value, int)}


def overcommitted(nodes: Sequence[Record], machine: Machine) -> BoolArray:
    """Nodes on which Slurm says that more is allocated than they have, bool[N]: such a node is given no job.

    Slurm lets that happen where a node's configuration shrinks under its jobs, or memory is over-allocated.
    """
    found: BoolArray = np.any(in_use(nodes, machine) > machine.capacity, axis=1)
    return found


def taken_by(machine: Machine, running: Sequence[RunningJob]) -> IntArray:
    """What running jobs take by their requests, int64[N, R]; an exclusive one uses up its nodes."""
    used = np.zeros_like(machine.capacity)
    for job in running:
        request = job.job.request
        for node, amounts in used_by(request, job.placement, machine.capacity).items():
            used[node] = amounts if request.exclusive else used[node] + amounts
    return used


def free_on(nodes: Sequence[Record], machine: Machine, running: Sequence[RunningJob], usable: BoolArray) -> IntArray:
    """What is free, int64[N, R]; 0 on nodes that are not `usable`.

    Two sources know a part of it, and the one that leaves less counts:

    - The node records know how a job that Slurm placed itself is split over its nodes, and what jobs take that are
      not modelled.
    - The running jobs know generic resources where accounting does not track them, and that an exclusive job uses up
      its nodes.

    So free and running amounts never exceed a node's capacity together.
    """
    free = machine.capacity - np.maximum(in_use(nodes, machine), taken_by(machine, running))
    free[~usable] = 0
    return np.maximum(free, 0)
