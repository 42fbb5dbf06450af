"""What a predictor is, and the one place where its answers are checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from cpsched.errors import METHODS, RAISED, InvalidValue, PolicyError, describe_exception
from cpsched.model import EndedJob, IntArray, Job, JobTable
from cpsched.model.value_bounds import MOST_S
from cpsched.traceback_origin import plugin_source_location


class Predictor(ABC):
    """Guesses how long a job will run, from what the user asked for and from jobs that ended.

    Derive from it and write `predict`; the rest has working defaults.

    >>> class HalfTheWalltime(Predictor):
    ...     def predict(self, job):
    ...         return job.walltime_s // 2 + 1
    """

    learns: bool = False
    """Whether `learn` changes later predictions; True by default in a class that overrides `learn`.

    If False, a simulation may predict all jobs up front.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_learns_default(cls, Predictor)

    @abstractmethod
    def predict(self, job: Job) -> int:
        """Expected run time in seconds, at least 1. Asked once, when the job is first seen.

        More than the walltime counts as the walltime: the cluster ends the job then.
        """

    def fill(self, table: JobTable, slots: IntArray) -> None:
        """Write `parquet_table.estimate_s` for `slots`; to be replaced where whole columns can be predicted at once."""
        for slot in slots.tolist():
            table.estimate_s[slot] = whole_seconds(self.predict(table.jobs[slot]))

    def learn(self, ended: EndedJob) -> None:
        """Learn from a job that ended."""


class Learner(Protocol):
    """What dispatchers and predictors have in common."""

    @property
    def learns(self) -> bool:
        """Whether `learn` changes anything."""
        ...

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        ...


def set_learns_default(cls: type[Any], base: type[Any]) -> None:
    """Set `cls.learns` if `cls` overrides `learn`, unless a class below `base` already defines `learns`."""
    below = cls.__mro__[: cls.__mro__.index(base)]
    if cls.learn is not base.learn and not any("learns" in vars(each) for each in below):
        cls.learns = True


_NUMBERS = (int, float, np.integer, np.floating)


def whole_seconds(answer: object) -> int:
    """Predicted seconds, fractions cut off. Raises `InvalidValue` where it is no number or out of bounds."""
    if isinstance(answer, _NUMBERS) and 1 <= answer < MOST_S:
        return int(answer)
    raise InvalidValue("estimate_s", answer, "must be a number of seconds, from 1 to below 2^53")


def predicted_s(predictor: Predictor, job: Job) -> int:
    """What `predictor` expects of one job, in whole seconds; raises `PolicyError` for whatever else it does."""
    try:
        return whole_seconds(predictor.predict(job))
    except RAISED as error:
        raise policy_error_for("predictor", predictor, error) from error


def is_trainable(part: str, of: Learner) -> bool:
    """Whether a dispatcher or predictor learns; raises `PolicyError` where it cannot tell."""
    try:
        return bool(of.learns)
    except RAISED as error:
        raise policy_error_for(part, of, error) from error


def train(part: str, of: Learner, ended: EndedJob) -> None:
    """Have a dispatcher or predictor learn; raises `PolicyError` where it fails at that."""
    try:
        of.learn(ended)
    except RAISED as error:
        raise policy_error_for(part, of, error) from error


def fill_estimates(predictor: Predictor, table: JobTable, slots: IntArray) -> None:
    """Have `predictor` write the estimates of `slots`: at least 1 second, at most the walltime.

    Raises `PolicyError` for whatever else it does; the estimates of `slots` are then the walltimes.
    """
    try:
        predictor.fill(table, slots)
        estimate_s, walltime_s = table.estimate_s, table.walltime_s
        for slot in slots.tolist():
            if not 0 < estimate_s[slot] <= walltime_s[slot]:
                estimate_s[slot] = min(whole_seconds(int(estimate_s[slot])), walltime_s[slot])
    except RAISED as error:
        table.estimate_s[slots] = table.walltime_s[slots]
        raise policy_error_for("predictor", predictor, error) from error


def policy_error_for(part: str, of: object, error: BaseException) -> PolicyError:
    """What to raise where a dispatcher or predictor raised `error`."""
    return PolicyError(part, of, describe_exception(error), plugin_source_location(error, of, METHODS[part]))
