"""Read PM100: jobs of CINECA's Marconi100, May to October 2020, with their power (Antici et al., SC-W 2023).

The file is `job_table.parquet` of https://zenodo.org/records/10127767. `documentation/job_features.md` of
github.com/francescoantici/PM100-data describes the columns; these are read:

| column | here | if missing or invalid |
|---|---|---|
| job_id | id | must appear once |
| submit_time, eligible_time | submit_s, the later if not after the start | submit_time is required |
| start_time, end_time | start_s, and run_s between them | either missing: job dropped |
| time_limit, minutes | walltime_s | not a number (INFINITE): the run time |
| num_nodes_alloc | units, on nodes of their own | must be positive |
| num_cores_alloc | cores of each unit, rounded up | must be positive |
| num_gpus_alloc; mem_alloc, GiB | gpus, memory_mib of each unit | none |
| shared | `0` or `NO`: exclusive | not exclusive |
| user_id, partition, qos | user, partition and queue, qos | "" |
| nodes | its nodes | "" |
| node_power_consumption or power_consumption, W | power_w, the mean of the samples | unknown |

The unit of mem_alloc is on the axis of the authors' plot, not in the description. A power sample is the sum of the
job's nodes, every 20 s.
"""

from __future__ import annotations

from math import ceil, inf
from typing import ClassVar

import numpy as np

from cpsched.registration import Registration
from cpsched_sim.traces.parquet_table import ParquetTraceReader
from cpsched_sim.traces.slurm_durations import NO_LIMIT, is_number, number_s
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest

_POWER = ("node_power_consumption", "power_consumption")
_MIB_PER_GIB = 1024


class Pm100TraceReader(ParquetTraceReader):
    """PM100's table of jobs. It has no machine: replay it on a system file."""

    NEEDED: ClassVar = (
        "job_id", "submit_time", "start_time", "end_time", "time_limit", "num_nodes_alloc", "num_cores_alloc",
    )  # fmt: skip
    ALSO: ClassVar = (
        "eligible_time", "num_gpus_alloc", "mem_alloc", "shared", "user_id", "partition", "qos", "nodes", *_POWER,
    )  # fmt: skip

    def _job(self) -> TraceRecord | None:
        times = self._times("submit_time", "start_time", "end_time")
        if times is None:
            return None
        submit_s, start_s, run_s = times
        id = self._whole("job_id")
        if id is None:
            raise self._wrong("job_id", "", "must not be empty")
        partition = self._text("partition")
        return TraceRecord(
            id,
            self._arrival_s(submit_s, start_s),
            run_s,
            self._limit_s() or self._unlimited_s(run_s),
            self._ask(partition),
            self._text("user_id"),
            queue=partition,
            start_s=self._recorded_s(submit_s, start_s),
            nodes=self._names("nodes"),
            qos=self._text("qos"),
            power_w=self._power_w(),
        )

    def _arrival_s(self, submit_s: int, start_s: int) -> int:
        eligible_s = self._time_s("eligible_time")
        if eligible_s is None or not submit_s < eligible_s <= start_s:
            return submit_s
        self.tally.taken["arrival is eligible_time, which is later than submit_time"] += 1
        return eligible_s

    def _limit_s(self) -> int | None:
        limit = self.row.get("time_limit")
        if isinstance(limit, float) and 0 < limit < inf:
            return ceil(60 * limit)
        if not isinstance(limit, str):
            return 60 * self._count("time_limit")
        if is_number(limit):
            return number_s(limit, 60)
        if limit.strip().lower() not in NO_LIMIT:
            raise self._wrong("time_limit", limit, "must be minutes, or INFINITE")
        return None

    def _ask(self, partition: str) -> UnitsRequest:
        nodes, cores = self._count("num_nodes_alloc"), self._count("num_cores_alloc")
        if nodes < 1 or cores < 1:
            raise self._wrong("num_nodes_alloc, num_cores_alloc", (nodes, cores), "must be positive")
        memory_mib = _MIB_PER_GIB * self._count("mem_alloc")
        totals = {"cores": cores, "memory_mib": memory_mib, "gpus": self._count("num_gpus_alloc")}
        return self._spread(nodes, totals, self._text("shared").upper() in ("0", "NO"), partition)

    def _power_w(self) -> int | None:
        samples = next((self.row[name] for name in _POWER if self.row.get(name) is not None), None)
        if samples is None:
            return None
        if not isinstance(samples, np.ndarray):
            raise self._wrong("power", samples, "must be a list of numbers")
        finite = samples[np.isfinite(samples)]
        return round(float(finite.mean())) if len(finite) else None


LISTED = (
    Registration(
        "pm100", "PM100, jobs of Marconi100 with their power: a Parquet table.", "Antici et al., 2023", Pm100TraceReader
    ),
)
