"""Measure start forecasts in a replay.

The measures are the coverage, pinball loss and width of intervals, by forecast horizon.

`cpsched.forecast.issued_forecasts` decides which job receives a forecast and when. At any time, the model has learned
only from jobs that have already started or ended, and knows nothing about the rest of the trace. It learns from all
jobs, but only the forecasts for the second half of the jobs are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from cpsched.forecast import (
    HORIZONS_S,
    INTERVALS,
    LEVELS,
    SAMPLES,
    IssuedStartForecasts,
    StartCalibrator,
    StartForecast,
    pinball_loss_s,
    sample_starts,
    select_one_per_class,
)
from cpsched.model import NEVER, NO_STARTS, Decision, IntArray, Need, Snapshot
from cpsched.planning import GREEDY, plan
from cpsched.policy import Policy
from cpsched.run_time_model import RunTimeModel
from cpsched.site.admission import PendingJobLimitsAndUsage
from cpsched_sim.cluster.event_kernels import FAULTY, MAY_START, PAUSE_ALWAYS
from cpsched_sim.cluster.replay import Progress, TraceReplay, check_all_started
from cpsched_sim.traces.columnar_trace import ColumnarTrace
from cpsched_sim.traces.trace_job import TraceJob
from cpsched_sim.workloads.workload_loader import Workload

LONG_QUEUE_JOBS = 100
"""Number of waiting jobs above which forecasts are issued at most once a minute, as in the bridge."""
LONG_QUEUE_PAUSE_S = 60


@dataclass(frozen=True, slots=True)
class StartForecastOutcome:
    """A forecast and the real start of its job."""

    job: int
    """Index of the job in the trace."""
    told: StartForecast
    planned_s: int | None
    """The dispatcher's own estimate at the same time, or None if it has none for this job."""
    start_s: int


@dataclass(frozen=True, slots=True)
class StartForecastAccuracy:
    """The accuracy of one horizon's forecasts and of the dispatcher's own estimates.

    A figure without cases is None.
    """

    cases: int
    coverage: dict[str, float | None]
    """Percentage of starts within the interval, by nominal percentage."""
    pinball_s: float | None
    """Mean pinball loss of the quantiles 5, 10, 25, 50, 75, 90 and 95 %."""
    median_width_80_s: float | None
    within_1_min: float | None
    """Percentage of median forecasts within one minute of the start."""
    within_10_min: float | None
    estimates: int
    """Number of cases with an estimate by the dispatcher."""
    estimate_pinball_s: float | None
    """Pinball loss of the estimates, with each estimate used for all quantiles."""
    estimated_pinball_s: float | None
    """Pinball loss of the forecasts in the cases with an estimate."""

    @classmethod
    def of(cls, cases: Sequence[StartForecastOutcome]) -> StartForecastAccuracy:
        """Compute the figures."""
        if not cases:
            return cls(0, dict.fromkeys(map(str, INTERVALS)), None, None, None, None, 0, None, None)
        start_s = np.array([each.start_s for each in cases])
        ends = {percent: np.array([each.told.interval(percent) for each in cases]) for percent in INTERVALS}
        error_s = np.abs(start_s - np.array([each.told.median_s for each in cases]))
        losses_s = np.array([each.told.pinball_s(each.start_s) for each in cases])
        single = [(at, each.planned_s, each.start_s) for at, each in enumerate(cases) if each.planned_s is not None]
        return cls(
            cases=len(cases),
            coverage={
                str(percent): _percent_true((end[:, 0] <= start_s) & (start_s <= end[:, 1]))
                for percent, end in ends.items()
            },
            pinball_s=float(losses_s.mean()),
            median_width_80_s=float(np.median(ends[80][:, 1] - ends[80][:, 0])),
            within_1_min=_percent_true(error_s <= 60),
            within_10_min=_percent_true(error_s <= 600),
            estimates=len(single),
            estimate_pinball_s=(
                float(np.mean([pinball_loss_s((told,) * len(LEVELS), start) for _, told, start in single]))
                if single
                else None
            ),
            estimated_pinball_s=float(losses_s[[at for at, _, _ in single]].mean()) if single else None,
        )

    def columns(self) -> dict[str, float]:
        """Return the figures as the columns of a table, with nan for a missing figure."""
        facts = {
            "cases": self.cases,
            **{f"coverage_{percent}": held for percent, held in self.coverage.items()},
            "pinball_s": self.pinball_s,
            "median_width_80_s": self.median_width_80_s,
            "within_1_min": self.within_1_min,
            "within_10_min": self.within_10_min,
            "estimate_pinball_s": self.estimate_pinball_s,
            "estimated_pinball_s": self.estimated_pinball_s,
        }
        return {name: math.nan if fact is None else fact for name, fact in facts.items()}


