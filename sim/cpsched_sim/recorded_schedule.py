"""The schedule that a trace records: what people really waited, beside what a replay says they would have waited.

Both judge the same jobs by the same run times. The record knows more than a replay does: nodes that were down,
reservations, limits, people's own reasons. So the two are held against each other with care, and where one of them has
hardly any waits and the other has many (`mismatch_warning`), the replay is not of the machine that the record is from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cpsched.formatting import many
from cpsched.metrics import Metric, ScheduleData, step_counts
from cpsched_sim.replay_metrics import DecisionTimes, metric_values
from cpsched_sim.site.fairness import breakdown
from cpsched_sim.workloads.load import Workload

NAME = "as recorded"
"""What the recorded schedule is called where dispatchers have their names."""
WAITED_S = 60.0
"""A mean wait from which on people waited; below, what is told may be how long Slurm itself takes."""
OVER = 0.01
"""Part of the time in which more than there is may be in use: ends and starts of a record are not exact."""
APART = 10.0
"""How many times as long as the other the longer of two mean waits is, where they cannot be of one machine."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordedSchedule:
    """The recorded schedule of the jobs whose start the trace tells; every metric can be asked of its `measures`.

    - `unknown` counts the jobs of the workload whose start it does not tell.
    - `busy`: for 99 % of the time the others held no more processors than that at once.
    - `over`: part of the time in which they held more than the system has.
    """

    workload: Workload
    measures: ScheduleData
    unknown: int
    busy: int
    over: float

    def summary(self, more: Sequence[Metric] = ()) -> dict[str, Any]:
        """The figures that `Simulation.summary` has; nobody decided anything, so decisions have none."""
        site = self.workload.site
        return {
            **metric_values(self.measures, more),
            "rounds": None,
            "cpu_s": None,
            "violations": None,
            "dispatch": asdict(DecisionTimes.of(())),
            "paths": {},
            "start_unknown": self.unknown,
            **(breakdown(self.measures, site) if site is not None else {}),
        }

    def notes(self) -> list[str]:
        """What a reader of the figures must know, one sentence each."""
        jobs, machine, found = len(self.workload.jobs), self.measures.machine, list[str]()
        if self.unknown:
            found.append(
                f"{NAME}: without {self.unknown:,} of {many(jobs, 'job')}, whose start the trace does not tell"
            )
        if self.over > OVER:
            there = f"the {machine:,} {self.workload.cluster.resources[0]} of {self.workload.system}"
            found.append(
                f"{NAME}: for {self.over:.0%} of the time more than {there} were in use, often {self.busy:,}: "
                "the machine was larger, or the record is inexact"
            )
        return found

    def __repr__(self) -> str:
        rows = metric_values(self.measures).items()
        return "\n".join([f"{NAME}: {self.workload.name}", *(f"  {name:<14}{value:>14,.5g}" for name, value in rows)])


def recorded_schedule_of(workload: Workload) -> RecordedSchedule | None:
    """The schedule that the workload's trace records; None where it tells no start."""
    known = [item for item in workload.jobs if item.recorded_start_s is not None]
    if not known:
        return None
    jobs = [item.job for item in known]
    start_s = np.array([item.recorded_start_s for item in known], np.int64)
    end_s = start_s + np.array([item.run_s for item in known], np.int64)
    processors = np.array([job.request.units * job.request.per_unit[0] for job in jobs], np.int64)
    machine = int(workload.cluster.capacity[:, 0].sum())
    measures = ScheduleData(
        submit_s=np.array([job.submit_s for job in jobs], np.int64),
        start_s=start_s,
        end_s=end_s,
        processors=processors,
        machine=machine,
        jobs=jobs,
    )
    at_s, held = step_counts(start_s, end_s, processors)
    lasted_s, held = np.diff(at_s), held[:-1]
    rising = np.argsort(held, kind="stable")
    busy = held[rising][np.searchsorted(np.cumsum(lasted_s[rising]), 0.99 * lasted_s.sum())]
    over = lasted_s[held > machine].sum() / lasted_s.sum()
    return RecordedSchedule(workload, measures, len(workload.jobs) - len(known), int(busy), float(over))


def mismatch_warning(found: RecordedSchedule | None, replayed_wait_s: Iterable[float]) -> str:
    """Why replays with these mean waits may not be of the machine that the record is from; "" where they may be.

    Of several replays the one that is nearest to the record counts: where one dispatcher alone is far off, the system
    is not to blame.
    """
    waits = list(replayed_wait_s)
    if found is None or not waits:
        return ""
    real_s = float(found.measures.wait_s.mean())
    wait_s = min(waits, key=lambda each: abs(np.log1p(each) - np.log1p(real_s)))
    said = f"the mean wait is {wait_s:,.0f} s in the replay, and was {real_s:,.0f} s as recorded"
    system, share = found.workload.system, found.busy / found.measures.machine
    used = f"as recorded, no more than {share:.0%} of it was in use for 99 % of the time"
    if real_s >= WAITED_S and wait_s * APART < real_s:
        causes = "nodes that were down or reserved, partitions, limits, jobs that the file lacks"
        return f"{said}: {system} is larger than what people could use ({causes}); {used}"
    if wait_s >= WAITED_S and real_s * APART < wait_s:
        causes = "nodes or partitions that it lacks, jobs of other clusters in the file"
        return f"{said}: {system} is smaller than what people could use ({causes}); {used}"
    return ""
