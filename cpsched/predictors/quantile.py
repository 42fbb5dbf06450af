"""Predictor `quantile`: the share of their requests that jobs of the same user ran, at a quantile that is asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from cpsched.errors import require
from cpsched.listing import Listing
from cpsched.model import EndedJob, Job
from cpsched.predictors.base import Predictor

_OTHER_WALLTIME, _OTHER_UNITS, _OTHER_NAME = 0.2, 0.5, 0.4
"""What an ended job counts, of one, where it differs from the job to be predicted."""
_HALVED_AFTER = 10
"""An ended job counts half of one that ended so many jobs of the user later."""
_PRIOR = 3.0
"""What the site's own quantile counts beside a user's jobs."""
_SITE_REMEMBERS = 400
_LOOK_EVERY = 50
"""Ended jobs between two looks at the site's own quantile."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An ended job: the share of its walltime that it ran, and what makes others like it."""

    share: float
    walltime_s: int
    units: int
    name: str

    def likeness(self, job: Job) -> float:
        """What the ended job counts for another one, at most 1."""
        return (
            (1.0 if self.walltime_s == job.walltime_s else _OTHER_WALLTIME)
            * (1.0 if self.units == job.request.units else _OTHER_UNITS)
            * (1.0 if self.name == job.name else _OTHER_NAME)
        )


class QuantilePredictor(Predictor):
    """The `quantile` of the shares of their walltimes that the user's last `remember` jobs ran, times the walltime.

    Jobs like the one in question (walltime, units, name) and recent ones count for more; the site's own quantile
    stands beside them, and alone for users that are not known.
    """

    learns = True

    def __init__(self, quantile: float = 0.8, remember: int = 40) -> None:
        require(0 < quantile <= 1, "quantile", quantile, "must be above 0, at most 1")
        require(remember > 0, "remember", remember, "must be positive")
        self.quantile, self.remember = quantile, remember
        self._users: dict[str, deque[Ran]] = {}
        self._site: deque[float] = deque(maxlen=_SITE_REMEMBERS)
        self._site_share, self._ended = 1.0, 0

    def predict(self, job: Job) -> int:
        """See `Predictor.predict`."""
        shares = [(self._site_share, _PRIOR)]
        for age, ran in enumerate(self._users.get(job.user, ())):
            shares.append((ran.share, 0.5 ** (age / _HALVED_AFTER) * ran.likeness(job)))
        return max(1, round(job.walltime_s * at_quantile(shares, self.quantile)))

    def learn(self, ended: EndedJob) -> None:
        """Remember what share of its walltime the job ran."""
        job = ended.job
        share = min(1.0, ended.run_s / job.walltime_s)
        if job.user:
            known = self._users.setdefault(job.user, deque(maxlen=self.remember))
            known.appendleft(Ran(share, job.walltime_s, job.request.units, job.name))
        self._site.append(share)
        if self._ended % _LOOK_EVERY == 0:
            self._site_share = at_quantile(((each, 1.0) for each in self._site), self.quantile)
        self._ended += 1


def at_quantile(weighed: Iterable[tuple[float, float]], quantile: float) -> float:
    """The least value such that values up to it hold that share of all weight; pairs of value and weight."""
    pairs = sorted(weighed)
    wanted, held = quantile * sum(weight for _, weight in pairs), 0.0
    for value, weight in pairs:
        held += weight
        if held >= wanted:
            return value
    return pairs[-1][0]


LISTED = (
    Listing(
        "quantile",
        "A quantile of the shares of their walltimes that like jobs of the user ran.",
        "docs/lookahead.md",
        QuantilePredictor,
    ),
)
