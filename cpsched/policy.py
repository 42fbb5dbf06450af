"""Define a policy: a predictor and a dispatcher that together make decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CAUGHT_EXCEPTIONS, PolicyError, require
from cpsched.feasibility import drop_starts_without_gpus
from cpsched.model import ClusterState, Decision, Effort, EndedJob, IntArray, JobTable, Need, Snapshot, Starts, Wait
from cpsched.model.overrun import DEFAULT_OVERRUN, Overrun
from cpsched.predictors.base import (
    Predictor,
    fill_estimates,
    learn_from_ended_job,
    learns_from_ended_jobs,
    policy_error_for,
)

MAX_SPARE_ESTIMATES = 10_000
"""Number of estimates to retain in addition to twice the number of current jobs.

A temporarily ineligible job thus keeps its estimate. Excess estimates for absent jobs are dropped, because a job can
disappear without an end record.
"""

_REQUIRED_ATTRIBUTES = {
    "dispatcher": ("cpsched.Dispatcher", ("decide", "learn", "learns")),
    "predictor": ("cpsched.Predictor", ("fill", "learn", "learns")),
}
"""Base class of each part of a policy, and the attributes that a class without this base must have."""


@dataclass(slots=True)
class Policy:
    """A predictor and a dispatcher.

    Each job's run time is predicted once, when the job is first observed. The job keeps this estimate until it ends.
    `overrun` is the rule for the expected end of a running job that has outlived its estimate. For any exception from
    the predictor or dispatcher, methods and properties raise `PolicyError`.

    >>> from cpsched.dispatchers.easy import EasyDispatcher
    >>> from cpsched.model import Cluster, Job, Request, ClusterState
    >>> from cpsched.predictors.walltime import WalltimePredictor
    >>> cluster = Cluster.of([[4], [4]], ["cores"])
    >>> queue = (Job(1, 0, 60, Request(2, (4,))), Job(2, 0, 60, Request(1, (4,))))
    >>> policy = Policy(WalltimePredictor(), EasyDispatcher())
    >>> snapshot = policy.add_estimates(ClusterState(now_s=0, cluster=cluster, free=cluster.capacity, queue=queue))
    >>> decision = policy.decide(snapshot)
    >>> decision.starts_by_job(snapshot), decision.plan_by_job(snapshot)
    ({1: ((0, 1), (1, 1))}, {1: 0, 2: 60})
    """

    predictor: Predictor
    dispatcher: Dispatcher
    overrun: Overrun = DEFAULT_OVERRUN
    _estimates: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part, (base, names) in _REQUIRED_ATTRIBUTES.items():
            given = getattr(self, part)
            lacks = [name for name in names if not _has_attribute(given, name)]
            rule = f"must derive from {base}, or have the attributes {', '.join(names)}; missing: {', '.join(lacks)}"
            require(not isinstance(given, type), part, given, "must be an instance, not a class")
            require(not lacks, part, type(given).__name__, rule)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Return the dispatcher's starts and, if `need` is "plan", the plan and the waits.

        Starts that may not find their GPUs are dropped.

        Raise `PolicyError` if the dispatcher fails or returns anything but a well-formed `Decision`.
        """
        try:
            decision = self.dispatcher.decide(snapshot, need)
        except CAUGHT_EXCEPTIONS as error:
            raise policy_error_for("dispatcher", self.dispatcher, error) from error
        if type(decision) is not Decision:
            raise self._dispatcher_error(f"must return a Decision, not a {type(decision).__name__}")
        if type(decision.starts) is not Starts or type(decision.effort) is not Effort:
            raise self._dispatcher_error("must return a Decision with Starts and Effort")
        if decision.again_s is not None and not (type(decision.again_s) is int and decision.again_s > snapshot.now_s):
            raise self._dispatcher_error("again_s must be an int after now_s, or None")
        if need == "plan":
            self._check_plan(decision, snapshot)
        return drop_starts_without_gpus(decision, snapshot)

    def _dispatcher_error(self, what: str) -> PolicyError:
        return PolicyError("dispatcher", self.dispatcher, what)

    def _check_plan(self, decision: Decision, snapshot: Snapshot) -> None:
        """Raise `PolicyError` unless planned starts and waits are as `Decision` requires."""
        plan_s, waits = decision.plan_s, decision.waits
        if plan_s is not None:
            right = isinstance(plan_s, np.ndarray) and plan_s.dtype == np.int64 and plan_s.shape == snapshot.queue.shape
            if not right:
                raise self._dispatcher_error("plan_s must be int64 with one entry per queued job")
            if (plan_s < snapshot.now_s).any():
                raise self._dispatcher_error("plan_s must not lie in the past")
        if not isinstance(waits, Mapping) or not all(type(wait) is Wait for wait in waits.values()):
            raise self._dispatcher_error("waits must map job ids to Wait")

    def add_estimates(self, scene: ClusterState) -> Snapshot:
        """Return a snapshot of `scene`, which is not changed, with estimates for all jobs."""
        eligible = [job for job in scene.queue if job.ineligible is None]
        table = JobTable.of(scene.cluster, eligible, scene.running)
        self._estimate_jobs(table)
        return Snapshot.from_owned_table(table, len(eligible), scene, self.overrun)

    def _estimate_jobs(self, table: JobTable) -> None:
        """Write all estimates to `table`. Predict only jobs without a stored estimate."""
        jobs, known = table.jobs, self._estimates
        if len(known) > 2 * len(jobs) + MAX_SPARE_ESTIMATES:
            known = self._estimates = {job.id: known[job.id] for job in jobs if job.id in known}
        new = [slot for slot, job in enumerate(jobs) if job.id not in known]
        if new:
            self.write_estimates(table, np.array(new))
            known.update(zip((jobs[slot].id for slot in new), table.estimate_s[new].tolist(), strict=True))
        table.estimate_s[:] = [known[job.id] for job in jobs]

    def write_estimates(self, table: JobTable, slots: IntArray) -> None:
        """Write the estimates for `slots`.

        On failure, write the walltimes and raise `PolicyError`.
        """
        fill_estimates(self.predictor, table, slots)

    @property
    def learns(self) -> bool:
        """Whether `learn` must be called for every ended job."""
        return self.predictor_learns or self.dispatcher_learns or bool(self._estimates)

    @property
    def predictor_learns(self) -> bool:
        """Whether the predictor learns. Raises `PolicyError` if reading `learns` fails."""
        return learns_from_ended_jobs("predictor", self.predictor)

    @property
    def dispatcher_learns(self) -> bool:
        """Whether the dispatcher learns. Raises `PolicyError` if reading `learns` fails."""
        return learns_from_ended_jobs("dispatcher", self.dispatcher)

    def memory(self) -> object:
        """Return the dispatcher's state that affects its next decision, as JSON, or None."""
        try:
            memory = getattr(self.dispatcher, "memory", None)
            return None if memory is None else memory()
        except CAUGHT_EXCEPTIONS as error:
            raise policy_error_for("dispatcher", self.dispatcher, error) from error

    def took(self, seconds: float) -> None:
        """Pass the duration of the last decision, in seconds, to the dispatcher."""
        try:
            took = getattr(self.dispatcher, "took", None)
            if took is not None:
                took(seconds)
        except CAUGHT_EXCEPTIONS as error:
            raise policy_error_for("dispatcher", self.dispatcher, error) from error

    def recall(self, memory: Any) -> None:
        """Restore the dispatcher's state from an earlier `memory`."""
        try:
            self.dispatcher.recall(memory)
        except CAUGHT_EXCEPTIONS as error:
            raise policy_error_for("dispatcher", self.dispatcher, error) from error

    def learn(self, ended: EndedJob) -> None:
        """Pass an ended job to the predictor and the dispatcher.

        Raise the first `PolicyError` after both calls.
        """
        self._estimates.pop(ended.job.id, None)
        faults: list[PolicyError] = []
        for part, of in (("predictor", self.predictor), ("dispatcher", self.dispatcher)):
            try:
                learn_from_ended_job(part, of, ended)
            except PolicyError as fault:
                faults.append(fault)
        if faults:
            raise faults[0]


def _has_attribute(given: object, name: str) -> bool:
    """Return whether `given` has the attribute, even if the attribute's getter raises."""
    try:
        return hasattr(given, name)
    except Exception:
        return True
