"""When jobs will start, as intervals that hold 8 in 10, and what somebody could submit: for those who ask over HTTP.

The loop only hands over what each cycle saw. All that takes time is done by whoever calls `refresh` or asks a question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from cpsched.errors import InvalidValue
from cpsched.model import NEVER, Cluster, EndedJob, IntArray, Job, Request, Snapshot, frozen_array
from cpsched.outlook import (
    DRAWS,
    TOLD_EVERY_S,
    Calibration,
    Interval,
    Window,
    asked_job,
    drawn_starts,
    planned_start_s,
    smaller,
    windows,
    with_job,
)
from cpsched.run_times import RunTimes
from cpsched.spelling.amounts import minutes_of
from cpsched_bridge.report import CycleReport

_MOST_TOLD = 200_000
_MOST_UNREAD = 200_000


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody would submit."""

    nodes: int = 1
    time: str = ""
    """As sbatch takes it: minutes, H:M:S, D-H."""
    partition: str = ""
    whole: bool = False
    amounts: Mapping[str, int] = field(default_factory=dict)
    """Of each node, by the cluster's names of resources; one core where it names none."""

    def job(self, now_s: int, cluster: Cluster) -> Job:
        """The job that it describes. Raises `InvalidValue` for what no job of the cluster can ask for."""
        minutes = minutes_of(self.time) if self.time else None
        if not minutes:
            raise InvalidValue("time", self.time, "must be a time limit: minutes, H:M:S, or D-H")
        named = {_resource(name, cluster): amount for name, amount in self.amounts.items()}
        amounts = {cluster.resources[0]: 1, **named}
        each = tuple(amounts.get(name, 0) for name in cluster.resources)
        distinct = self.nodes > 1 and not cluster.counted
        request = Request(self.nodes, each, distinct, self.whole, node_set_of(cluster, self.partition))
        return asked_job(now_s, 60 * minutes, request)


def _resource(name: str, cluster: Cluster) -> str:
    """The cluster's name of a resource; Slurm speaks of gpu, traces of gpus. Raises `InvalidValue` for no name."""
    for known in (name, name.removesuffix("s"), f"{name}s"):
        if known in cluster.resources:
            return known
    raise InvalidValue("resource", name, f"must be one of {', '.join(cluster.resources)}")


def node_set_of(cluster: Cluster, partition: str) -> int:
    """The node set of a partition; all nodes where none is named. Raises `InvalidValue` for one that is not known."""
    if not partition:
        return 0
    if partition not in cluster.node_set_names:
        raise InvalidValue("partition", partition, f"must be one of {', '.join(cluster.node_set_names)}")
    return cluster.node_set_names.index(partition)


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job would start; None for what would never be, or is not known."""

    asked: str
    """What was asked for, in words, where it is not the question itself."""
    planned_s: int | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, eq=False)
class _Latest:
    snapshot: Snapshot
    plan_s: IntArray


@dataclass(slots=True)
class Outlook:
    """Listens to the cycles of a bridge."""

    intervals: Mapping[int, Interval] = field(default_factory=dict)
    """By job id, of the jobs that waited at the last `refresh`. Replaced, never changed."""
    _unread: deque[EndedJob | tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MOST_UNREAD))
    """Ends, and (job id, start second), that are still to be learned from."""
    _latest: _Latest | None = None
    _run_times: RunTimes = field(default_factory=RunTimes)
    _calibration: Calibration = field(default_factory=Calibration)
    _told: dict[int, list[Interval]] = field(default_factory=dict)
    _busy: Lock = field(default_factory=Lock)

    def __call__(self, report: CycleReport) -> None:
        """Take note of one cycle; the loop calls this, and waits for nothing."""
        self._unread.extend(report.past)
        self._unread.extend(report.ended)
        self._unread.extend((job.id, start_s) for job, start_s in report.started)
        snapshot, decision = report.snapshot, report.decision
        if snapshot is not None and decision is not None and decision.plan_s is not None:
            # A simulated cluster changes its arrays in place.
            free = frozen_array(np.array(snapshot.free))
            kept = Snapshot(
                snapshot.now_s, snapshot.cluster, free, snapshot.table, snapshot.queue, snapshot.running,
                by_construction=True,
            )  # fmt: skip
            self._latest = _Latest(kept, np.array(decision.plan_s))

    def refresh(self) -> None:
        """Make the intervals of all jobs that wait, from the latest plan."""
        with self._busy:
            latest = self._learned()
            if latest is None:
                return
            snapshot, plan_s = latest.snapshot, latest.plan_s
            drawn_s = drawn_starts(snapshot, plan_s, self._run_times, DRAWS, snapshot.now_s)
            jobs = snapshot.queued_jobs()
            found = self._calibration.intervals(snapshot.now_s, jobs, plan_s.tolist(), drawn_s)
            self.intervals = {job.id: interval for job, interval in zip(jobs, found, strict=True)}
            self._tell(snapshot.now_s)

    def _learned(self) -> _Latest | None:
        """The latest plan, after all has been learned that came with it or before."""
        latest = self._latest
        while self._unread:
            each = self._unread.popleft()
            if isinstance(each, EndedJob):
                self._run_times.learn(each)
                continue
            job_id, start_s = each
            for told in self._told.pop(job_id, ()):
                self._calibration.came_true(told, start_s)
        return latest

    def _tell(self, now_s: int) -> None:
        """Keep those of the new intervals that are to be learned from."""
        while len(self._told) > _MOST_TOLD:  # jobs that were cancelled, or that limits keep waiting
            self._told.pop(next(iter(self._told)))
        for job_id, interval in self.intervals.items():
            told = self._told.setdefault(job_id, [])
            if not told or now_s - told[-1].told_at_s >= TOLD_EVERY_S:
                told.append(interval)

    def when(self, question: Question) -> list[Expected] | None:
        """When a job would start if it were submitted now, and what asking for less would bring.

        None as long as there is no plan. Raises `InvalidValue` for what no job can ask for.
        """
        with self._busy:
            latest = self._learned()
            if latest is None:
                return None
            job = question.job(latest.snapshot.now_s, latest.snapshot.cluster)
            return [self._expected("", job, latest), *(self._expected(*less, latest) for less in smaller(job))]

    def _expected(self, asked: str, job: Job, latest: _Latest) -> Expected:
        snapshot, plan_s = latest.snapshot, latest.plan_s
        whole = with_job(snapshot, job)
        planned_s = planned_start_s(whole, plan_s)
        if planned_s == NEVER:
            return Expected(asked, None, None)
        drawn_s = drawn_starts(whole, np.append(plan_s, planned_s), self._run_times, DRAWS, snapshot.now_s)[:, -1:]
        (interval,) = self._calibration.intervals(snapshot.now_s, [job], [planned_s], drawn_s)
        return Expected(asked, planned_s, interval)

    def windows(self, partition: str = "") -> list[Window] | None:
        """What could run right now; None as long as there is no plan. Raises `InvalidValue` for the partition."""
        with self._busy:
            latest = self._learned()
            if latest is None:
                return None
            node_set = node_set_of(latest.snapshot.cluster, partition)
            return windows(latest.snapshot, latest.plan_s, node_set)

    def clock_s(self) -> int:
        """The cluster's clock at the latest plan; 0 before the first one."""
        return self._latest.snapshot.now_s if self._latest is not None else 0
