"""Read PM100: jobs of CINECA's Marconi100, with their power.

The jobs are from May to October 2020 (Antici et al., SC-W 2023).

The file is `job_table.parquet` of https://zenodo.org/records/10127767. `documentation/job_features.md` of
github.com/francescoantici/PM100-data describes the columns; these are read:

| column | here | if missing or invalid |
|---|---|---|
| job_id | id | must appear once |
| submit_time, eligible_time | submit_s, the later one unless it is after the start | submit_time is required |
| start_time, end_time | start_s, and run_s between them | either missing: job dropped |
| time_limit, minutes | walltime_s | not a number (INFINITE): the run time |
| num_nodes_alloc | units, each on its own node | must be positive |
| num_cores_alloc | cores of each unit, rounded up | must be positive |
| num_gpus_alloc; mem_alloc, GiB | gpus, memory_mib of each unit | none |
| shared | `0` or `NO`: exclusive | not exclusive |
| user_id, partition, qos | user, partition and queue, qos | "" |
| nodes | its nodes | "" |
| node_power_consumption or power_consumption, W | power_w, the mean of the samples | unknown |

The unit of mem_alloc comes from an axis of the authors' plot, not from the description. A power sample is taken every
20 s. It is the sum over the job's nodes.
"""

from __future__ import annotations

from math import ceil, inf
from typing import ClassVar

import numpy as np

from cpsched.registration import Registration
from cpsched_sim.traces.parquet_trace_reader import ParquetTraceReader
from cpsched_sim.traces.slurm_times import NO_LIMIT_VALUES, is_plain_number, number_to_seconds
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest

_POWER_NAMES = ("node_power_consumption", "power_consumption")
_MIB_PER_GIB = 1024


class Pm100TraceReader(ParquetTraceReader):
    """PM100's job table. A replay requires a system file."""

    NEEDED: ClassVar = (
        "job_id", "submit_time", "start_time", "end_time", "time_limit", "num_nodes_alloc", "num_cores_alloc",
    )  # fmt: skip
    ALSO: ClassVar = (
        "eligible_time", "num_gpus_alloc", "mem_alloc", "shared", "user_id", "partition", "qos", "nodes", *_POWER_NAMES,
    )  # fmt: skip

    def _read_row(self) -> TraceRecord | None:
        times = self._read_times("submit_time", "start_time", "end_time")
        if times is None:
            return None
        submit_s, start_s, run_s = times
        id = self._read_whole_number("job_id")
        if id is None:
            raise self._make_error("job_id", "", "must not be empty")
        partition = self._read_text("partition")
        return TraceRecord(
            id,
            self._arrival_s(submit_s, start_s),
            run_s,
            self._time_limit_s() or self._walltime_without_limit_s(run_s),
            self._parse_request(partition),
            self._read_text("user_id"),
            queue=partition,
            start_s=self._plausible_start_s(submit_s, start_s),
            nodes=self._read_node_names("nodes"),
            qos=self._read_text("qos"),
            power_w=self._mean_power_w(),
        )

    def _arrival_s(self, submit_s: int, start_s: int) -> int:
        eligible_s = self._read_time_s("eligible_time")
        if eligible_s is None or not submit_s < eligible_s <= start_s:
            return submit_s
        self.tally.taken["arrival is eligible_time, which is later than submit_time"] += 1
        return eligible_s

    def _time_limit_s(self) -> int | None:
        limit = self.row.get("time_limit")
        if isinstance(limit, float) and 0 < limit < inf:
            return ceil(60 * limit)
        if not isinstance(limit, str):
            return 60 * self._read_count("time_limit")
        if is_plain_number(limit):
            return number_to_seconds(limit, 60)
        if limit.strip().lower() not in NO_LIMIT_VALUES:
            raise self._make_error("time_limit", limit, "must be minutes, or INFINITE")
        return None

    def _parse_request(self, partition: str) -> UnitsRequest:
        nodes, cores = self._read_count("num_nodes_alloc"), self._read_count("num_cores_alloc")
        if nodes < 1 or cores < 1:
            raise self._make_error("num_nodes_alloc, num_cores_alloc", (nodes, cores), "must be positive")
        memory_mib = _MIB_PER_GIB * self._read_count("mem_alloc")
        totals = {"cores": cores, "memory_mib": memory_mib, "gpus": self._read_count("num_gpus_alloc")}
        return self._spread_over_nodes(nodes, totals, self._read_text("shared").upper() in ("0", "NO"), partition)

    def _mean_power_w(self) -> int | None:
        samples = next((self.row[name] for name in _POWER_NAMES if self.row.get(name) is not None), None)
        if samples is None:
            return None
        if not isinstance(samples, np.ndarray):
            raise self._make_error("power", samples, "must be a list of numbers")
        finite = samples[np.isfinite(samples)]
        return round(float(finite.mean())) if len(finite) else None


REGISTRATIONS = (
    Registration(
        "pm100", "PM100: jobs of Marconi100 with their power, in Parquet.", "Antici et al., 2023", Pm100TraceReader
    ),
)
