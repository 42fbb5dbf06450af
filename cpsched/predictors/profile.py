"""Define the predictor `profile` (-D) of mod17 section 3, used online as in cp19."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from typing_extensions import override

from cpsched.errors import require
from cpsched.model import EndedJob, Job
from cpsched.predictors.base import Predictor
from cpsched.registration import Registration

_DIGITS = "0123456789"


class ProfilePredictor(Predictor):
    """A predictor that returns the run time of the user's last job to match a rule.

    1. name, queue, walltime, request;  2. the same with the name's prefix (the name without trailing digits);
    3. name, queue, walltime;           4. prefix, queue, walltime;           5. name;           6. prefix.

    The first matching rule applies. `remember` limits the number of profiles per user and rule. The least recently
    updated profile is dropped first. If no rule matches, the prediction is the walltime, which is also its maximum.
    """

    def __init__(self, remember: int = 10_000) -> None:
        require(remember > 0, "remember", remember, "must be positive")
        self.remember = remember
        self._last: dict[str, tuple[dict[Hashable, int], ...]] = {}

    @override
    def predict(self, job: Job) -> int:
        history = self._last.get(job.user)
        if history is None:
            return job.walltime_s
        for known, key in zip(history, _profile_keys(job), strict=True):
            run_s = known.get(key)
            if run_s is not None:
                return min(run_s, job.walltime_s)
        return job.walltime_s

    @override
    def learn(self, ended: EndedJob) -> None:
        job = ended.job
        if not job.user:
            return
        history = self._last.get(job.user)
        if history is None:
            history = self._last[job.user] = tuple({} for _ in range(6))
        for known, key in zip(history, _profile_keys(job), strict=True):
            known.pop(key, None)
            known[key] = ended.run_s
            if len(known) > self.remember:
                del known[next(iter(known))]


def _profile_keys(job: Job) -> Iterator[Hashable]:
    """Yield the job's key for each rule, strictest first."""
    name, prefix = job.name, job.name.rstrip(_DIGITS)
    yield name, job.queue, job.walltime_s, job.request
    yield prefix, job.queue, job.walltime_s, job.request
    yield name, job.queue, job.walltime_s
    yield prefix, job.queue, job.walltime_s
    yield name
    yield prefix


REGISTRATIONS = (
    Registration(
        "profile",
        "Run time of the user's last similar job, by the strictest of six rules that matches.",
        "-D: mod17 section 3; online as in cp19",
        ProfilePredictor,
    ),
)
