"""Forecast job starts as quantiles, and estimate hypothetical submissions.

The loop only passes each cycle's report to the forecaster. `refresh` and the queries do the slow work in their callers'
threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from cpsched.errors import InvalidValue
from cpsched.feasibility import why_infeasible
from cpsched.forecast import (
    SAMPLES,
    BackfillWindow,
    IssuedStartForecasts,
    StartCalibrator,
    StartForecast,
    backfill_windows,
    hypothetical_job,
    planned_queue,
    sample_hypothetical_start,
    sample_starts,
    select_one_per_class,
    smaller_requests,
    with_hypothetical_job,
)
from cpsched.model import NEVER, Cluster, EndedJob, IntArray, Job, Request, Snapshot, frozen_array
from cpsched.planning import WillRunEstimator
from cpsched.run_time_model import RunTimeModel
from cpsched.slurm_text.limits import parse_slurm_time_min
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Hold, Observation, PendingJob
from cpsched_bridge.telemetry.forecast_outcomes import PastWeekIntervalOutcomes, StartForecastScore
from cpsched_bridge.telemetry.forecast_state import MAX_ENDED_JOBS, LearnedForecastState, forecast_state_to_json

_MAX_UNLEARNED = 200_000
_MAX_COUNTED_ARRAYS = 1000
_MAX_CLOCK_OFFSET_S = 3600
"""Maximum seconds by which a stored state may be in the future. A later state belongs to a simulated clock."""
BASIS_AGE_FACTOR = 20.0
"""Minimum interval between two placements of the queue, as a multiple of the time that one placement takes."""
MAX_JOBS_AHEAD = 200
"""Maximum number of jobs ahead that are sampled with a hypothetical job.

With more, the job gets the interval of jobs planned for a similar time.
"""


@dataclass(frozen=True, slots=True)
class HypotheticalSubmission:
    """A hypothetical job submission."""

    nodes: int = 1
    time: str = ""
    """Time limit in sbatch's format: minutes, H:M:S, or D-H."""
    partition: str = ""
    exclusive: bool = False
    amounts: Mapping[str, int] = field(default_factory=dict)
    """Amount per node by resource name. If empty, the job requests one core."""

    def to_job(self, now_s: int, cluster: Cluster) -> Job:
        """Return the job for this submission. Raise `InvalidValue`."""
        minutes = parse_slurm_time_min(self.time) if self.time else None
        if not minutes:
            raise InvalidValue("time", self.time, "must be a time limit: minutes, H:M:S, or D-H")
        named = {_find_resource(name, cluster): amount for name, amount in self.amounts.items()}
        amounts = {cluster.resources[0]: 1, **named}
        each = tuple(amounts.get(name, 0) for name in cluster.resources)
        distinct = self.nodes > 1 and not cluster.counted
        request = Request(self.nodes, each, distinct, self.exclusive, find_partition_node_set(cluster, self.partition))
        return hypothetical_job(now_s, 60 * minutes, request)


def _find_resource(name: str, cluster: Cluster) -> str:
    """Return the cluster's name for a resource. Raise `InvalidValue` if unknown.

    A GPU is `gpu` in Slurm and `gpus` in traces.
    """
    for known in (name, name.removesuffix("s"), f"{name}s"):
        if known in cluster.resources:
            return known
    raise InvalidValue("resource", name, f"must be one of {', '.join(cluster.resources)}")


def find_partition_node_set(cluster: Cluster, partition: str) -> int:
    """Return the index of a partition's node set, or 0, all nodes, for "".

    Raise `InvalidValue` if the partition is unknown.
    """
    if not partition:
        return 0
    known = list_requestable_partitions(cluster)
    if partition not in known:
        raise InvalidValue("partition", partition, f"must be one of {', '.join(known)}")
    return cluster.node_set_names.index(partition)


def list_requestable_partitions(cluster: Cluster) -> list[str]:
    """Return the names of the node sets that a user may request.

    Omit node sets that were derived for a few jobs. They exclude nodes, for example those of a reservation, and Slurm
    names a reservation after its user.
    """
    parts = [cluster.conditions_of_node_set(row) for row in range(len(cluster.node_set_names))]
    return [str(each[0]) for each in parts if len(each) == 1 and each[0].kind != "reservation"]


@dataclass(frozen=True, slots=True)
class SubmissionStartEstimate:
    """The expected start of a job. Its times are None if the job can never start, and `never` is the reason."""

    request: str
    """The alternative request as text, or "" for the original request."""
    planned_s: int | None
    interval: StartForecast | None
    never: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _LatestPlan:
    snapshot: Snapshot
    plan_s: IntArray
    starting: IntArray
    """Slots of the queued jobs that the bridge starts in this cycle."""


