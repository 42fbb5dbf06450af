"""What a predictor is."""

from __future__ import annotations

from typing import Protocol

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
