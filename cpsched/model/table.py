"""Jobs as columns of numbers, for the kernels that loop over thousands of them.

A job's *slot* is its position in those columns: `table.units[3]` belongs to the job `table.jobs[3]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from cpsched.compile.handles import Column, Handle, Matrix, fields_of, kind_of
from cpsched.compile.jit import kernel, owned
from cpsched.errors import require
from cpsched.model.bounds import MOST_S
from cpsched.model.cluster import Cluster, IntArray
from cpsched.model.job import Job, RunningJob


def fixed_view(array: IntArray) -> IntArray:
    """A view of `array` that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


class Places(Handle, grows=True):
    """Where jobs run: a pool of (node, units) entries that only grows. See `JobTable.place_at`."""

    used: int
    """Entries in use."""
    node: Column
    units: Column


class JobTable(Handle):
    """Jobs as columns by slot (int64[S]), for kernels. Whoever builds the table owns and may grow it."""

    jobs: Sequence[Job]
    submit_s: Column
    walltime_s: Column
    estimate_s: Column
    units: Column
    per_unit: Matrix
    """int64[S, R]"""
    sharing: Column
    """Bits `DISTINCT`, `EXCLUSIVE`."""
    node_set: Column
    priority: Column
    """The site's rank of a job within its tier, larger first."""
    tier: Column
    start_s: Column
    end_s: Column
    """Expected end of a running job."""
    place_at: Column
    """Where the entries of a running job begin in `places`."""
    place_count: Column
    """How many entries those are."""
    places: Places

    @property
    def place_node(self) -> IntArray:
        """int64[P]: the nodes of all placements, job after job."""
        return fixed_view(entries(self.places)[0])

    @property
    def place_units(self) -> IntArray:
        """int64[P]: the units on those nodes."""
        return fixed_view(entries(self.places)[1])

    @cached_property
    def _slot_of(self) -> dict[int, int]:
        """Slots by job id, of as many jobs as were there when somebody last asked."""
        return {}

    def slot_of(self, job_id: int) -> int:
        """The slot of a job; raises `InvalidValue` where the table does not hold it."""
        known = self._slot_of
        if len(known) < len(self.jobs):
            known.update((job.id, slot) for slot, job in enumerate(self.jobs))
        require(job_id in known, "job", job_id, "is not in this table")
        return known[job_id]

    def read_only(self) -> JobTable:
        """The same columns, as views that cannot be written to; kernels see the same as before."""
        return self.seen_as({name: fixed_view(getattr(self, name)) for name in COLUMNS})

    @classmethod
    def of(
        cls, cluster: Cluster, queue: Sequence[Job], running: Sequence[RunningJob], estimates: Mapping[int, int]
    ) -> JobTable:
        """A table of the queued jobs (slots 0..Q-1, in order), then the running ones.

        `estimates` are seconds by job id. Raises `InvalidValue` where a job has none, or one that is out of bounds.
        """
        jobs = [*queue, *(r.job for r in running)]
        queued, total, R = len(queue), len(jobs), len(cluster.resources)

        def column(values: Sequence[int]) -> IntArray:
            return np.fromiter(values, dtype=np.int64, count=len(values))

        sets = len(cluster.node_sets)
        for job in jobs:
            amounts, node_set = job.request.per_unit, job.request.node_set
            require(len(amounts) == R, f"job {job.id} per_unit", amounts, f"must have {R} amounts")
            require(node_set < sets, f"job {job.id} node_set", node_set, f"must be below {sets}")
            given = estimates.get(job.id)
            known = isinstance(given, int) and 0 < given < MOST_S
            require(known, f"job {job.id} estimate_s", given, "must be a whole number of seconds, 1 or more")
        counts = [len(r.placement) for r in running]
        entries = [entry for r in running for entry in r.placement]
        start_s, place_count = np.zeros(total, np.int64), np.zeros(total, np.int64)
        start_s[queued:] = [r.start_s for r in running]
        place_count[queued:] = counts
        estimate_s = column([estimates[job.id] for job in jobs])
        return cls(
            jobs=jobs,
            submit_s=column([job.submit_s for job in jobs]),
            walltime_s=column([job.walltime_s for job in jobs]),
            estimate_s=estimate_s,
            units=column([job.request.units for job in jobs]),
            per_unit=np.array([job.request.per_unit for job in jobs], dtype=np.int64).reshape(total, R),
            sharing=column([job.request.sharing for job in jobs]),
            node_set=column([job.request.node_set for job in jobs]),
            priority=column([job.priority for job in jobs]),
            tier=column([job.tier for job in jobs]),
            start_s=start_s,
            end_s=start_s + estimate_s,
            place_at=np.cumsum(place_count) - place_count,
            place_count=place_count,
            places=Places(
                used=len(entries),
                node=column([node for node, _ in entries]),
                units=column([units for _, units in entries]),
            ),
        )


COLUMNS = tuple(name for name, hint in fields_of(JobTable).items() if kind_of(hint))
"""The names of a table's columns."""


@kernel
def entries(places: Places) -> tuple[IntArray, IntArray]:
    """Nodes and units of all placements."""
    return owned(places, "node")[: places.used], owned(places, "units")[: places.used]
