"""Predictors that use facts of a whole trace: `oracle` (-R), the real run time, and `soft-walltime`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from typing_extensions import override

from cpsched import registry
from cpsched.model import IntArray, Job, JobTable
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration
from cpsched.registry import PolicyRegistries
from cpsched_sim import offline_dispatcher
from cpsched_sim.traces.trace_job import TraceJob


@runtime_checkable
class Clairvoyant(Protocol):
    """A predictor, or a dispatcher, that is told the truth before a replay begins, which no cluster could do."""

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Take note of how long each job will really run."""
        ...


class OraclePredictor(Predictor, Clairvoyant):
    """The real run time of each job of a trace, capped by its walltime."""

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.observe_truth(trace)

    @override
    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        self._run_s = {item.job.id: item.run_s for item in trace}

    def predict(self, job: Job) -> int:
        """The real run time, capped by the walltime."""
        return min(self._run_s[job.id], job.walltime_s)

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write the real run times, job by job."""
        jobs, run_s = table.jobs, self._run_s
        truth = np.fromiter((run_s[jobs[slot].id] for slot in slots.tolist()), np.int64, len(slots))
        table.estimate_s[slots] = np.minimum(truth, table.walltime_s[slots])


class SoftWalltimePredictor(Predictor):
    """The soft walltime of each job of a trace, capped by its walltime, which stands in where no soft one is told."""

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.observe_truth(trace)

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Record the soft walltime of each job."""
        self._soft_s = {item.job.id: item.soft_walltime_s for item in trace if item.soft_walltime_s is not None}

    def predict(self, job: Job) -> int:
        """The soft walltime, or the walltime where that is shorter or no soft one is told."""
        return min(self._soft_s.get(job.id, job.walltime_s), job.walltime_s)


SOFT_WALLTIME = Registration(
    "soft-walltime",
    "The soft walltime that a trace tells (SWF with 21 fields), else the walltime; in simulation only.",
    "Klusáček and Chlumský, JSSPP 2018",
    SoftWalltimePredictor,
)
ORACLE = Registration(
    "oracle",
    "The real run time, which only a simulation can know; capped by the walltime.",
    "-R in cp19, pcp20, mod17; clairvoyant in debs24",
    OraclePredictor,
)
PREDICTORS = registry.PREDICTORS.with_(ORACLE, SOFT_WALLTIME)
SIMULATION_REGISTRIES = PolicyRegistries(registry.DISPATCHERS.with_(*offline_dispatcher.LISTED), PREDICTORS)
"""What a simulation looks names up in: the core's, and the predictors and dispatchers that know a whole trace."""
