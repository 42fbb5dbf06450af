"""Compute which requests fit on the free nodes.

Results are cached for a reading, because many jobs have equal requests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import NEVER, IntArray, Request, RunningJob
from cpsched_bridge.adapters.slurm.translation.slurm_nodes import SlurmNodeTable


@dataclass(slots=True)
class FreeNodeCapacity:
    """A machine's free amounts, int64[N, R], and the jobs that will release more."""

    machine: SlurmNodeTable
    free: IntArray
    running: Sequence[RunningJob] = ()
    now_s: int = 0
    _found: dict[Request, bool] = field(default_factory=dict)
    _earliest_s: dict[Request, int] = field(default_factory=dict)
    _releases: _ReleaseSchedule | None = None

    def fits(self, request: Request) -> bool:
        """Return whether all units of a request fit now."""
        if request not in self._found:
            self._found[request] = self._can_hold(request, self.free)
        return self._found[request]

    def find_earliest_fit_s(self, request: Request) -> int:
        """Return when all units of a request fit if no other job starts, or `NEVER`."""
        if self.fits(request):
            return self.now_s
        if request not in self._earliest_s:
            self._earliest_s[request] = self._compute_earliest_fit_s(request)
        return self._earliest_s[request]

    def _compute_earliest_fit_s(self, request: Request) -> int:
        if self._releases is None:
            self._releases = _ReleaseSchedule.of(self.running, self.machine.capacity, self.now_s)
        ends = self._releases
        at = bisect_left(
            range(len(ends.end_s)),
            True,
            key=lambda at: self._can_hold(request, ends.compute_free_after_releases(self.free, at + 1)),
        )
        return ends.end_s[at] if at < len(ends.end_s) else NEVER

    def _can_hold(self, request: Request, free: IntArray) -> bool:
        return int(count_units_by_node(request, free, self.machine).sum()) >= request.units


@dataclass(frozen=True, slots=True, eq=False)
class _ReleaseSchedule:
    """The amounts that running jobs release, ordered by the jobs' end times.

    The first `k` jobs to end release the first `offsets[k]` entries of `nodes` and `amounts`.
    """

    end_s: list[int]
    offsets: list[int]
    nodes: list[int]
    amounts: IntArray

    @classmethod
    def of(cls, running: Sequence[RunningJob], capacity: IntArray, now_s: int) -> _ReleaseSchedule:
        end_s, offsets, nodes = [], [0], list[int]()
        amounts: list[IntArray] = []
        for job in sorted(running, key=lambda job: job.start_s + job.job.walltime_s):
            used = amounts_by_node(job.job.request, job.placement, capacity)
            nodes += used
            amounts += used.values()
            offsets.append(len(nodes))
            end_s.append(max(now_s + 1, job.start_s + job.job.walltime_s))
        return cls(end_s, offsets, nodes, np.array(amounts, np.int64).reshape(len(nodes), capacity.shape[1]))

    def compute_free_after_releases(self, free: IntArray, jobs: int) -> IntArray:
        """Return the free amounts after the first `jobs` jobs have ended, int64[N, R]."""
        then, entries = free.copy(), self.offsets[jobs]
        np.add.at(then, self.nodes[:entries], self.amounts[:entries])
        return then


def count_units_by_node(request: Request, free: IntArray, machine: SlurmNodeTable) -> IntArray:
    """Return how many units of a request fit on each node, int64[N].

    `free` is int64[N, R].
    """
    found = units_fitting_by_row(request, free)
    found[~machine.rows[request.node_set]] = 0
    if request.exclusive:
        found[(free != machine.capacity).any(axis=1)] = 0
    return found
