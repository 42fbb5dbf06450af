"""Compute which requests fit on the free nodes, with and without sleeping nodes.

Equal requests are computed once per reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cpsched.feasibility import amounts_used, units_by_node
from cpsched.model import BoolArray, IntArray, Request
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable


@dataclass(slots=True)
class FreeNodeCapacity:
    """The nodes of a machine and their free amounts, int64[N, R]."""

    machine: SlurmNodeTable
    free: IntArray
    _found: dict[Request, bool] = field(default_factory=dict)

    def fits(self, request: Request) -> bool:
        """Return whether all units of a request fit now."""
        if request not in self._found:
            self._found[request] = self._units(request) >= request.units
        return self._found[request]

    def _units(self, request: Request) -> int:
        return int(count_units_by_node(request, self.free, self.machine).sum())


def count_units_by_node(request: Request, free: IntArray, machine: SlurmNodeTable) -> IntArray:
    """Return how many units of a request fit on each node, int64[N].

    `free` is int64[N, R].
    """
    found = units_by_node(request, free)
    found[~machine.rows[request.node_set]] = 0
    if request.exclusive:
        found[(free != machine.capacity).any(axis=1)] = 0
    return found


@dataclass(slots=True)
class WakeableNodeCapacity:
    """The free amounts on nodes that are up or asleep, int64[N, R].

    The requests of jobs for which Slurm is waking nodes are subtracted.
    """

    machine: SlurmNodeTable
    asleep: BoolArray
    free: IntArray

    def try_take(self, request: Request) -> bool:
        """Return whether a request fits, using sleeping nodes first; if so, subtract it."""
        if not self.asleep.any():
            return False
        units = count_units_by_node(request, self.free, self.machine)
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