def _percent_true(held: np.ndarray) -> float:
    return 100 * float(held.mean())


def accuracy_by_horizon(cases: Sequence[StartForecastOutcome]) -> list[tuple[int, int | None, StartForecastAccuracy]]:
    """Return (from, to, accuracy) for each horizon with a case, in seconds.

    The last horizon has no end.
    """
    ends = (0, *HORIZONS_S, None)
    found = [[each for each in cases if each.told.horizon_class == horizon] for horizon in range(len(HORIZONS_S) + 1)]
    return [(ends[at] or 0, ends[at + 1], StartForecastAccuracy.of(these)) for at, these in enumerate(found) if these]


class PlanYieldingReplay(TraceReplay):
    """A replay that yields each round with its decision, also if no job starts."""

    def needs_plan(self, snapshot: Snapshot) -> bool:
        """Return whether a round needs a plan; otherwise, it is skipped if no job fits."""
        return True

    def rounds(self, learns: bool) -> Iterator[tuple[Snapshot, Decision]]:
        """Yield each snapshot with its decision.

        The decision is applied when the next pair is requested.

        With `learns`, call `learn` after jobs have ended.
        """
        starts = NO_STARTS
        while found := self.state.start_and_advance(starts, PAUSE_ALWAYS):
            starts = NO_STARTS
            if found == FAULTY:
                self.record_rejection(self.decision, self.snapshot)
                continue
            if learns:
                self.learn()
            now = self.state.snapshot()
            needs_plan = bool(len(now.queue)) and self.needs_plan(now)
            if not needs_plan and ((found != MAY_START and not self.decides_every_round) or not len(now.queue)):
                continue
            self.record_decision(self.decide_within_limits(None, now, "plan" if needs_plan else "starts"))
            self.report_progress()
            starts = self.decision.starts
            yield self.snapshot, self.decision


