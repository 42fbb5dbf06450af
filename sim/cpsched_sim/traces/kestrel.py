"""Read the jobs of NLR's Kestrel (formerly NREL), with their energy.

The jobs are from August 2023 to December 2025.

The file is one month of `esif.hpc.kestrel.job-anon.zip` (https://data.nlr.gov/submissions/302). Its `datacard.md`
describes the columns; these are read:

| column | here | if missing or invalid |
|---|---|---|
| id, as Slurm's JobID | id; task 3 of the array 7 is -70000003 | must appear once |
| submit_time | submit_s | required |
| start_time, end_time | start_s, and run_s between them | either missing: job dropped |
| wallclock_req | walltime_s | the run time |
| nodes_used | units, each on its own node | nodes_req |
| processors_used | cores of each unit, rounded up | processors_req |
| gpus_requested | gpus of each unit, rounded up | none |
| user_hash, account_hash, name_hash, qos | user, account, name, qos | "" |
| partition | partition and queue | "" |
| nodelist | its nodes | "" |
| consumed_energy_raw_joules | power_w: divided by run_s | 0: unknown |

memory_req is ignored, because the datacard does not say whether it is per node or per job. Intervals are Arrow
durations, a number of seconds, or text: `2 days 04:00:00`, `04:00:00`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from cpsched.errors import InvalidValue
from cpsched.registration import Registration
from cpsched_sim.input.input_limits import MAX_TIME_S
from cpsched_sim.traces.parquet_trace_reader import ParquetTraceReader
from cpsched_sim.traces.sacct_reader import parse_slurm_job_number
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest

_INTERVAL = re.compile(r"(?:(\d{1,9}) days?)?(?:,? ?\b(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?)?$", re.ASCII)
_MAX_POWER_W = 1 << 30
"""Upper bound on a job's power in W. Slurm's energy counters can overflow."""


class KestrelTraceReader(ParquetTraceReader):
    """Kestrel's job table. A replay requires a system file."""

    NEEDED: ClassVar = ("id", "submit_time", "start_time", "end_time", "wallclock_req", "nodes_req", "processors_req")
    ALSO: ClassVar = (
        "nodes_used", "processors_used", "gpus_requested", "user_hash", "account_hash", "name_hash", "partition", "qos",
        "nodelist", "consumed_energy_raw_joules",
    )  # fmt: skip

    def _read_row(self) -> TraceRecord | None:
        times = self._read_times("submit_time", "start_time", "end_time")
        if times is None:
            return None
        submit_s, start_s, run_s = times
        partition = self._read_text("partition")
        return TraceRecord(
            self._parse_job_number(),
            submit_s,
            run_s,
            self._time_limit_s() or self._walltime_without_limit_s(run_s),
            self._parse_request(partition),
            self._read_text("user_hash"),
            self._read_text("name_hash"),
            partition,
            self._read_text("account_hash"),
            self._plausible_start_s(submit_s, start_s),
            self._read_node_names("nodelist"),
            self._read_text("qos"),
            power_w=self._mean_power_w(run_s),
        )

    def _parse_job_number(self) -> int:
        text = self._read_text("id")
        try:
            return parse_slurm_job_number(text)
        except InvalidValue as error:
            raise self._make_error("id", text, error.rule) from error

    def _time_limit_s(self) -> int | None:
        value = self.row.get("wallclock_req")
        if not isinstance(value, str):
            return self._read_whole_number("wallclock_req")
        match = _INTERVAL.match(value.strip())
        if not match or not any(match.groups()):
            raise self._make_error("wallclock_req", value, "must be an interval like 04:00:00 or 2 days 04:00:00")
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def _parse_request(self, partition: str) -> UnitsRequest:
        nodes = self._read_count("nodes_used") or self._read_count("nodes_req")
        cores = self._read_count("processors_used") or self._read_count("processors_req")
        if nodes < 1 or cores < 1:
            raise self._make_error("nodes_req, processors_req", (nodes, cores), "must be positive")
        return self._spread_over_nodes(
            nodes, {"cores": cores, "gpus": self._read_count("gpus_requested")}, False, partition
        )

    def _mean_power_w(self, run_s: int) -> int | None:
        joules = self._read_whole_number("consumed_energy_raw_joules") or 0
        power_w = round(joules / run_s) if 0 < joules <= _MAX_POWER_W * MAX_TIME_S else 0
        if joules and not 0 < power_w <= _MAX_POWER_W:
            self.tally.ignored["consumed_energy_raw_joules is outside the range that a job can draw"] += 1
        return power_w if 0 < power_w <= _MAX_POWER_W else None


REGISTRATIONS = (
    Registration(
        "kestrel",
        "Jobs of NLR's Kestrel with their energy, in Parquet.",
        "the data's datacard",
        KestrelTraceReader,
    ),
)
