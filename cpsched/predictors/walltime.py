"""Predictor `walltime` (-W): a job runs as long as its user allows it to."""

from __future__ import annotations

from cpsched.model import IntArray, Job, JobTable
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration


class WalltimePredictor(Predictor):
    """The requested time, as it is."""

    def predict(self, job: Job) -> int:
        """The walltime."""
        return job.walltime_s

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Copy the walltimes."""
        table.estimate_s[slots] = table.walltime_s[slots]


LISTED = (
    Registration(
        "walltime", "A job runs as long as its user allows it to.", "-W in cp19, pcp20, mod17", WalltimePredictor
    ),
)
