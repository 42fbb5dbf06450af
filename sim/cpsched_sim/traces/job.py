"""What a trace holds: jobs as a scheduler may know them, and, beside each, how long it really ran."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.errors import require
from cpsched.model import Job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. `run_s` is the truth that no dispatcher may see: it lives in `sim` types only."""

    job: Job
    run_s: int

    def __post_init__(self) -> None:
        require(self.run_s > 0, "run_s", self.run_s, "must be positive")
