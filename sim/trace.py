"""A trace: jobs with the run times that no scheduler may know, ready to be replayed on one system."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched.model import Job


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job and its real run time in seconds, at least 1. The truth lives here and never reaches a dispatcher."""

    job: Job
    run_s: int
