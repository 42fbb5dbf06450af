"""Model run times as shares of walltimes, from the user's similar ended jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cpsched.errors import require
from cpsched.model import EndedJob, Job

_WALLTIME_DIFFERS_WEIGHT, _UNITS_DIFFER_WEIGHT, _NAME_DIFFERS_WEIGHT = 0.2, 0.5, 0.4
"""Weight factors for an ended job whose walltime, units or name differ from those of the predicted job."""
_WEIGHT_HALF_LIFE_JOBS = 10
"""Number of the user's later ended jobs after which an ended job's weight has halved."""
PRIOR_WEIGHT = 3.0
"""Weight of the site's jobs relative to the user's own."""
_MAX_SITE_JOBS = 400
REFRESH_INTERVAL_JOBS = 50
"""Number of ended jobs between updates of the site's distribution."""
_SITE_QUANTILES = 20
"""Number of quantiles that represent the distribution of the site's shares."""

Weighed = Sequence[tuple[float, float]]
RunTimeClass = tuple[str, int, int, str]
"""(Share of the walltime, weight) pairs."""


@dataclass(frozen=True, slots=True)
class RunToWalltimeSample:
    """The share of its walltime that an ended job used, with properties to compare."""

    share: float
    walltime_s: int
    units: int
    name: str

    def similarity(self, job: Job) -> float:
        """Return this ended job's weight in a prediction for `job`, at most 1."""
        return (
            (1.0 if self.walltime_s == job.walltime_s else _WALLTIME_DIFFERS_WEIGHT)
            * (1.0 if self.units == job.request.units else _UNITS_DIFFER_WEIGHT)
            * (1.0 if self.name == job.name else _NAME_DIFFERS_WEIGHT)
        )


