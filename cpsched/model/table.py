"""Jobs as columns of numbers, for the kernels that loop over thousands of them.

A job's *slot* is its position in those columns: `table.units[3]` belongs to the job `table.jobs[3]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched.bounds import MOST_S
from cpsched.errors import require
from cpsched.model.cluster import Cluster, IntArray
from cpsched.model.job import Job, RunningJob
from cpsched.model.numbers import (
    END,
    ESTIMATE,
    NODE_SET,
    PLACE_AT,
    PLACE_COUNT,
    ROWS,
    SHARING,
    START,
    SUBMIT,
    UNITS,
    WALLTIME,
)


def fixed_view(array: IntArray) -> IntArray:
    """A view of `array` that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


@dataclass(slots=True, eq=False)
class JobTable:
    """Jobs as columns by slot (int64), for kernels. Whoever builds the table owns and may grow it.

    The columns are the rows of one matrix, so that a kernel is handed one array.

    - `end_s` is the expected end of a running job.
    - A running job's placement is `place_node[a:a+k]` and `place_units[a:a+k]`, where a = `place_at[slot]` and
      k = `place_count[slot]`.
    """

    jobs: Sequence[Job]
    rows: IntArray
    """int64[ROWS, S]"""
    per_unit: IntArray
    """int64[S, R]"""
    place_node: IntArray
    """int64[P], an append-only pool"""
    place_units: IntArray
    submit_s: IntArray = field(init=False)
    walltime_s: IntArray = field(init=False)
    estimate_s: IntArray = field(init=False)
    units: IntArray = field(init=False)
    sharing: IntArray = field(init=False)
    """Bits `DISTINCT`, `EXCLUSIVE`."""
    node_set: IntArray = field(init=False)
    start_s: IntArray = field(init=False)
    end_s: IntArray = field(init=False)
    place_at: IntArray = field(init=False)
    place_count: IntArray = field(init=False)
    _slot_of: dict[int, int] = field(init=False, default_factory=dict, repr=False)
    """Slots by job id, of as many jobs as were there when somebody last asked."""

    def __post_init__(self) -> None:
        self.name_rows()

    def name_rows(self) -> None:
        """Let the named columns be views of `rows`; to be called when that was replaced."""
        rows = self.rows
        self.submit_s, self.walltime_s, self.estimate_s = rows[SUBMIT], rows[WALLTIME], rows[ESTIMATE]
        self.units, self.sharing, self.node_set = rows[UNITS], rows[SHARING], rows[NODE_SET]
        self.start_s, self.end_s = rows[START], rows[END]
        self.place_at, self.place_count = rows[PLACE_AT], rows[PLACE_COUNT]

    def slot_of(self, job_id: int) -> int:
        """The slot of a job; raises `InvalidValue` where the table does not hold it."""
        known = self._slot_of
        if len(known) < len(self.jobs):
            known.update((job.id, slot) for slot, job in enumerate(self.jobs))
        require(job_id in known, "job", job_id, "is not in this table")
        return known[job_id]

    def read_only(self) -> JobTable:
        """The same columns, as views that cannot be written to."""
        return JobTable(self.jobs, *map(fixed_view, (self.rows, self.per_unit, self.place_node, self.place_units)))

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
            estimate_s = estimates.get(job.id)
            known = isinstance(estimate_s, int) and 0 < estimate_s < MOST_S
            require(known, f"job {job.id} estimate_s", estimate_s, "must be a whole number of seconds, 1 or more")
        counts = [len(r.placement) for r in running]
        entries = [entry for r in running for entry in r.placement]
        rows = np.zeros((ROWS, total), np.int64)
        rows[SUBMIT] = column([job.submit_s for job in jobs])
        rows[WALLTIME] = column([job.walltime_s for job in jobs])
        rows[ESTIMATE] = column([estimates[job.id] for job in jobs])
        rows[UNITS] = column([job.request.units for job in jobs])
        rows[SHARING] = column([job.request.sharing for job in jobs])
        rows[NODE_SET] = column([job.request.node_set for job in jobs])
        rows[START, queued:] = column([r.start_s for r in running])
        rows[END] = rows[START] + rows[ESTIMATE]
        rows[PLACE_COUNT, queued:] = counts
        rows[PLACE_AT, queued:] = np.cumsum([0, *counts])[:-1]
        return cls(
            jobs=jobs,
            rows=rows,
            per_unit=np.array([job.request.per_unit for job in jobs], dtype=np.int64).reshape(total, R),
            place_node=column([node for node, _ in entries]),
            place_units=column([units for _, units in entries]),
        )