class StartForecastReplay(PlanYieldingReplay):
    """A replay that issues forecasts for waiting jobs and learns from their outcomes."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._run_times, self._calibration = RunTimeModel(), StartCalibrator()
        self._issued, self._next_issue_s = IssuedStartForecasts(), 0
        self._due_s = np.zeros(self.total, np.int64)
        # Every sample reads the jobs, and a lazy sequence would build them each time.
        self.state.replace_jobs(list(self.state.jobs))

    def replay_all(self) -> list[StartForecastOutcome]:
        """Run until no events remain.

        Return each forecast with its job's actual start, in order of the starts.
        """
        cases, planned_s = list[StartForecastOutcome](), dict[tuple[int, int], int]()
        for snapshot, decision in self.rounds(learns=True):
            now_s, started = snapshot.now_s, decision.starts.slots.tolist()
            for slot in started:
                for told in select_one_per_class(self._issued.take_forecasts(slot)):
                    self._calibration.record_outcome(told, now_s)
                    estimate_s = planned_s.pop((slot, told.issued_at_s))
                    cases.append(StartForecastOutcome(slot, told, estimate_s if estimate_s != NEVER else None, now_s))
            if decision.plan_s is None or now_s < self._next_issue_s:
                continue
            waiting = np.setdiff1d(snapshot.queue, decision.starts.slots)
            if chosen := waiting[self._due_s[waiting] <= now_s].tolist():
                found = self._issue_forecasts(snapshot, decision.plan_s, chosen)
                self._issued.store_issued({slot: told for slot, (told, _) in found.items()})
                self._due_s[list(found)] = [self._issued.next_due_s(slot) for slot in found]
                planned_s.update({(slot, now_s): estimate_s for slot, (_, estimate_s) in found.items()})
                self._next_issue_s = now_s + (LONG_QUEUE_PAUSE_S if len(waiting) > LONG_QUEUE_JOBS else 0)
        return cases

    @override
    def needs_plan(self, snapshot: Snapshot) -> bool:
        now_s = snapshot.now_s
        return now_s >= self._next_issue_s and bool((self._due_s[snapshot.queue] <= now_s).any())

    @override
    def learn(self) -> None:
        """Learn from ended jobs and their run times."""
        for slot in self.state.state.ended[: self.state.state.ended_count].tolist():
            self._run_times.learn(self.state.ended_job(slot))
        super().learn()

    def _sample_starts(self, snapshot: Snapshot, plan_s: IntArray) -> IntArray:
        return sample_starts(snapshot, plan_s, self._run_times, SAMPLES, snapshot.now_s)

    def _issue_forecasts(
        self, snapshot: Snapshot, plan_s: IntArray, chosen: Sequence[int]
    ) -> dict[int, tuple[StartForecast, int]]:
        """Return the forecast and planned start of each selected job that can start."""
        queue = snapshot.queue.tolist()
        self._calibration.observe_waiting(snapshot.now_s, self._issued.forecasts_of(queue))
        drawn_s = self._sample_starts(snapshot, plan_s)
        can_start = (drawn_s != NEVER).all(axis=0)
        position = {slot: at for at, slot in enumerate(queue)}
        slots = [slot for slot in chosen if can_start[position[slot]]]
        at, jobs = [position[slot] for slot in slots], [snapshot.table.jobs[slot] for slot in slots]
        planned_s = plan_s[at].tolist()
        is_first = [self._issued.is_first(slot, snapshot.now_s) for slot in slots]
        told = self._calibration.forecast(snapshot.now_s, jobs, planned_s, drawn_s[:, at], is_first)
        return dict(zip(slots, zip(told, planned_s, strict=True), strict=True))


class RecordedStartReplay(StartForecastReplay):
    """A replay with recorded starts, delayed until jobs fit. The policy only plans."""

    def __init__(self, jobs: Sequence[TraceJob], *more: Any, **options: Any) -> None:
        super().__init__(jobs, *more, **options)
        self._at_s = ColumnarTrace.of(jobs).recorded_start_s

    @override
    def decide_within_limits(self, limits: PendingJobLimitsAndUsage | None, snapshot: Snapshot, need: Need) -> Decision:
        """Return the policy's plan with the recorded starts."""
        at_s = self._at_s[snapshot.queue]
        is_due = at_s <= snapshot.now_s
        due = replace(snapshot, queue=snapshot.queue[is_due], by_construction=True)
        starts = plan(due, at_s[is_due], GREEDY, need="starts").starts
        decision = super().decide_within_limits(limits, snapshot, need)
        again_s = min(int(at_s[~is_due].min(initial=NEVER)), NEVER if decision.again_s is None else decision.again_s)
        return replace(decision, starts=starts, again_s=again_s)


def replay_start_forecasts(
    workload: Workload, policy: Policy, progress: Progress | None = None, as_recorded: bool = False
) -> list[StartForecastOutcome]:
    """Return the forecasts for the second half of the jobs, with the real starts.

    The policy also starts the jobs, or `as_recorded` starts each at its recorded start, as in the bridge's shadow mode.
    Raise `PolicyError` if the policy fails.
    """
    kind = RecordedStartReplay if as_recorded else StartForecastReplay
    replay = kind(workload.jobs, workload.cluster, policy, progress=progress, strict=True)
    found = replay.replay_all()
    check_all_started(workload.jobs, replay.state.table.start_s[: replay.total], replay.refused, policy)
    return [each for each in found if each.job >= replay.total // 2]
