"""A trace's recorded schedule, for comparison with the schedule of a replay.

Both have the same jobs and run times. The recorded schedule also reflects effects that a replay does not model:
unavailable nodes, reservations, limits, and decisions of users. If jobs wait long in one schedule but hardly at all in
the other, the system probably differs from the recorded machine (`mismatch_warning`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cpsched.formatting import format_count, format_percent
from cpsched.metrics import Metric, ScheduleData, count_overlapping_intervals
from cpsched.model import NEVER
from cpsched_sim import data_frames
from cpsched_sim.simulation_metrics import DecisionTimes, metric_values
from cpsched_sim.site.fairness import fairness_by_account_and_qos
from cpsched_sim.traces.trace_jobs import ColumnarTrace, SchedulerVisibleJobs
from cpsched_sim.workloads.workload_loader import Workload

if TYPE_CHECKING:
    from cpsched_sim.data_frames import DataFrame

RECORDED_NAME = "as recorded"
"""The recorded schedule's name, used in place of a dispatcher name."""
MIN_MEAN_WAIT_S = 60.0
"""Minimum mean wait to compare. Slurm's own latency can cause shorter waits."""
MAX_OVERUSE_SHARE = 0.01
"""Maximum share of time in which recorded use may exceed the system's capacity. Recorded times are inexact."""
MAX_WAIT_RATIO = 10.0
"""Maximum plausible ratio between the mean waits of two schedules on the same machine."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordedSchedule:
    """The schedule of all jobs with a recorded start.

    `measures` contains the data for the metrics.

    - `unknown` is the number of jobs in the workload without a recorded start.
    - `busy` is the 99th percentile over time of the number of processors in use by the recorded jobs.
    - `over` is the share of time in which these jobs used more processors than the system has.
    """

    workload: Workload
    measures: ScheduleData
    unknown: int
    busy: int
    over: float

    def summary(self, more: Sequence[Metric] = ()) -> dict[str, Any]:
        """Return the same values as `Simulation.summary`, except those about decisions."""
        site = self.workload.site
        return {
            **metric_values(self.measures, more),
            "rounds": None,
            "cpu_s": None,
            "violations": None,
            "dispatch": asdict(DecisionTimes.of(())),
            "paths": {},
            "start_unknown": self.unknown,
            **(fairness_by_account_and_qos(self.measures, site) if site is not None else {}),
        }

    def notes(self) -> list[str]:
        """Return notes that help to interpret the values, one sentence each."""
        jobs, machine, found = len(self.workload.jobs), self.measures.machine, list[str]()
        if self.unknown:
            found.append(
                f"{RECORDED_NAME}: without {self.unknown:,} of {format_count(jobs, 'job')}, "
                "which have no recorded start"
            )
        if self.over > MAX_OVERUSE_SHARE:
            there = f"the {machine:,} {self.workload.cluster.resources[0]} of {self.workload.system}"
            found.append(
                f"{RECORDED_NAME}: more than {there} were in use {format_percent(self.over)} of the time, "
                f"often {self.busy:,}: "
                "the machine was larger, or the record is inexact"
            )
        return found

    def to_frame(self) -> DataFrame:
        """Return the jobs with a recorded start as a pandas frame (see `Simulation.to_frame`).

        Raise `InputError` without pandas.
        """
        measures = self.measures
        items = [item for item in self.workload.jobs if item.recorded_start_s is not None]
        return data_frames.jobs_to_frame(items, (measures.start_s, measures.end_s, measures.processors))

    def __repr__(self) -> str:
        rows = metric_values(self.measures).items()
        return "\n".join(
            [f"{RECORDED_NAME}: {self.workload.name}", *(f"  {name:<14}{value:>14,.5g}" for name, value in rows)]
        )


def recorded_schedule_of(workload: Workload) -> RecordedSchedule | None:
    """Return a workload's recorded schedule, or None without recorded starts."""
    jobs = ColumnarTrace.of(workload.jobs)
    known = np.flatnonzero(jobs.recorded_start_s != NEVER)
    if not len(known):
        return None
    jobs = jobs.take(known)
    start_s, end_s = jobs.recorded_start_s, jobs.recorded_start_s + jobs.run_s
    processors = jobs.expand_per_job(request.units * request.per_unit[0] for request in jobs.requests)
    machine = int(workload.cluster.capacity[:, 0].sum())
    measures = ScheduleData(
        submit_s=jobs.submit_s,
        start_s=start_s,
        end_s=end_s,
        processors=processors,
        machine=machine,
        jobs=SchedulerVisibleJobs(jobs),
    )
    at_s, held = count_overlapping_intervals(start_s, end_s, processors)
    lasted_s, held = np.diff(at_s), held[:-1]
    rising = np.argsort(held, kind="stable")
    busy = held[rising][np.searchsorted(np.cumsum(lasted_s[rising]), 0.99 * lasted_s.sum())]
    over = lasted_s[held > machine].sum() / lasted_s.sum()
    return RecordedSchedule(workload, measures, len(workload.jobs) - len(known), int(busy), float(over))


def mismatch_warning(found: RecordedSchedule | None, replayed_wait_s: Iterable[float]) -> str:
    """Return a warning if the trace is probably from another machine, or "".

    The mean waits are compared. Only the replay with the closest mean wait counts. If only some dispatchers differ, the
    system is not the cause.
    """
    waits = list(replayed_wait_s)
    if found is None or not waits:
        return ""
    real_s = float(found.measures.wait_s.mean())
    wait_s = min(waits, key=lambda each: abs(np.log1p(each) - np.log1p(real_s)))
    warning = f"the mean wait is {wait_s:,.0f} s in the replay, and was {real_s:,.0f} s as recorded"
    system, share = found.workload.system, found.busy / found.measures.machine
    used = f"as recorded, at most {format_percent(share)} of it was in use for 99 % of the time"
    if real_s >= MIN_MEAN_WAIT_S and wait_s * MAX_WAIT_RATIO < real_s:
        causes = "nodes that were down or reserved, partitions, limits, jobs missing from the file"
        return f"{warning}: {system} is larger than the machine that users could use ({causes}); {used}"
    if wait_s >= MIN_MEAN_WAIT_S and real_s * MAX_WAIT_RATIO < wait_s:
        causes = "missing nodes or partitions, jobs from other clusters in the file"
        return f"{warning}: {system} is smaller than the machine that users could use ({causes}); {used}"
    return ""
