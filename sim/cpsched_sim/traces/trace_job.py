"""The jobs of a trace: what a scheduler may see, and what actually happened."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require
from cpsched.model import Job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Dispatchers see only `job`, not what actually happened.

    `recorded_start_s` is the start on the original machine, `soft_walltime_s` the run time that the site expected, and
    `power_w` the mean power on that machine. Each is None if unknown.
    """

    job: Job
    run_s: int
    recorded_start_s: int | None = None
    soft_walltime_s: int | None = None
    power_w: int | None = None

    def __post_init__(self) -> None:
        require(self.run_s > 0, "run_s", self.run_s, "must be positive")