@dataclass(slots=True)
class RunTimeModel:
    """Run time / walltime of each user's last `remember` jobs and the site's last 400.

    Recent jobs, and jobs with the same walltime, units and name, have larger weights. The site's jobs serve as a prior.
    For unknown users, they are the only input.

    >>> from cpsched.model import Request
    >>> times = RunTimeModel()
    >>> job = Job(1, 0, 100, Request(1, (1,)), user="ada")
    >>> for _ in range(60):
    ...     times.learn(EndedJob(job, 0, 40))
    >>> times.run_times_at_quantiles_s(job, np.array([0.1, 0.9])).tolist()
    [40, 40]
    >>> times.run_times_at_quantiles_s(job, np.array([0.5]), elapsed_s=50).tolist()
    [100]
    """

    remember: int = 40
    site: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SITE_JOBS))
    """Shares of the site's last jobs, oldest first."""
    ended: int = 0
    """Number of ended jobs so far."""
    _users: dict[str, deque[RunToWalltimeSample]] = field(default_factory=dict)
    _atoms: tuple[tuple[float, float], ...] = ((1.0, PRIOR_WEIGHT),)
    _found: dict[str, dict[RunTimeClass, tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    """Distributions by user and run-time class."""

    def __post_init__(self) -> None:
        require(self.remember > 0, "remember", self.remember, "must be positive")

    def learn(self, ended: EndedJob) -> None:
        """Record an ended job's run time / walltime."""
        job = ended.job
        share = min(1.0, ended.run_s / job.walltime_s)
        if job.user:
            known = self._users.setdefault(job.user, deque(maxlen=self.remember))
            known.appendleft(RunToWalltimeSample(share, job.walltime_s, job.request.units, job.name))
        self.site.append(share)
        if self.ended % REFRESH_INTERVAL_JOBS == 0:
            at = (np.arange(_SITE_QUANTILES) + 0.5) / _SITE_QUANTILES
            shares = np.quantile(np.array(self.site), at, method="inverted_cdf")
            self._atoms = tuple((float(share), PRIOR_WEIGHT / _SITE_QUANTILES) for share in shares)
            self._found.clear()
        self.ended += 1
        self._found.pop(job.user, None)

    def weigh_user_history(self, job: Job) -> Weighed:
        """Return (share, weight) of the user's ended jobs, newest first, to predict `job`."""
        return [
            (ran.share, 0.5 ** (age / _WEIGHT_HALF_LIFE_JOBS) * ran.similarity(job))
            for age, ran in enumerate(self._users.get(job.user, ()))
        ]

    def distribution(self, job: Job) -> tuple[np.ndarray, np.ndarray]:
        """Return shares of the walltime of `job`, ascending, and their probabilities.

        Both are float64[A].
        """
        found, key = self._found.setdefault(job.user, {}), run_time_class(job)
        if key not in found:
            weighed = np.array([*self._atoms, *self.weigh_user_history(job)])
            weighed = weighed[np.argsort(weighed[:, 0], kind="stable")]
            found[key] = (weighed[:, 0], weighed[:, 1] / weighed[:, 1].sum())
        return found[key]

    def run_times_at_quantiles_s(self, job: Job, at: np.ndarray, elapsed_s: int | np.ndarray = 0) -> np.ndarray:
        """Return run times of `job` in seconds, int64, at the quantiles `at` (0 to 1).

        The job has already run for `elapsed_s`, which all results exceed. A job that has run longer than all similar
        jobs is expected to run to its walltime. A job that has exceeded its walltime is expected to run for one more
        second. For jobs of one `run_time_class`, `elapsed_s` and `at` may have one row per job.
        """
        shares, weights = self.distribution(job)
        run_s = np.maximum(1, np.rint(shares * job.walltime_s)).astype(np.int64)
        held = np.concatenate(((0.0,), np.cumsum(weights)))
        first = np.searchsorted(run_s, elapsed_s, side="right")
        index = np.searchsorted(held[1:], held[first] + np.asarray(at) * (held[-1] - held[first]), side="left")
        found: np.ndarray = run_s[np.minimum(np.maximum(index, first), len(run_s) - 1)]
        return np.where(first < len(run_s), found, np.maximum(job.walltime_s, np.asarray(elapsed_s) + 1))


def run_time_class(job: Job) -> RunTimeClass:
    """Return what the distribution of a job's run time depends on: user, walltime, units and name."""
    return job.user, job.walltime_s, job.request.units, job.name


USER_DECAY = 0.5 ** (1 / _WEIGHT_HALF_LIFE_JOBS)
"""Factor by which the weight of an ended job falls with each later ended job of the same user."""
_SITE_DECAY = 1 - 1 / _MAX_SITE_JOBS
MAX_USERS = 5000
"""Maximum number of users. Beyond it, the user whose last job ended longest ago is dropped."""


@dataclass(slots=True)
class MeanRunToWalltimeRatios:
    """Mean run time / walltime by user: `RunTimeModel` with less state.

    The user's recent jobs have larger weights. The site's mean serves as a prior, as in `RunTimeModel`, but walltime,
    units and name are not compared. Before any job has ended, the share is 1.

    >>> from cpsched.model import Request
    >>> shares, job = MeanRunToWalltimeRatios(), Job(1, 0, 100, Request(1, (1,)), user="ada")
    >>> for _ in range(100):
    ...     shares.learn(EndedJob(job, 0, 25))
    >>> round(shares.mean_run_to_walltime_ratio("ada"), 6), round(shares.mean_run_to_walltime_ratio("bob"), 6)
    (0.25, 0.25)
    """

    site: tuple[float, float] = (0.0, 0.0)
    """Total weight and weighted sum of shares, over all ended jobs."""
    users: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Total weight and weighted sum of shares, by user. The user whose last job ended longest ago comes first."""

    def learn(self, ended: EndedJob) -> None:
        """Record run time / walltime of an ended job."""
        share, user = min(1.0, ended.run_s / ended.job.walltime_s), ended.job.user
        count, total = self.site
        self.site = count * _SITE_DECAY + 1, total * _SITE_DECAY + share
        if user:
            count, total = self.users.pop(user, (0.0, 0.0))
            self.users[user] = count * USER_DECAY + 1, total * USER_DECAY + share
            if len(self.users) > MAX_USERS:
                del self.users[next(iter(self.users))]

    def mean_run_to_walltime_ratio(self, user: str) -> float:
        """Return the expected run time / walltime of a job of `user`: above 0, at most 1."""
        (count, total), (of_all, total_of_all) = self.users.get(user, (0.0, 0.0)), self.site
        mean = total_of_all / of_all if of_all else 1.0
        return (total + PRIOR_WEIGHT * mean) / (count + PRIOR_WEIGHT)

    def memory(self) -> dict[str, object]:
        """Return the state as JSON.

        Each user is one string, because the journal stores only changed strings.
        """
        users = [f"{count!r} {total!r} {user}" for user, (count, total) in self.users.items()]
        return {"site": list(self.site), "users": users}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Replace the state with an earlier `memory`."""
        count, total = memory["site"]
        self.site = count, total
        self.users = {}
        for words in memory["users"]:
            of_user, sum_of_user, user = words.split(" ", 2)
            self.users[user] = float(of_user), float(sum_of_user)
