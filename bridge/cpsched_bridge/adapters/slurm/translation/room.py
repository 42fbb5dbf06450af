"""What fits on what is free now; equal requests are looked up once a reading."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpsched.fit import units_by_node
from cpsched.model import IntArray, Request
from cpsched_bridge.adapters.slurm.translation.machine import Machine


@dataclass(slots=True)
class Room:
    """The nodes of a machine with what is free on them, int64[N, R]."""

    machine: Machine
    free: IntArray
    _found: dict[Request, bool] = field(default_factory=dict)

    def holds(self, request: Request) -> bool:
        """Whether all units of a request fit now."""
        if request not in self._found:
            self._found[request] = self._units(request) >= request.units
        return self._found[request]

    def _units(self, request: Request) -> int:
        found = units_by_node(request, self.free)
        found[~self.machine.rows[request.node_set]] = 0
        if request.exclusive:
            found[(self.free != self.machine.capacity).any(axis=1)] = 0
        return int(found.sum())
