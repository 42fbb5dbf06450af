"""Read the jobs of NLR's Kestrel (formerly NREL), August 2023 to December 2025, with their energy.

The file is one month of `esif.hpc.kestrel.job-anon.zip` (https://data.nlr.gov/submissions/302). Its `datacard.md`
describes the columns; these are read:

| column | here | if missing or invalid |
|---|---|---|
| id, as Slurm's JobID | id; task 3 of the array 7 is -70000003 | must appear once |
| submit_time | submit_s | required |
| start_time, end_time | start_s, and run_s between them | either missing: job dropped |
| wallclock_req | walltime_s | the run time |
| nodes_used | units, on nodes of their own | nodes_req |
| processors_used | cores of each unit, rounded up | processors_req |
| gpus_requested | gpus of each unit, rounded up | none |
| user_hash, account_hash, name_hash, qos | user, account, name, qos | "" |
| partition | partition and queue | "" |
| nodelist | its nodes | "" |
| consumed_energy_raw_joules | power_w: divided by run_s | 0: unknown |

memory_req is ignored: the card does not say whether it is per node or per job.
Intervals are Arrow's, a number of seconds, or text: `2 days 04:00:00`, `04:00:00`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from cpsched.errors import InvalidValue
from cpsched.registration import Registration
from cpsched_sim.input.input_limits import MAX_TIME_S
from cpsched_sim.traces.parquet_table import ParquetTraceReader
from cpsched_sim.traces.sacct import number_of
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest

_INTERVAL = re.compile(r"(?:(\d{1,9}) days?)?(?:,? ?\b(\d{1,9}):(\d\d):(\d\d)(?:\.\d+)?)?$", re.ASCII)
_MOST_W = 1 << 30
"""An upper bound of any job's power in W; Slurm's energy counters can overflow."""


class KestrelTraceReader(ParquetTraceReader):
    """Kestrel's job table. It does not describe the machine, so a replay needs a system file."""

    NEEDED: ClassVar = ("id", "submit_time", "start_time", "end_time", "wallclock_req", "nodes_req", "processors_req")
    ALSO: ClassVar = (
        "nodes_used", "processors_used", "gpus_requested", "user_hash", "account_hash", "name_hash", "partition", "qos",
        "nodelist", "consumed_energy_raw_joules",
    )  # fmt: skip

    def _job(self) -> TraceRecord | None:
        times = self._times("submit_time", "start_time", "end_time")
        if times is None:
            return None
        submit_s, start_s, run_s = times
        partition = self._text("partition")
        return TraceRecord(
            self._number(),
            submit_s,
            run_s,
            self._limit_s() or self._unlimited_s(run_s),
            self._ask(partition),
            self._text("user_hash"),
            self._text("name_hash"),
            partition,
            self._text("account_hash"),
            self._recorded_s(submit_s, start_s),
            self._names("nodelist"),
            self._text("qos"),
            power_w=self._power_w(run_s),
        )

    def _number(self) -> int:
        text = self._text("id")
        try:
            return number_of(text)
        except InvalidValue as error:
            raise self._wrong("id", text, error.rule) from error

    def _limit_s(self) -> int | None:
        value = self.row.get("wallclock_req")
        if not isinstance(value, str):
            return self._whole("wallclock_req")
        match = _INTERVAL.match(value.strip())
        if not match or not any(match.groups()):
            raise self._wrong("wallclock_req", value, "must be an interval like 04:00:00 or 2 days 04:00:00")
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def _ask(self, partition: str) -> UnitsRequest:
        nodes = self._count("nodes_used") or self._count("nodes_req")
        cores = self._count("processors_used") or self._count("processors_req")
        if nodes < 1 or cores < 1:
            raise self._wrong("nodes_req, processors_req", (nodes, cores), "must be positive")
        return self._spread(nodes, {"cores": cores, "gpus": self._count("gpus_requested")}, False, partition)

    def _power_w(self, run_s: int) -> int | None:
        joules = self._whole("consumed_energy_raw_joules") or 0
        power_w = round(joules / run_s) if 0 < joules <= _MOST_W * MAX_TIME_S else 0
        if joules and not 0 < power_w <= _MOST_W:
            self.tally.ignored["consumed_energy_raw_joules is outside the range that a job can draw"] += 1
        return power_w if 0 < power_w <= _MOST_W else None


LISTED = (
    Registration(
        "kestrel",
        "Jobs of NLR's Kestrel with their energy: a Parquet table.",
        "datacard of the data",
        KestrelTraceReader,
    ),
)
