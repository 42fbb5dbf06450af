"""Define the predictor `quantile`, which scales the walltime by a user's history."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from cpsched.errors import require
from cpsched.model import EndedJob, Job
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration
from cpsched.run_time_model import PRIOR_WEIGHT, REFRESH_INTERVAL_JOBS, RunTimeModel


class QuantilePredictor(Predictor):
    """A predictor that multiplies the walltime by a quantile of run time / walltime.

    The `quantile` (0 to 1) is taken over the user's last `remember` ended jobs. Recent jobs, and jobs with the same
    walltime, units and name, have larger weights. The site-wide quantile is a prior. It applies alone to unknown users.
    """

    def __init__(self, quantile: float = 0.8, remember: int = 40) -> None:
        require(0 < quantile <= 1, "quantile", quantile, "must be above 0 and at most 1")
        require(remember > 0, "remember", remember, "must be positive")
        self.quantile, self.remember = quantile, remember
        self._run_times, self._site_share = RunTimeModel(remember), 1.0

    @override
    def predict(self, job: Job) -> int:
        shares = [(self._site_share, PRIOR_WEIGHT), *self._run_times.weigh_user_history(job)]
        return max(1, round(job.walltime_s * weighted_quantile(shares, self.quantile)))

    @override
    def learn(self, ended: EndedJob) -> None:
        look = self._run_times.ended % REFRESH_INTERVAL_JOBS == 0
        self._run_times.learn(ended)
        if look:
            self._site_share = weighted_quantile(((each, 1.0) for each in self._run_times.site), self.quantile)


def weighted_quantile(weighed: Iterable[tuple[float, float]], quantile: float) -> float:
    """Return the smallest value whose cumulative weight reaches the `quantile`."""
    pairs = sorted(weighed)
    wanted, held = quantile * sum(weight for _, weight in pairs), 0.0
    for value, weight in pairs:
        held += weight
        if held >= wanted:
            return value
    return pairs[-1][0]


REGISTRATIONS = (
    Registration(
        "quantile",
        "The walltime times a quantile of run time / walltime over the user's similar jobs.",
        "docs/predictors.md",
        QuantilePredictor,
    ),
)
