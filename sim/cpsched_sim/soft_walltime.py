"""Predictor `soft-walltime`: what the site of a trace expected of each job, where the trace tells that."""

from __future__ import annotations

from collections.abc import Iterable

from cpsched.listing import Listing
from cpsched.model import Job
from cpsched.predictors.base import Predictor
from cpsched_sim.traces.job import TraceJob


class SoftWalltimePredictor(Predictor):
    """The soft walltime of each job of a trace, capped by its walltime, which stands in where no soft one is told."""

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.know(trace)

    def know(self, trace: Iterable[TraceJob]) -> None:
        """Record the soft walltime of each job."""
        self._soft_s = {item.job.id: item.soft_walltime_s for item in trace if item.soft_walltime_s is not None}

    def predict(self, job: Job) -> int:
        """The soft walltime, or the walltime where that is shorter or no soft one is told."""
        return min(self._soft_s.get(job.id, job.walltime_s), job.walltime_s)


LISTED = (
    Listing(
        "soft-walltime",
        "The soft walltime that a trace tells (SWF with 21 fields), else the walltime; in simulation only.",
        "Klusáček and Chlumský, JSSPP 2018",
        SoftWalltimePredictor,
    ),
)
