"""Measure the coverage of start-time prediction intervals (nominal 80 %) by forecast horizon.

`cpsched.forecast.issued_forecasts` decides which job receives an interval and when. At any time, the model has learned
only from jobs that have already started or ended; it has no advance knowledge of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from cpsched.forecast import SAMPLES, IntervalCalibrator, IssuedStartForecasts, StartTimeInterval, sample_starts
from cpsched.model import IntArray, Snapshot
from cpsched.policy import Policy
from cpsched.run_time_model import RunTimeModel
from cpsched_sim.cluster.replay import Progress, check_all_started
from cpsched_sim.start_time_accuracy import HORIZONS_S, PlannedRoundReplay
from cpsched_sim.workloads.load import Workload


@dataclass(frozen=True, slots=True)
class IntervalCoverage:
    """The coverage of the intervals of one horizon."""

    told: int
    held: float
    """Share of jobs whose real start is within the interval."""
    early: float
    """Share of jobs whose real start is before the interval."""
    late: float
    median_width_s: float
    median_wait_s: float
    """Median of the real waits, counted from the time of the forecast."""


@dataclass(frozen=True, slots=True)
class IntervalOutcome:
    """An issued interval and the real start of its job."""

    told: StartTimeInterval
    start_s: int


def coverage_by_horizon(outcomes: Sequence[IntervalOutcome]) -> dict[str, IntervalCoverage]:
    """Return the coverage by horizon and overall ("all"), without horizons that have no interval."""
    found = {
        name: [each for each in outcomes if each.told.horizon == horizon]
        for horizon, (name, _) in enumerate(HORIZONS_S)
    }
    return {name: _kept(these) for name, these in (*found.items(), ("all", list(outcomes))) if these}


def _kept(outcomes: Sequence[IntervalOutcome]) -> IntervalCoverage:
    became = [each.told.classify_outcome(each.start_s) for each in outcomes]
    early, late = (np.array([each == outcome for each in became]) for outcome in ("early", "late"))
    return IntervalCoverage(
        told=len(outcomes),
        held=float(1 - early.mean() - late.mean()),
        early=float(early.mean()),
        late=float(late.mean()),
        median_width_s=float(np.median([each.told.to_s - each.told.from_s for each in outcomes])),
        median_wait_s=float(np.median([each.start_s - each.told.issued_at_s for each in outcomes])),
    )


class IntervalForecastReplay(PlannedRoundReplay):
    """A replay that issues start-time intervals for jobs and learns from their outcomes."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._run_times, self._calibration = RunTimeModel(), IntervalCalibrator()

    def replay_all(self) -> list[IntervalOutcome]:
        """Run until no event is left; return each interval with the real start of its job, in order of the starts."""
        outcomes, telling = list[IntervalOutcome](), IssuedStartForecasts()
        for snapshot, decision in self.rounds(learns=True):
            now_s, started = snapshot.now_s, decision.starts.slots.tolist()
            for slot in started:
                for interval in telling.take_forecasts(slot):
                    self._calibration.record_outcome(interval, now_s)
                    outcomes.append(IntervalOutcome(interval, now_s))
            waiting = sorted(set(snapshot.queue.tolist()).difference(started))
            chosen = telling.due_jobs(now_s, waiting)
            if chosen and decision.plan_s is not None:
                found = self._intervals(snapshot, decision.plan_s, chosen)
                telling.issue(now_s, dict(zip(chosen, found, strict=True)))
        return outcomes

    @override
    def learn(self) -> None:
        """Learn from ended jobs and their run times."""
        for slot in self.state.state.ended[: self.state.state.ended_count].tolist():
            self._run_times.learn(self.state.ended_job(slot))
        super().learn()

    def _intervals(self, snapshot: Snapshot, plan_s: IntArray, chosen: Sequence[int]) -> list[StartTimeInterval]:
        drawn_s = sample_starts(snapshot, plan_s, self._run_times, SAMPLES, snapshot.now_s)
        position = {slot: at for at, slot in enumerate(snapshot.queue.tolist())}
        at = [position[slot] for slot in chosen]
        jobs = [snapshot.table.jobs[slot] for slot in chosen]
        return self._calibration.predict_intervals(snapshot.now_s, jobs, plan_s[at].tolist(), drawn_s[:, at])


def replay_intervals(workload: Workload, policy: Policy, progress: Progress | None = None) -> list[IntervalOutcome]:
    """Return the intervals issued for the jobs of a workload under a policy, with the real starts.

    Raise `PolicyError` if the policy fails.
    """
    replay = IntervalForecastReplay(workload.jobs, workload.cluster, policy, progress=progress, strict=True)
    found = replay.replay_all()
    check_all_started(workload.jobs, replay.state.table.start_s[: replay.total], replay.refused, policy)
    return found
