"""Define jobs as columns of numbers, for kernels that loop over thousands of jobs.

A job's *slot* is its index in these columns: `table.units[3]` belongs to the job `table.jobs[3]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from cpsched.errors import InvalidValue, require
from cpsched.jit.decorators import kernel, owned
from cpsched.jit.shared_structs import Column, Matrix, SharedStruct, array_type_from_hint, kernel_fields
from cpsched.model.blocks import TOPOLOGY
from cpsched.model.cluster import Cluster, IntArray
from cpsched.model.job import Job, RunningJob


def read_only_view(array: IntArray) -> IntArray:
    """Return a read-only view of `array`."""
    view = array.view()
    view.setflags(write=False)
    return view


class PlacementPool(SharedStruct, grows=True):
    """An append-only pool of (node, units) entries of running jobs' placements."""

    used: int
    """Number of entries in use."""
    node: Column
    units: Column


class JobTable(SharedStruct):
    """Jobs as columns by slot, int64[S]. A table's builder owns and may extend it."""

    jobs: Sequence[Job]
    submit_s: Column
    walltime_s: Column
    estimate_s: Column
    units: Column
    per_unit: Matrix
    """Amounts per unit, int64[S, R]."""
    sharing: Column
    """Bits `DISTINCT` and `EXCLUSIVE`."""
    node_set: Column
    priority: Column
    """The site's ranking within a tier, larger first."""
    tier: Column
    start_s: Column
    end_s: Column
    """Expected end of a running job in seconds."""
    place_at: Column
    """Index of a running job's first entry in `places`."""
    place_count: Column
    """Number of a running job's entries in `places`."""
    places: PlacementPool

    @property
    def place_node(self) -> IntArray:
        """Nodes of all placements, job by job, int64[P]."""
        return read_only_view(placement_entries(self.places)[0])

    @property
    def place_units(self) -> IntArray:
        """Units on each node in `place_node`, int64[P]."""
        return read_only_view(placement_entries(self.places)[1])

    @cached_property
    def _slots_by_id(self) -> dict[int, int]:
        """Slots by job id, for the jobs in the table at the last call of `slots`."""
        return {}

    def slot_by_job_id(self) -> Mapping[int, int]:
        """Return every job's slot by job id."""
        known = self._slots_by_id
        if len(known) < len(self.jobs):
            known.update((job.id, slot) for slot, job in enumerate(self.jobs[len(known) :], len(known)))
        return known

    def slot_of(self, job_id: int) -> int:
        """Return a job's slot. Raise `InvalidValue` if the table does not contain the job."""
        known = self.slot_by_job_id()
        require(job_id in known, "job", job_id, "is not in this table")
        return known[job_id]

    def read_only(self) -> JobTable:
        """Return a table with read-only columns that share the original's data."""
        return self.view_with({name: read_only_view(getattr(self, name)) for name in COLUMNS})

    @classmethod
    def of(cls, cluster: Cluster, queue: Sequence[Job], running: Sequence[RunningJob] = ()) -> JobTable:
        """Return a table of queued and then running jobs, with walltimes as estimates.

        Queued jobs get slots 0 to Q-1. Raise `InvalidValue` for a request that does not match `cluster`.
        """
        jobs = [*queue, *(r.job for r in running)]
        queued, total = len(queue), len(jobs)

        def column(values: Sequence[int]) -> IntArray:
            return np.fromiter(values, dtype=np.int64, count=len(values))

        requests = [job.request for job in jobs]
        _require_matching_requests(jobs, cluster)
        walltime_s = column([job.walltime_s for job in jobs])
        counts = [len(r.placement) for r in running]
        entries = [entry for r in running for entry in r.placement]
        start_s, place_count = np.zeros(total, np.int64), np.zeros(total, np.int64)
        start_s[queued:] = [r.start_s for r in running]
        place_count[queued:] = counts
        return cls(
            jobs=jobs,
            submit_s=column([job.submit_s for job in jobs]),
            walltime_s=walltime_s,
            estimate_s=walltime_s.copy(),
            units=column([r.units for r in requests]),
            per_unit=np.array([r.per_unit for r in requests], np.int64).reshape(total, len(cluster.resources)),
            sharing=column([r.sharing for r in requests]),
            node_set=column([r.node_set for r in requests]),
            priority=column([job.priority for job in jobs]),
            tier=column([job.tier for job in jobs]),
            start_s=start_s,
            end_s=start_s + walltime_s,
            place_at=np.cumsum(place_count) - place_count,
            place_count=place_count,
            places=PlacementPool(
                used=len(entries),
                node=column([node for node, _ in entries]),
                units=column([units for _, units in entries]),
            ),
        )


def _require_matching_requests(jobs: Sequence[Job], cluster: Cluster) -> None:
    """Raise `InvalidValue` if a job's request does not match `cluster`."""
    amounts, sets = len(cluster.resources), len(cluster.node_sets)
    for job in jobs:
        request = job.request
        if len(request.per_unit) != amounts:
            raise InvalidValue(f"job {job.id} per_unit", request.per_unit, f"must have {amounts} entries")
        if request.node_set >= sets:
            raise InvalidValue(f"job {job.id} node_set", request.node_set, f"must be below {sets}")
        if request.units > 1 and not request.distinct and cluster.block_rules[request.node_set, TOPOLOGY] >= 0:
            raise InvalidValue(f"job {job.id} distinct", request.distinct, "must be true in a node set with blocks")


COLUMNS = tuple(name for name, hint in kernel_fields(JobTable).items() if array_type_from_hint(hint))
"""Names of a table's columns."""


@kernel
def placement_entries(places: PlacementPool) -> tuple[IntArray, IntArray]:
    """Return the nodes and units of all placements, int64[P] each."""
    return owned(places, "node")[: places.used], owned(places, "units")[: places.used]
