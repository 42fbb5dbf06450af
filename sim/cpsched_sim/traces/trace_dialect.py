"""The user's options for accounting data: --columns, --zone and --arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cpsched.errors import require
from cpsched_sim.traces.slurm_times import parse_time_zone

Arrival = Literal["eligible", "submit"]


@dataclass(frozen=True, slots=True)
class TraceDialect:
    """The columns of a table, the zone of its times, and when its jobs arrive."""

    columns: str = ""
    zone: str = ""
    arrival: Arrival = "eligible"

    def __post_init__(self) -> None:
        require(self.arrival in ("eligible", "submit"), "--arrival", self.arrival, "must be eligible or submit")
        parse_time_zone(self.zone)


DEFAULT_DIALECT = TraceDialect()
