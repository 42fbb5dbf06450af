"""Measure start forecasts in a replay, and compare them with the recorded estimates of `squeue --start`.

The measures are the coverage, pinball loss and width of intervals, by forecast horizon.

`cpsched.forecast.issued_forecasts` decides which job receives a forecast and when. At any time, the model has learned
only from jobs that have already started or ended, and knows nothing about the rest of the trace. It learns from all
jobs, but only the forecasts for the second half of the jobs are measured.

`cpsched record-slurm-estimates` records Slurm's estimates. They and the forecasts are measured against the recorded
starts. A forecast is compared with the nearest estimate of its job, which was recorded at most `NEAREST_S` earlier or
later.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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
from cpsched.model import NEVER, Cluster, Decision, IntArray, Need, Snapshot
from cpsched.planning import GREEDY, plan
from cpsched.policy import Policy
from cpsched.run_time_model import RunTimeModel
from cpsched_sim.cluster.replay import Progress, ReplayOptions, TraceReplay, check_all_started
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.experiments.bootstrap_statistics import FloatArray, bootstrap_interval, draw_resample_counts
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.traces.trace_jobs import ColumnarTrace, TraceJob
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


class StartForecastReplay:
    """A replay that issues forecasts for waiting jobs and learns from their outcomes."""

    def __init__(
        self, trace: Sequence[TraceJob], cluster: Cluster, policy: Policy, options: ReplayOptions | None = None
    ) -> None:
        self.replay = TraceReplay(trace, cluster, policy, options)
        self.replay.build_jobs()  # because every sample reads them
        self._run_times, self._calibration = RunTimeModel(), StartCalibrator()
        self._issued, self._next_issue_s = IssuedStartForecasts(), 0
        self._due_s = np.zeros(len(trace), np.int64)

    def replay_all(self) -> list[StartForecastOutcome]:
        """Run until no events remain.

        Return each forecast with its job's actual start, in order of the starts.
        """
        cases, planned_s = list[StartForecastOutcome](), dict[tuple[int, int], int]()
        for snapshot, decision in self.replay.rounds(self._needs_plan, self._run_times.learn):
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

    def _needs_plan(self, snapshot: Snapshot) -> bool:
        now_s = snapshot.now_s
        return now_s >= self._next_issue_s and bool((self._due_s[snapshot.queue] <= now_s).any())

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


class RecordedStartPolicy(Policy):
    """A policy with recorded starts, delayed until jobs fit. The dispatcher only plans."""

    def __init__(self, policy: Policy, recorded_start_s: IntArray) -> None:
        super().__init__(policy.predictor, policy.dispatcher, policy.overrun)
        self._recorded_start_s = recorded_start_s

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Return the dispatcher's plan with the recorded starts."""
        at_s = self._recorded_start_s[snapshot.queue]
        is_due = at_s <= snapshot.now_s
        due = replace(snapshot, queue=snapshot.queue[is_due], by_construction=True)
        starts = plan(due, at_s[is_due], GREEDY, need="starts").starts
        decision = super().decide(snapshot, need)
        again_s = min(int(at_s[~is_due].min(initial=NEVER)), NEVER if decision.again_s is None else decision.again_s)
        return replace(decision, starts=starts, again_s=again_s)


