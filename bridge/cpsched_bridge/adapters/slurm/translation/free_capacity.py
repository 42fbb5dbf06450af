"""What fits on what is free now, with and without nodes that sleep; equal requests are looked up once a reading."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpsched.feasibility import amounts_used, units_by_node
from cpsched.model import BoolArray, IntArray, Request
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable


@dataclass(slots=True)
class FreeCapacity:
    """The nodes of a machine with what is free on them, int64[N, R]."""

    machine: SlurmNodeTable
    free: IntArray
    _found: dict[Request, bool] = field(default_factory=dict)

    def holds(self, request: Request) -> bool:
        """Whether all units of a request fit now."""
        if request not in self._found:
            self._found[request] = self._units(request) >= request.units
        return self._found[request]

    def _units(self, request: Request) -> int:
        return int(units_on(request, self.free, self.machine).sum())


def units_on(request: Request, free: IntArray, machine: SlurmNodeTable) -> IntArray:
    """How many units of a request the nodes hold where `free` (int64[N, R]) is free, int64[N]."""
    found = units_by_node(request, free)
    found[~machine.rows[request.node_set]] = 0
    if request.exclusive:
        found[(free != machine.capacity).any(axis=1)] = 0
    return found


@dataclass(slots=True)
class WakeableCapacity:
    """What is free on nodes that are up or sleep, int64[N, R], less what jobs are to get that Slurm wakes nodes for."""

    machine: SlurmNodeTable
    asleep: BoolArray
    free: IntArray

    def take(self, request: Request) -> bool:
        """Whether a request fits, sleeping nodes first; what it takes is no longer free then."""
        if not self.asleep.any():
            return False
        units = units_on(request, self.free, self.machine)
        left = request.units
        placement = []
        for node in sorted(units.nonzero()[0].tolist(), key=lambda node: not self.asleep[node]):
            if left:
                placement.append((node, min(left, int(units[node]))))
                left -= placement[-1][1]
        if left or not any(self.asleep[node] for node, _ in placement):
            return False
        for node, amounts in amounts_used(request, tuple(placement), self.machine.capacity).items():
            self.free[node] -= amounts
        return True
