"""Define the predictor `walltime` (-W): the requested run time."""

from __future__ import annotations

from typing_extensions import override

from cpsched.model import IntArray, Job, JobTable
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration


class WalltimePredictor(Predictor):
    """A predictor that returns the walltime."""

    @override
    def predict(self, job: Job) -> int:
        return job.walltime_s

    @override
    def fill(self, table: JobTable, slots: IntArray) -> None:
        table.estimate_s[slots] = table.walltime_s[slots]


REGISTRATIONS = (Registration("walltime", "The requested run time.", "-W in cp19, pcp20, mod17", WalltimePredictor),)
