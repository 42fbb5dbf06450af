"""The jobs of a trace: what a scheduler may see, and what really happened."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require
from cpsched.model import Job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Dispatchers see only `job`; the other fields are its real outcome.

    `recorded_start_s` is its start on the trace's machine, `soft_walltime_s` the run time expected by that site,
    `power_w` its mean power there; each is None if unknown.
    """

    job: Job
    run_s: int
    recorded_start_s: int | None = None
    soft_walltime_s: int | None = None
    power_w: int | None = None

    def __post_init__(self) -> None:
        require(self.run_s > 0, "run_s", self.run_s, "must be positive")
