"""Idle processors while somebody waits, from a schedule that is over: *voluntary* and *forced*.

Voluntary: something that waits would have room, and is kept back by a plan, a reservation or a rule of the site.
Forced: nothing that waits has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpsched.kernels.idle import idle_times
from cpsched.kernels.state import machine_of
from cpsched.model import NEVER, Cluster, IntArray, Job, JobTable
from cpsched.model.table import Places


@dataclass(frozen=True, slots=True)
class Idle:
    """Shares of all processors over the time in which jobs wait; 0 where none ever waits."""

    voluntary: float
    forced: float
    contended_s: int
    """For how long jobs wait."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Where and when all jobs ran that started, int64[J] each, and the time that counts.

    The placement of job i is `place_node[a:a+k]`, `place_units[a:a+k]` with a = `place_at[i]`, k = `place_count[i]`.
    """

    cluster: Cluster
    jobs: Sequence[Job]
    start_s: IntArray
    end_s: IntArray
    place_at: IntArray
    place_count: IntArray
    place_node: IntArray
    place_units: IntArray
    from_s: int = 0
    to_s: int = NEVER

    def idle(self) -> Idle:
        """By the fit rule: node by node, resource by resource. Limits of the site and caps of power do not count."""
        jobs, cluster = self.jobs, self.cluster
        requests = [job.request for job in jobs]
        if cluster.counted and cluster.size > 1:  # nodes of one processor each
            held, submit_s = _column([request.units for request in requests]), _column([job.submit_s for job in jobs])
            return counted(submit_s, self.start_s, self.end_s, held, cluster.size, self.from_s, self.to_s)
        kinds = {request: kind for kind, request in enumerate(dict.fromkeys(requests))}
        alike = _column([kinds[request] for request in requests])
        table = JobTable.of(cluster, jobs)
        table.replace(
            start_s=_own(self.start_s),
            end_s=_own(self.end_s),
            place_at=_own(self.place_at),
            place_count=_own(self.place_count),
            places=Places(used=len(self.place_node), node=_own(self.place_node), units=_own(self.place_units)),
        )
        return _shares(cluster, table, alike, self.from_s, self.to_s)


def counted(
    submit_s: IntArray, start_s: IntArray, end_s: IntArray, processors: IntArray, machine: int, from_s: int = 0,
    to_s: int = NEVER,
) -> Idle:  # fmt: skip
    """Where nobody knows where jobs ran, or places do not matter: processors, merely counted."""
    cluster, n = Cluster.of([[machine]], ["processors"]), len(submit_s)
    nothing, held = np.zeros(n, np.int64), _own(processors)
    table = JobTable(
        jobs=(), submit_s=_own(submit_s), walltime_s=nothing, estimate_s=nothing, units=held,
        per_unit=np.ones((n, 1), np.int64), sharing=nothing, node_set=nothing, priority=nothing, tier=nothing,
        start_s=_own(start_s), end_s=_own(end_s), place_at=np.arange(n), place_count=np.ones(n, np.int64),
        places=Places(used=n, node=nothing, units=held),
    )  # fmt: skip
    _, alike = np.unique(processors, return_inverse=True)
    return _shares(cluster, table, alike.astype(np.int64), from_s, to_s)


def _shares(cluster: Cluster, table: JobTable, alike: IntArray, from_s: int, to_s: int) -> Idle:
    _, example = np.unique(alike, return_index=True)
    machine = machine_of(cluster, cluster.capacity.copy())
    by_time = np.argsort(table.submit_s), np.argsort(table.start_s), np.argsort(table.end_s)
    contended_s, voluntary, forced = idle_times(machine, table, (by_time, (alike, example)), (from_s, to_s)).tolist()
    whole = contended_s * machine.pool
    return Idle(voluntary / whole, forced / whole, contended_s) if whole else Idle(0.0, 0.0, contended_s)


def _own(values: IntArray) -> IntArray:
    """A copy that may be written to, as a table's columns are."""
    return np.array(values, np.int64, order="C")


def _column(values: Sequence[int]) -> IntArray:
    return np.fromiter(values, np.int64, len(values))
