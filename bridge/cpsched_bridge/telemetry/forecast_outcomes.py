"""Compare expected starts and predicted run times with actual values, and count the outcomes of the past week."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES, IntervalResult, StartForecast
from cpsched.formatting import format_duration
from cpsched.model import NEVER
from cpsched_bridge.cycle_report import CycleReport

MAX_STORED_ESTIMATES = 200_000
"""Maximum number of running jobs with a stored prediction. The oldest predictions are dropped first."""
HOUR_S = 3600
WEEK_H = 7 * 24
CLASS_LABELS = (*(f"later, up to {format_duration(most_s)}" for most_s in HORIZONS_S), "later, over 1 d", "first")
"""Label of each `StartForecast.outcome_class`. The horizon is the time from the forecast to its median."""
Counts = Mapping[tuple[int, IntervalResult], int]
"""Number of intervals by class and outcome."""


@dataclass(frozen=True, slots=True)
class StartTimeOutcome:
    """A started job's first expected start and actual start.

    Both are in seconds on the cluster's clock.
    """

    first_s: int
    start_s: int


@dataclass(frozen=True, slots=True)
class StartForecastScore:
    """The score of one start forecast.

    `outcome_class` is that of the forecast.
    """

    outcome_class: int
    outcome: IntervalResult
    """Outcome for the 80 % interval."""
    pinball_s: float
    width_s: int
    """Width of the 80 % interval in seconds."""

    @classmethod
    def of(cls, forecast: StartForecast, start_s: int) -> StartForecastScore:
        """Return the score of a forecast for a job that started at `start_s`."""
        width_s = forecast.to_s - forecast.from_s
        return cls(forecast.outcome_class, forecast.classify_outcome(start_s), forecast.pinball_s(start_s), width_s)


@dataclass(frozen=True, slots=True)
class RunTimeOutcome:
    """An ended job's actual run time, and the run time predicted at its start.

    Both are in seconds.
    """

    estimate_s: int
    run_s: int


@dataclass(frozen=True, slots=True)
class BridgeStatusFacts:
    """Facts about the bridge that its cycle reports do not contain."""

    interval_s: float = 0.0
    """Configured time in seconds from the start of one cycle to the start of the next."""
    journal_bytes: int = 0
    ledger_bytes: int = 0
    child_starts: int = 0
    """Number of processes that the adapter has started to access the cluster."""
    paused: str | None = None
    """Why the bridge is paused, or None if it is not paused."""


@dataclass(frozen=True, slots=True)
class CycleReportWithOutcomes:
    """A cycle's report and the outcomes that it revealed."""

    report: CycleReport
    kept: tuple[StartTimeOutcome, ...] = ()
    predicted: tuple[RunTimeOutcome, ...] = ()
    context: BridgeStatusFacts = field(default_factory=BridgeStatusFacts)
    child_restarts: int = 0
    """Number of restarts of the adapter's process since the previous cycle."""
    outcomes: Sequence[StartForecastScore] = ()
    """Scores of forecasts for jobs that have started since the previous cycle."""


@dataclass(slots=True)
class ForecastOutcomeTracker:
    """A tracker of pending jobs' expected starts and running jobs' predictions.

    Reports must be recorded in order.
    """

    first_planned_s: dict[int, int] = field(default_factory=dict)
    """First expected start by pending job's id. Replaced, never modified, because another thread may read it."""
    _estimates: OrderedDict[int, int] = field(default_factory=OrderedDict)
    _restarts: int = 0

    def record_report_and_get_outcomes(
        self, report: CycleReport, context: BridgeStatusFacts | None = None
    ) -> CycleReportWithOutcomes:
        """Process a cycle's report and return it with the outcomes that it revealed."""
        kept = tuple(
            StartTimeOutcome(self.first_planned_s[job.id], start_s)
            for job, start_s in report.changes.started
            if job.id in self.first_planned_s
        )
        self._record_run_time_predictions(report)
        predicted = tuple(
            RunTimeOutcome(self._estimates.pop(each.job.id), each.run_s)
            for each in report.changes.ended
            if each.job.id in self._estimates
        )
        self._record_first_expected_starts(report)
        context = context or BridgeStatusFacts()
        context = replace(context, paused=context.paused or report.role.paused or None)
        restarts, self._restarts = self._restarts, max(self._restarts, context.child_starts - 1)
        return CycleReportWithOutcomes(report, kept, predicted, context, self._restarts - restarts)

    def _record_run_time_predictions(self, report: CycleReport) -> None:
        """Record each job's prediction at its start.

        Later predictions depend on how long the job has run.
        """
        snapshot = report.decided.snapshot
        if snapshot is None:
            return
        table, known = snapshot.table, self._estimates
        slots = [*snapshot.queue.tolist(), *snapshot.running.tolist()] if report.changes.started or not known else []
        begun = {job.id for job, _ in report.changes.started}
        for slot in slots:
            if table.jobs[slot].id in begun:
                known.setdefault(table.jobs[slot].id, int(table.estimate_s[slot]))
        while len(known) > MAX_STORED_ESTIMATES:
            known.popitem(last=False)

    def _record_first_expected_starts(self, report: CycleReport) -> None:
        """Record the first expected starts. A cycle without a plan changes nothing."""
        snapshot, decision = report.decided.snapshot, report.decided.decision
        if snapshot is None or decision is None or decision.plan_s is None:
            return
        before, jobs, found = self.first_planned_s, snapshot.table.jobs, dict[int, int]()
        for slot, start_s in zip(snapshot.queue.tolist(), decision.plan_s.tolist(), strict=True):
            if start_s != NEVER:
                found[jobs[slot].id] = before.get(jobs[slot].id, start_s)
        for id in report.decided.starts:
            if id in before:
                found[id] = before[id]
            else:
                found.pop(id, None)  # the job started when first observed, so it had no expected start
        waiting = {pending.job.id for pending in report.observation.pending} if report.observation else set()
        found.update({id: each for id, each in before.items() if id in waiting and id not in found})
        self.first_planned_s = found


@dataclass(slots=True)
class PastWeekIntervalOutcomes:
    """Counts of interval outcomes per hour, at most a few hundred for a week."""

    hours: dict[int, dict[tuple[int, IntervalResult], int]] = field(default_factory=dict)
    """Counts by hour on the cluster's clock."""

    def add_outcome(self, outcome_class: int, outcome: IntervalResult, start_s: int) -> None:
        """Count the outcome of an interval whose job started at `start_s`."""
        hour = self.hours.setdefault(start_s // HOUR_S, {})
        hour[outcome_class, outcome] = hour.get((outcome_class, outcome), 0) + 1
        while len(self.hours) > WEEK_H + 1:
            del self.hours[min(self.hours)]

    def count_outcomes(self, now_s: int) -> Counts:
        """Return the counts for the week before `now_s`."""
        found: dict[tuple[int, IntervalResult], int] = {
            (at, outcome): 0 for at in range(len(CLASS_LABELS)) for outcome in INTERVAL_OUTCOMES
        }
        for hour, counts in list(self.hours.items()):
            if now_s // HOUR_S - WEEK_H < hour <= now_s // HOUR_S:
                for key, count in list(counts.items()):
                    found[key] += count
        return found
