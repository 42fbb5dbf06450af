"""Define the predictor `last-two` (-L2; Tsafrir et al. 2007; pcp20)."""

from __future__ import annotations

from collections import deque

from typing_extensions import override

from cpsched.model import EndedJob, Job
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration


class LastTwoPredictor(Predictor):
    """A predictor that returns the mean run time of the user's last two ended jobs.

    The prediction is capped at the walltime. If only one job has ended, it is that job's run time. If no job has ended
    or the user is unknown, it is the walltime.
    """

    def __init__(self) -> None:
        self._last: dict[str, deque[int]] = {}

    @override
    def predict(self, job: Job) -> int:
        last = self._last.get(job.user)
        if not last:
            return job.walltime_s
        return max(1, min(sum(last) // len(last), job.walltime_s))

    @override
    def learn(self, ended: EndedJob) -> None:
        if ended.job.user:
            self._last.setdefault(ended.job.user, deque(maxlen=2)).append(ended.run_s)


REGISTRATIONS = (
    Registration(
        "last-two",
        "Mean run time of the user's last two ended jobs, capped at the walltime.",
        "-L2: Tsafrir et al. 2007; pcp20 section 4",
        LastTwoPredictor,
    ),
)
