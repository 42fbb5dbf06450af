"""Define the base class of predictors, and check their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from cpsched.errors import (
    CAUGHT_EXCEPTIONS,
    CHECKED_METHODS,
    InvalidValue,
    PolicyError,
    describe_exception,
    plugin_source_location,
)
from cpsched.model import EndedJob, IntArray, Job, JobTable
from cpsched.model.value_bounds import TIME_BOUND_S


class Predictor(ABC):
    """Base class of predictors of a job's run time from its request and ended jobs.

    Subclasses must define `predict`. All other methods have defaults.

    >>> class HalfTheWalltime(Predictor):
    ...     def predict(self, job):
    ...         return job.walltime_s // 2 + 1
    """

    learns: bool = False
    """Whether `learn` changes later predictions. Defaults to True if the class overrides `learn`.

    If False, a simulation may predict all jobs in advance.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_learns_default(cls, Predictor)

    @abstractmethod
    def predict(self, job: Job) -> int:
        """Return the expected run time in seconds, at least 1.

        This method is called once per job, when the job is first observed. A value above the walltime counts as the
        walltime, because the cluster ends the job at its walltime.
        """

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write estimates for `slots` to the table. Override this to predict in bulk."""
        for slot in slots.tolist():
            table.estimate_s[slot] = to_whole_seconds(self.predict(table.jobs[slot]))

    def learn(self, ended: EndedJob) -> None:
        """Learn from an ended job."""


class EndedJobLearner(Protocol):
    """The interface for learning from ended jobs, for dispatchers and predictors."""

    @property
    def learns(self) -> bool:
        """Whether `learn` has an effect."""
        ...

    def learn(self, ended: EndedJob) -> None:
        """Learn from an ended job."""
        ...


def set_learns_default(cls: type[Any], base: type[Any]) -> None:
    """Set `cls.learns` if a subclass of `base` overrides `learn` but not `learns`."""
    below = cls.__mro__[: cls.__mro__.index(base)]
    if cls.learn is not base.learn and not any("learns" in vars(each) for each in below):
        cls.learns = True


_NUMBERS = (int, float, np.integer, np.floating)


def to_whole_seconds(answer: object) -> int:
    """Return `answer`, rounded down. Raise `InvalidValue` unless 1 <= answer < 2^53."""
    if isinstance(answer, _NUMBERS) and 1 <= answer < TIME_BOUND_S:
        return int(answer)
    raise InvalidValue("estimate_s", answer, "must be a number of seconds, at least 1 and below 2^53")


def predict_run_time_s(predictor: Predictor, job: Job) -> int:
    """Return a predicted run time in whole seconds. Raise `PolicyError` on failure."""
    try:
        return to_whole_seconds(predictor.predict(job))
    except CAUGHT_EXCEPTIONS as error:
        raise policy_error_for("predictor", predictor, error) from error


def learns_from_ended_jobs(part: str, of: EndedJobLearner) -> bool:
    """Return `learns` of a dispatcher or predictor. Raise `PolicyError` on failure."""
    try:
        return bool(of.learns)
    except CAUGHT_EXCEPTIONS as error:
        raise policy_error_for(part, of, error) from error


def learn_from_ended_job(part: str, of: EndedJobLearner, ended: EndedJob) -> None:
    """Pass an ended job to a dispatcher or predictor. Raise `PolicyError` on failure."""
    try:
        of.learn(ended)
    except CAUGHT_EXCEPTIONS as error:
        raise policy_error_for(part, of, error) from error


def fill_estimates(predictor: Predictor, table: JobTable, slots: IntArray) -> None:
    """Let `predictor` write the estimates for `slots`, capped at the walltimes.

    If the predictor fails, write the walltimes instead and raise `PolicyError`.
    """
    try:
        predictor.fill(table, slots)
        estimate_s, walltime_s = table.estimate_s, table.walltime_s
        for slot in slots.tolist():
            if not 0 < estimate_s[slot] <= walltime_s[slot]:
                estimate_s[slot] = min(to_whole_seconds(int(estimate_s[slot])), walltime_s[slot])
    except CAUGHT_EXCEPTIONS as error:
        table.estimate_s[slots] = table.walltime_s[slots]
        raise policy_error_for("predictor", predictor, error) from error


def policy_error_for(part: str, of: object, error: BaseException) -> PolicyError:
    """Return the `PolicyError` for a dispatcher's or predictor's exception."""
    return PolicyError(part, of, describe_exception(error), plugin_source_location(error, of, CHECKED_METHODS[part]))
