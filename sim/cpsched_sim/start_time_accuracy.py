"""Measure the accuracy of start-time forecasts: the first forecast for each job compared with its real start.

The dispatcher makes a plan in every round of a replay, even if no job can start. The first planned start of a job is
its forecast. A job that starts in the round in which it is first planned has no forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cpsched import forecast
from cpsched.model import NEVER, NO_STARTS, Decision, IntArray, Snapshot
from cpsched.policy import Policy
from cpsched_sim.cluster.cluster_events import FAULTY, PAUSE_ALWAYS
from cpsched_sim.cluster.replay import Progress, TraceReplay, check_all_started
from cpsched_sim.workloads.load import Workload

HORIZONS_S: tuple[tuple[str, int], ...] = tuple(
    zip(("up to 15 min", "up to 1 h", "up to 6 h", "up to 24 h", "later"), (*forecast.HORIZONS_S, NEVER), strict=True)
)
"""Forecast horizons with their upper bounds in seconds."""


@dataclass(frozen=True, slots=True)
class StartTimeErrors:
    """Forecast errors of one horizon, in seconds: the real start minus the forecast start."""

    jobs: int
    on_time: float
    """Share of jobs that started no later than forecast."""
    median_error_s: float
    mean_error_s: float
    mean_absolute_error_s: float
    late_p95_s: float
    """95th percentile of the errors, where early starts count as 0."""

    @classmethod
    def of(cls, error_s: IntArray) -> StartTimeErrors:
        """Compute the statistics from the errors of at least one job."""
        late_s = np.maximum(error_s, 0)
        return cls(
            jobs=len(error_s),
            on_time=float((error_s <= 0).mean()),
            median_error_s=float(np.median(error_s)),
            mean_error_s=float(error_s.mean()),
            mean_absolute_error_s=float(np.abs(error_s).mean()),
            late_p95_s=float(np.quantile(late_s, 0.95)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FirstStartForecasts:
    """Forecasts for the jobs that waited, int64 by job: time of the forecast, forecast start, real start."""

    told_at_s: IntArray
    told_s: IntArray
    start_s: IntArray

    def errors_by_horizon(self) -> dict[str, StartTimeErrors]:
        """Return the errors by horizon and overall ("all"), without horizons that have no job."""
        error_s, ahead_s = self.start_s - self.told_s, self.told_s - self.told_at_s
        found, least_s = {}, 0
        for name, most_s in HORIZONS_S:
            these = (ahead_s > least_s) & (ahead_s <= most_s)
            least_s = most_s
            if these.any():
                found[name] = StartTimeErrors.of(error_s[these])
        return found | ({"all": StartTimeErrors.of(error_s)} if len(error_s) else {})


class PlannedRoundReplay(TraceReplay):
    """A replay that yields each round with its plan, even if no job can start."""

    def rounds(self, learns: bool) -> Iterator[tuple[Snapshot, Decision]]:
        """Yield each snapshot and decision; a decision is applied when the next pair is requested.

        With `learns`, call `learn` after jobs have ended.
        """
        starts = NO_STARTS
        while found := self.state.step(starts, PAUSE_ALWAYS):
            starts = NO_STARTS
            if found == FAULTY:
                self.record_rejection(self.decision, self.snapshot)
                continue
            if learns:
                self.learn()
            now = self.state.snapshot()
            if not len(now.queue):
                continue
            self.record_decision(self.decide_within_limits(None, now, "plan"))
            self.report_progress()
            starts = self.decision.starts
            yield self.snapshot, self.decision


def first_forecasts(workload: Workload, policy: Policy, progress: Progress | None = None) -> FirstStartForecasts:
    """Return a policy's first forecasts for the jobs of a workload. Raise `PolicyError` if the policy fails."""
    replay = PlannedRoundReplay(workload.jobs, workload.cluster, policy, progress=progress, strict=True)
    told_s, told_at_s = (np.full(replay.total, NEVER, np.int64) for _ in range(2))
    for snapshot, decision in replay.rounds(replay.predictor_learns or replay.dispatcher_learns):
        if decision.plan_s is not None:
            new = (told_s[snapshot.queue] == NEVER) & (decision.plan_s != NEVER)
            told_s[snapshot.queue[new]], told_at_s[snapshot.queue[new]] = decision.plan_s[new], snapshot.now_s
    start_s = replay.state.table.start_s[: replay.total]
    check_all_started(workload.jobs, start_s, replay.refused, policy)
    waited = (start_s != NEVER) & (told_s != NEVER) & (told_s > told_at_s)
    return FirstStartForecasts(told_at_s[waited], told_s[waited], start_s[waited])
