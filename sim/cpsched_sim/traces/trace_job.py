"""What a trace holds: jobs as a scheduler may know them, and, beside each, what really became of it."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require
from cpsched.model import Job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. What stands beside `job` is the truth that no dispatcher may see: it is in `sim` types only.

    `recorded_start_s` is when the job started on the machine that the trace comes from, `soft_walltime_s` what that
    site expected it to take, `power_w` what it drew there in the mean; each is None where it is not told.
    """

    job: Job
    run_s: int
    recorded_start_s: int | None = None
    soft_walltime_s: int | None = None
    power_w: int | None = None

    def __post_init__(self) -> None:
        require(self.run_s > 0, "run_s", self.run_s, "must be positive")
