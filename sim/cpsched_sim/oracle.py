"""Predictor `oracle` (-R): the real run time, which only a simulation can know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from typing_extensions import override

from cpsched import catalogue
from cpsched.catalogue import Catalogues
from cpsched.listing import Listing
from cpsched.model import IntArray, Job, JobTable
from cpsched.predictors.base import Predictor
from cpsched_sim import offline, soft_walltime
from cpsched_sim.traces.job import TraceJob


@runtime_checkable
class Clairvoyant(Protocol):
    """A predictor, or a dispatcher, that is told the truth before a replay begins, which no cluster could do."""

    def know(self, trace: Iterable[TraceJob]) -> None:
        """Take note of how long each job will really run."""
        ...


class OraclePredictor(Predictor, Clairvoyant):
    """The real run time of each job of a trace, capped by its walltime."""

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.know(trace)

    @override
    def know(self, trace: Iterable[TraceJob]) -> None:
        self._run_s = {item.job.id: item.run_s for item in trace}

    def predict(self, job: Job) -> int:
        """The real run time, capped by the walltime."""
        return min(self._run_s[job.id], job.walltime_s)

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write the real run times, job by job."""
        jobs, run_s = table.jobs, self._run_s
        truth = np.fromiter((run_s[jobs[slot].id] for slot in slots.tolist()), np.int64, len(slots))
        table.estimate_s[slots] = np.minimum(truth, table.walltime_s[slots])


ORACLE = Listing(
    "oracle",
    "The real run time, which only a simulation can know; capped by the walltime.",
    "-R in cp19, pcp20, mod17; clairvoyant in debs24",
    OraclePredictor,
)
PREDICTORS = catalogue.PREDICTORS.with_(ORACLE, *soft_walltime.LISTED)
SIMULATED = Catalogues(catalogue.DISPATCHERS.with_(*offline.LISTED), PREDICTORS)
"""What a simulation looks names up in: the core's, and the predictors and dispatchers that know a whole trace."""