@dataclass(frozen=True, slots=True, eq=False)
class _CachedPlannedQueue:
    """A placed queue on which answers are based until `until_s`."""

    latest: _LatestPlan
    queue: WillRunEstimator
    until_s: float
    """Time on `StartForecaster.clock` until which the basis is valid."""


def _may_start(pending: PendingJob) -> bool:
    """Return whether the wait of the job counts: also at a site limit, and in backoff after failed starts."""
    return pending.hold not in (Hold.USER, Hold.CLUSTER) and pending.job.ineligible is None


@dataclass(slots=True)
class StartForecaster:
    """A cycle listener that forecasts job starts."""

    intervals: Mapping[int, StartForecast] = field(default_factory=dict)
    """Start intervals by job id for the jobs that stay pending after the last plan read. Replaced, never modified."""
    policy: str = ""
    """The mode and the policy as text. Outcomes under another policy are not used for calibration."""
    clock: Callable[[], float] = time.monotonic
    """Clock in seconds, replaceable in tests."""
    _unread: deque[EndedJob | tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_UNLEARNED))
    """Ended jobs, and (job id, start time) pairs, from which the forecaster has not learned yet."""
    _latest: _LatestPlan | None = None
    _unread_observation: Observation | None = None
    """The latest observation, or None if forecasts were already dropped for it."""
    _eligible: frozenset[int] = frozenset()
    """Ids of the pending jobs that may start, from the last observation read."""
    week: PastWeekIntervalOutcomes = field(default_factory=PastWeekIntervalOutcomes)
    """Outcomes of start intervals in the past week."""
    _run_times: RunTimeModel = field(default_factory=RunTimeModel)
    _calibration: StartCalibrator = field(default_factory=StartCalibrator)
    _issued: IssuedStartForecasts = field(default_factory=IssuedStartForecasts)
    _ends: deque[EndedJob] = field(default_factory=lambda: deque(maxlen=MAX_ENDED_JOBS))
    """The most recently learned ended jobs, stored for a restart."""
    _recalled: LearnedForecastState | None = None
    """The state of an earlier bridge process, kept until the cluster's clock is known."""
    _known_until_s: int | None = None
    """Latest end time of the jobs from which an earlier bridge process learned."""
    _clock_s: int | None = None
    _labels: Mapping[int, str] = field(default_factory=dict)
    """Labels of jobs by id, from the last observation read; those of array tasks have the form ARRAY_TASK."""
    _counted_arrays: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=_MAX_COUNTED_ARRAYS))
    """Array and class of recorded outcomes."""
    _outcomes: list[StartForecastScore] = field(default_factory=list)
    """Outcomes since the last call of `take_outcomes`."""
    _drawn: tuple[_LatestPlan, IntArray] | None = None
    """The plan of the last `refresh` and the starts sampled for it."""
    _basis: _CachedPlannedQueue | None = None
    _busy: Lock = field(default_factory=Lock)

    def __call__(self, report: CycleReport) -> None:
        """Record one cycle. The loop calls this method, which never blocks."""
        if report.observation is not None:
            if self._clock_s is None:
                # Jobs that started while no bridge was running may also have intervals.
                self._unread.extend((running.job.id, running.start_s) for running in report.observation.running)
            self._clock_s = report.observation.now_s
        snapshot, decision = report.decided.snapshot, report.decided.decision
        if snapshot is not None and decision is not None and decision.plan_s is not None:
            # A simulated cluster changes its arrays in place.
            free = frozen_array(np.array(snapshot.free))
            kept = Snapshot(
                snapshot.now_s, snapshot.cluster, free, snapshot.table, snapshot.queue, snapshot.running,
                by_construction=True,
            )  # fmt: skip
            starts = decision.starts.slots if report.role.mode == "control" else snapshot.queue[:0]
            self._latest = _LatestPlan(kept, np.array(decision.plan_s), np.array(starts))
        # Last, so that a job whose start is read is not in the queue of a plan that is read later.
        self._unread.extend(report.changes.past)
        self._unread.extend(report.changes.ended)
        self._unread.extend((job.id, start_s) for job, start_s in report.changes.started)
        if report.observation is not None:
            # After the starts, so that no job is absent whose start is not read.
            self._unread_observation = report.observation

    def refresh(self) -> None:
        """Forecast the starts of pending jobs from the latest plan, once per plan.

        A second forecast from the same plan could be for a job that has started since.
        """
        with self._busy:
            latest = self._learn_and_get_latest_plan()
            if latest is None or (self._drawn is not None and self._drawn[0] is latest):
                return
            self._refresh_intervals(latest)

    def _refresh_intervals(self, latest: _LatestPlan) -> None:
        snapshot, plan_s = latest.snapshot, latest.plan_s
        drawn_s = sample_starts(snapshot, plan_s, self._run_times, SAMPLES, snapshot.now_s)
        self._drawn = latest, drawn_s
        at = np.flatnonzero((drawn_s != NEVER).all(axis=0) & ~np.isin(snapshot.queue, latest.starting))
        jobs = snapshot.queued_jobs()
        known = [jobs[position] for position in at.tolist()]
        self._calibration.observe_waiting(snapshot.now_s, self._issued.forecasts_of(job.id for job in jobs))
        is_first = [self._issued.is_first(job.id, snapshot.now_s) for job in known]
        found = self._calibration.forecast(snapshot.now_s, known, plan_s[at].tolist(), drawn_s[:, at], is_first)
        self.intervals = {job.id: interval for job, interval in zip(known, found, strict=True)}
        # A job of the plan may have started or have been held since.
        due = self._issued.due_jobs(snapshot.now_s, (id for id in self.intervals if id in self._eligible))
        self._issued.store_issued({id: self.intervals[id] for id in due})

    def _learn_and_get_latest_plan(self) -> _LatestPlan | None:
        """Learn from all reports so far and return the latest plan, or None."""
        seen, self._unread_observation = self._unread_observation, None
        if self._recalled is not None and self._clock_s is not None:
            self._restore_memory(self._recalled, self._clock_s)
        if seen is not None:
            self._labels = {**self._labels, **seen.map_labels_by_job_id()}
        while self._unread:
            each = self._unread.popleft()
            if not isinstance(each, EndedJob):
                self._record_start_outcome(*each)
            elif self._known_until_s is None or each.end_s > self._known_until_s:
                self._record_start_outcome(each.job.id, each.start_s)
                self._run_times.learn(each)
                self._ends.append(each)
        if seen is not None:
            self._drop_forecasts_of_ineligible_jobs(seen)
        return self._latest

    def _drop_forecasts_of_ineligible_jobs(self, seen: Observation) -> None:
        """Drop the forecasts of jobs that may not start any more: held, ineligible or cancelled jobs.

        An absent job keeps its forecasts if this process has not observed it yet: it may have run before.
        """
        before = self._eligible
        self._labels = seen.map_labels_by_job_id()
        self._eligible = frozenset(each.job.id for each in seen.pending if _may_start(each))
        pending, running = {each.job.id for each in seen.pending}, {each.job.id for each in seen.running}
        for job_id in (pending | before) - self._eligible - running:
            self._issued.take_forecasts(job_id)

    def _record_start_outcome(self, job_id: int, start_s: int) -> None:
        """Record one outcome per job and class of forecasts.

        The tasks of an array, whose waits are alike, count as one job.
        """
        forecasts = select_one_per_class(self._issued.take_forecasts(job_id))
        array, _, task = self._labels.get(job_id, "").partition("_")
        for forecast in forecasts:
            counted = array, forecast.outcome_class
            if task and counted in self._counted_arrays:
                continue
            if task:
                self._counted_arrays.append(counted)
            self._calibration.record_outcome(forecast, start_s)
            score = StartForecastScore.of(forecast, start_s)
            self.week.add_outcome(score.outcome_class, score.outcome, start_s)
            self._outcomes.append(score)

    def take_outcomes(self) -> Sequence[StartForecastScore]:
        """Return the outcomes of forecasts since the last call."""
        found, self._outcomes = self._outcomes, []
        return found

    def restore_memory_when_clock_known(self, memory: LearnedForecastState) -> None:
        """Restore an earlier bridge process's state once the cluster's time is known.

        A state that is later than the cluster's time is ignored.
        """
        self._recalled = memory

    def _restore_memory(self, memory: LearnedForecastState, now_s: int) -> None:
        self._recalled = None
        if memory.clock_s > now_s + _MAX_CLOCK_OFFSET_S:
            return
        for each in memory.ends:
            self._run_times.learn(each)
        self._ends.extend(memory.ends)
        self._known_until_s = max((each.end_s for each in memory.ends), default=None)
        self.week = memory.week
        if memory.policy == self.policy:
            self._calibration, self._issued = memory.calibration, memory.issued

    def export_memory(self) -> Any:
        """Return the learned state as plain values, or None before the first observation."""
        with self._busy:
            self._learn_and_get_latest_plan()
            if self._clock_s is None:
                return None
            return forecast_state_to_json(
                LearnedForecastState(
                    self._clock_s, self.policy, list(self._ends), self._calibration, self._issued, self.week
                )
            )

    def estimate_start(self, question: HypotheticalSubmission) -> list[SubmissionStartEstimate] | None:
        """Return the expected starts of a hypothetical job, and of smaller requests that the plan starts earlier.

        Return None if there is no plan. Raise `InvalidValue` for an impossible request.
        """
        with self._busy:
            basis = self._get_cached_planned_queue()
            if basis is None:
                return None
            job = question.to_job(basis.latest.snapshot.now_s, basis.latest.snapshot.cluster)
            given = self._estimate_submission_start("", job, basis)
            smaller = [self._estimate_submission_start(*less, basis) for less in smaller_requests(job)]
            latest_s = NEVER if given.planned_s is None else given.planned_s
            return [given, *(each for each in smaller if each.planned_s is not None and each.planned_s < latest_s)]

    def _get_cached_planned_queue(self) -> _CachedPlannedQueue | None:
        """Return the basis for answers: the latest plan if placing the queue is fast.

        If it is slow, the basis may be an earlier plan.
        """
        latest, basis = self._learn_and_get_latest_plan(), self._basis
        if latest is None or (basis is not None and (basis.latest is latest or self.clock() < basis.until_s)):
            return basis
        began_s = self.clock()
        queue = planned_queue(latest.snapshot, latest.plan_s)
        ended_s = self.clock()
        self._basis = _CachedPlannedQueue(latest, queue, ended_s + BASIS_AGE_FACTOR * (ended_s - began_s))
        return self._basis

    def _estimate_submission_start(self, asked: str, job: Job, basis: _CachedPlannedQueue) -> SubmissionStartEstimate:
        snapshot = basis.latest.snapshot
        planned_s = basis.queue.start_s(job)
        if planned_s == NEVER:
            never = why_infeasible(job.request, snapshot.cluster) or "no free time for it in the plan"
            return SubmissionStartEstimate(asked, None, None, never)
        (interval,) = self._calibration.forecast(
            snapshot.now_s, [job], [planned_s], self._sample_hypothetical_starts(job, planned_s, basis.latest), [True]
        )
        return SubmissionStartEstimate(asked, planned_s, interval)

    def _sample_hypothetical_starts(self, job: Job, planned_s: int, latest: _LatestPlan) -> IntArray:
        """Return sampled starts, int64[draws, 1], for a hypothetical job.

        The job is placed behind all jobs planned to start before it.
        """
        snapshot, plan_s = latest.snapshot, latest.plan_s
        before = np.flatnonzero(plan_s <= min(planned_s, NEVER - 1))
        if len(before) > MAX_JOBS_AHEAD:
            if self._drawn is None:
                self._refresh_intervals(latest)
            known, drawn_s = self._drawn  # type: ignore[misc]
            found = sample_hypothetical_start(known.snapshot.now_s, planned_s, known.plan_s, drawn_s)
            if len(found):
                return found
        whole = with_hypothetical_job(snapshot, job, before)
        order_s = np.append(plan_s[before], planned_s)
        return sample_starts(whole, order_s, self._run_times, SAMPLES, snapshot.now_s)[:, -1:]

    def backfill_windows(self, partition: str = "") -> list[BackfillWindow] | None:
        """Return job sizes that could run now, or None if there is no plan.

        Raise `InvalidValue` for an unknown partition.
        """
        with self._busy:
            basis = self._get_cached_planned_queue()
            if basis is None:
                return None
            snapshot = basis.latest.snapshot
            return backfill_windows(snapshot, basis.queue, find_partition_node_set(snapshot.cluster, partition))

    def get_plan_cluster_time_s(self) -> int:
        """Return the cluster time of the plan on which answers are based.

        Return 0 if there is no plan.
        """
        latest = self._basis.latest if self._basis is not None else self._latest
        return latest.snapshot.now_s if latest is not None else 0

    def list_partition_choices(self) -> Sequence[str]:
        """Return the name for all nodes, then the partitions that a query may name.

        Return an empty list if there is no plan.
        """
        return list_requestable_partitions(self._latest.snapshot.cluster) if self._latest is not None else []
