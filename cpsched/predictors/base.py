"""What a predictor is, and what a running job is assumed to do when it outlives its prediction."""

from __future__ import annotations

from typing import Literal, Protocol

from cpsched.model import EndedJob, IntArray, Job, JobTable


class Predictor(Protocol):
    """Guesses how long a job will run, from what the user asked for and from jobs that ended."""

    learns: bool
    """Whether `learn` changes later predictions; if not, all jobs of a trace may be predicted up front."""

    def predict(self, job: Job) -> int:
        """Expected run time in seconds, at least 1 and at most the walltime. Asked once, when the job is first seen."""
        ...

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write `table.estimate_s` for `slots`."""
        ...

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        ...


class OneByOne:
    """Base of predictors that have no faster way than to predict job by job."""

    learns = True

    def predict(self, job: Job) -> int:
        """See `Predictor.predict`."""
        raise NotImplementedError

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """See `Predictor.fill`."""
        for slot in slots.tolist():
            table.estimate_s[slot] = self.predict(table.jobs[slot])

    def learn(self, ended: EndedJob) -> None:
        """See `Predictor.learn`."""


Overrun = Literal["one-second", "double", "walltime"]


def expected_end_s(start_s: int, estimate_s: int, walltime_s: int, now_s: int, overrun: Overrun) -> int:
    """When a running job is expected to end, seen from `now_s`; always later than `now_s`.

    A job that outlived its estimate is expected to end: after one more second (`one-second`, cp19 section 4);
    when its estimate, doubled until it covers the time already run, is over (`double`); or at its walltime
    (`walltime`), and after that one second later.
    """
    end_s = start_s + estimate_s
    if end_s > now_s:
        return end_s
    if overrun == "double":
        while end_s <= now_s:
            estimate_s *= 2
            end_s = start_s + estimate_s
        return end_s
    if overrun == "walltime":
        end_s = start_s + walltime_s
    return max(end_s, now_s + 1)