def replay_start_forecasts(
    workload: Workload, policy: Policy, progress: Progress | None = None, as_recorded: bool = False
) -> list[StartForecastOutcome]:
    """Return the forecasts for the second half of the jobs, with the real starts.

    The policy also starts the jobs, or `as_recorded` starts each at its recorded start, as in the bridge's shadow mode.
    Raise `PolicyError` if the policy fails.
    """
    if as_recorded:
        policy = RecordedStartPolicy(policy, ColumnarTrace.of(workload.jobs).recorded_start_s)
    options = ReplayOptions(progress=progress, strict=True)
    forecasts = StartForecastReplay(workload.jobs, workload.cluster, policy, options)
    found, schedule = forecasts.replay_all(), forecasts.replay.schedule
    check_all_started(workload.jobs, schedule.start_s, schedule.refused, policy)
    return [each for each in found if each.job >= len(workload.jobs) // 2]


HEADING = "at_unix_s,job,start_unix_s"
"""Header of a recording: time of the estimate, job id in `squeue`, and estimated start (empty if Slurm has none)."""
NEAREST_S = 60
_DAY_S = 86_400
_Nearest = dict[tuple[str, int], tuple[int, int | None]]
"""Distance and value of an estimate, by job and moment."""


def read_slurm_start_estimates(path: Path) -> Iterator[tuple[int, str, int | None]]:
    """Yield the rows of a recording. Raise `InputError` or `InvalidTrace`."""
    for number, line in read_text_lines(path):
        text = line.strip()
        if number == 1 and text != HEADING:
            raise InvalidTrace(path, 1, "header", text, f"must be {HEADING}, as record-slurm-estimates writes it")
        if number > 1:
            try:
                at_s, job, start_s = text.split(",")
                yield int(at_s), job, int(start_s) if start_s else None
            except ValueError:
                raise InvalidTrace(path, number, "row", text, f"must be {HEADING}") from None


def compare_forecasts_with_slurm(
    workload: Workload, policy: Policy, path: Path, ids: Mapping[int, str], progress: Progress | None = None
) -> dict[str, Any]:
    """Return the errors of the forecasts and of the estimates in `path`, for JSON.

    The forecasts are for the second half of the jobs.

    Each estimate is used for all quantiles in the pinball loss. Differences are forecasts minus estimates.
    `ids` contains the ids in `squeue` of jobs whose number in the trace differs. Raise `InputError` if a recorded start
    is missing, or if no forecast has an estimate.
    """
    recorded_s, epoch_s = ColumnarTrace.of(workload.jobs).recorded_start_s, workload.cluster.epoch_s
    if (recorded_s == NEVER).any():
        raise InputError(f"{workload.name}: a comparison with squeue --start requires the recorded start of each job")
    forecasts, wanted = [], dict[str, list[int]]()
    for case in replay_start_forecasts(workload, policy, progress, as_recorded=True):
        id, start_s, at_s = workload.jobs[case.job].job.id, int(recorded_s[case.job]), case.told.issued_at_s
        if at_s < start_s:  # otherwise, the job started late in the replay
            key = ids.get(id, str(id)), at_s + epoch_s
            forecasts.append((key, start_s, case.told.median_s, case.told.pinball_s(start_s)))
            wanted.setdefault(key[0], []).append(key[1])
    found = _nearest_estimates(path, wanted)
    pairs = [(found[each[0]][1], each) for each in forecasts if each[0] in found]
    known = [(estimate_s - epoch_s, key[1], *rest) for estimate_s, (key, *rest) in pairs if estimate_s is not None]
    if not known:
        raise InputError(
            f"{path}: no estimated start within {NEAREST_S} s of any of the {len(forecasts):,} forecasts (N/A for "
            f"{len(pairs):,} of them). The file must cover the trace's cluster and weeks. If it does, set the trace's "
            "time zone with --zone"
        )
    estimate_s, at_unix_s, start_s, median_s, losses_s = np.array(known).T
    slurm_losses_s = np.array([pinball_loss_s((int(row[0]),) * len(LEVELS), int(row[2])) for row in known])
    days, day = np.unique(at_unix_s // _DAY_S, return_inverse=True)
    sums, counts, drawn = np.bincount(day, losses_s - slurm_losses_s), np.bincount(day), draw_resample_counts(len(days))
    return {
        "cases": len(known), "without_estimate": len(pairs) - len(known), "days": len(days),
        "slurm": _forecast_error_statistics(slurm_losses_s, estimate_s - start_s),
        "forecast": _forecast_error_statistics(losses_s, median_s - start_s),
        "pinball_difference_s": float(sums.sum() / len(known)),
        "pinball_difference_interval_s": bootstrap_interval((drawn @ sums) / (drawn @ counts), len(days)),
    }  # fmt: skip


def _forecast_error_statistics(losses_s: FloatArray, errors_s: FloatArray) -> dict[str, float]:
    """Return mean pinball loss, mean absolute error, and percentages of close starts."""
    sizes_s = np.abs(errors_s)
    within = {f"within_{minutes}_min": 100 * float((sizes_s <= 60 * minutes).mean()) for minutes in (1, 10)}
    return {"pinball_s": float(losses_s.mean()), "absolute_error_s": float(sizes_s.mean()), **within}


def _nearest_estimates(path: Path, wanted: Mapping[str, Sequence[int]]) -> _Nearest:
    """Return the estimate nearest to each moment for which a job has a forecast.

    The moments in `wanted` are ascending.
    """
    found: _Nearest = {}
    for at_s, job, start_s in read_slurm_start_estimates(path):
        moments = wanted.get(job, ())
        for moment_s in moments[bisect_left(moments, at_s - NEAREST_S) : bisect_right(moments, at_s + NEAREST_S)]:
            distance_s = abs(at_s - moment_s)
            if distance_s < found.get((job, moment_s), (NEVER, None))[0]:
                found[job, moment_s] = distance_s, start_s
    return found
