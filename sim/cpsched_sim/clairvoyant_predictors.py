"""Predictors with access to the whole trace: `oracle` and `soft-walltime`.

`oracle` (-R) returns the real run time, and `soft-walltime` the soft walltime.
"""

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
    """A predictor or dispatcher that receives the real run times before a replay."""

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Store the real run time of each job."""
        ...


class OraclePredictor(Predictor, Clairvoyant):
    """Predict each job's real run time, capped at its walltime."""

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.observe_truth(trace)

    @override
    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        self._run_s = {item.job.id: item.run_s for item in trace}

    def predict(self, job: Job) -> int:
        """Return the real run time, capped at the walltime."""
        return min(self._run_s[job.id], job.walltime_s)

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write the real run times of the jobs in `slots` into the table."""
        jobs, run_s = table.jobs, self._run_s
        truth = np.fromiter((run_s[jobs[slot].id] for slot in slots.tolist()), np.int64, len(slots))
        table.estimate_s[slots] = np.minimum(truth, table.walltime_s[slots])


class SoftWalltimePredictor(Predictor):
    """Predict each job's soft walltime, capped at its walltime.

    Predict the walltime of a job without a soft walltime.
    """

    def __init__(self, trace: Iterable[TraceJob] = ()) -> None:
        self.observe_truth(trace)

    def observe_truth(self, trace: Iterable[TraceJob]) -> None:
        """Store the soft walltime of each job."""
        self._soft_s = {item.job.id: item.soft_walltime_s for item in trace if item.soft_walltime_s is not None}

    def predict(self, job: Job) -> int:
        """Return the soft walltime, capped at the walltime, or the walltime without one."""
        return min(self._soft_s.get(job.id, job.walltime_s), job.walltime_s)


SOFT_WALLTIME = Registration(
    "soft-walltime",
    "The soft walltime in the trace (SWF with 21 fields), or else the walltime. In simulation only.",
    "Klusáček and Chlumský, JSSPP 2018",
    SoftWalltimePredictor,
)
ORACLE = Registration(
    "oracle",
    "The real run time, capped at the walltime. In simulation only.",
    "-R in cp19, pcp20, mod17; clairvoyant in debs24",
    OraclePredictor,
)
PREDICTORS = registry.PREDICTORS.extended_with(ORACLE, SOFT_WALLTIME)
SIMULATION_REGISTRIES = PolicyRegistries(
    registry.DISPATCHERS.extended_with(*offline_dispatcher.REGISTRATIONS), PREDICTORS
)
"""Policy registries for simulations: the core's registries, plus predictors and dispatchers that use the whole trace.
"""
