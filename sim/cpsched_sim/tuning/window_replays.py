"""Replay windows with settings in worker processes, each combination at most once, and score them.

A result depends only on the window, the setting and the code. Each result is stored in its own file, so that a later
run, or a run resumed after Ctrl-C, can reuse it. Scores are metrics, and intervals for ratios of two settings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cpsched.goal_presets import Goal, ratios_to_baseline
from cpsched.metrics import FloatArray, ScheduleData
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.bootstrap_statistics import bootstrap_interval, draw_resample_counts
from cpsched_sim.experiments.case_store import (
    Case,
    CaseRunner,
    CaseStore,
    ResultFormat,
    code_identity,
    compute_result_key,
)
from cpsched_sim.experiments.task_runner import LocalProcessExecutor, TaskFailure, Tell
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S
from cpsched_sim.simulation import ReplaySpec, replay_workload
from cpsched_sim.tuning.tuning_windows import TuningWindow


@dataclass(frozen=True, slots=True)
class WindowMetricSums:
    """Sums over a window's judged jobs, float64.

    Metrics over several windows are computed from these sums.
    """

    jobs: float
    wait_s: float
    slowdown: float
    response_s: float
    area: float
    area_response: float
    upper: float
    lower: float
    longest_s: float

    @classmethod
    def of(cls, measures: ScheduleData, from_s: int, to_s: int) -> WindowMetricSums:
        """Compute the sums over jobs that arrived in [`from_s`, `to_s`)."""
        judged = (measures.submit_s >= from_s) & (measures.submit_s < to_s)
        F, W, r = measures.response_s[judged], measures.wait_s[judged], measures.processors[judged].astype(np.float64)
        area = r * measures.run_s[judged]
        return cls(
            float(judged.sum()), float(W.sum()), float(measures.bounded_slowdown[judged].sum()), float(F.sum()),
            float(area.sum()), float((area * F).sum()), float((r * (F**4 - W**4)).sum()),
            float((r * (F**3 - W**3)).sum()), float(W.max(initial=0.0)),
        )  # fmt: skip


def goal_metric_values(tallies: Sequence[WindowMetricSums]) -> dict[str, float]:
    """Return the metrics in `goal_presets.GOAL_METRICS` over all jobs of the windows."""
    rows = _sums_by_window(tallies)
    found = _metrics_from_sums(rows[:, :-1].sum(axis=0), np.asarray(rows[:, -1].max()))
    return {name: float(value) for name, value in found.items()}


def _sums_by_window(tallies: Sequence[WindowMetricSums]) -> FloatArray:
    """Return the sums as float64[windows, sums]."""
    return np.array([astuple(tally) for tally in tallies])


def _resample_metrics(tallies: Sequence[WindowMetricSums]) -> dict[str, FloatArray]:
    """Return the metrics for each bootstrap draw of windows."""
    rows, weights = _sums_by_window(tallies), draw_resample_counts(len(tallies))
    return _metrics_from_sums(weights @ rows[:, :-1], np.where(weights > 0, rows[:, -1], 0.0).max(axis=1))


def _metrics_from_sums(sums: FloatArray, longest_s: FloatArray) -> dict[str, FloatArray]:
    """Return the metrics from sums, float64[..., sums], and the longest waits."""
    jobs, wait_s, slowdown, response_s, area, area_response, upper, lower = np.moveaxis(sums, -1, 0)
    return {
        "mean_wait": wait_s / jobs,
        "bsld": slowdown / jobs,
        "af": response_s / jobs,
        "awf": area_response / area,
        "p2sf": 0.75 * upper / lower,
        "longest": longest_s,
    }


def mean_metric_sums(tallies: Sequence[WindowMetricSums]) -> WindowMetricSums:
    """Return the mean over replays of one window with different seeds."""
    return WindowMetricSums(*_sums_by_window(tallies).mean(axis=0).tolist())


class RatioEstimate(NamedTuple):
    """A ratio with its confidence interval."""

    ratio: float
    low: float
    high: float


def paired_ratios(
    goal: Goal, these: Sequence[WindowMetricSums], those: Sequence[WindowMetricSums]
) -> dict[str, RatioEstimate]:
    """Return the `score` and each metric of one setting as ratios to another's.

    Both settings were replayed on the same windows.

    The intervals are bootstrap intervals: windows are drawn with replacement, the same for both settings. With fewer
    than two windows, the interval is unbounded.
    """
    centre = _add_score(goal, ratios_to_baseline(goal_metric_values(these), goal_metric_values(those)))
    if len(these) < 2:
        return {name: RatioEstimate(ratio, 0.0, math.inf) for name, ratio in centre.items()}
    resampled = _add_score(goal, ratios_to_baseline(_resample_metrics(these), _resample_metrics(those)))
    ends = {name: bootstrap_interval(draws, len(these)) or (0.0, math.inf) for name, draws in resampled.items()}
    return {name: RatioEstimate(ratio, *ends[name]) for name, ratio in centre.items()}


def _add_score(goal: Goal, found: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios, with the goal's score added."""
    total = sum(goal.weights.values())
    score = np.exp(sum(weight * np.log(found[name]) for name, weight in goal.weights.items()) / total)
    return {"score": score, **found}


def scores_by_window(goal: Goal, these: Sequence[WindowMetricSums], those: Sequence[WindowMetricSums]) -> list[float]:
    """Return the score of `these` relative to `those` for each window."""
    return [
        goal.score(ratios_to_baseline(goal_metric_values([a]), goal_metric_values([b])))
        for a, b in zip(these, those, strict=True)
    ]


Progress = Callable[[float, int], None]
"""A callback that receives the number of finished replays and the total number of replays."""


@dataclass(frozen=True, slots=True)
class SettingTrial:
    """A setting, and the windows on which to replay it."""

    spec: PolicySpec
    windows: tuple[TuningWindow, ...]


TrialOutcome = list[WindowMetricSums] | str
"""A trial's sums by window, or the reason why it failed."""
Trials = Callable[[Sequence[SettingTrial], Callable[[float], None]], list[TrialOutcome]]
"""A function that replays trials, reports the number of finished replays, and returns each trial's outcome."""


def replay_window_sums(
    spec: PolicySpec, window: TuningWindow, renew: Callable[..., None] | None = None
) -> WindowMetricSums:
    """Replay a window and return its sums.

    Raise the same exceptions as `replay_workload`, and `InputError` if judged jobs never started.
    """
    found = replay_workload(window.workload, ReplaySpec(spec), renew)
    tally = WindowMetricSums.of(found.measures, window.from_s, window.to_s)
    if tally.jobs < window.judged and not found.schedule.refused:
        raise InputError(f"{window.judged - tally.jobs:.0f} jobs never started")
    return tally


TRIAL_FORMAT = ResultFormat(
    ".tally",
    lambda sums: json.dumps(astuple(sums)).encode(),
    lambda content: WindowMetricSums(*map(float, json.loads(content))),
)


def trial_key(spec: PolicySpec, window: TuningWindow) -> str:
    """Return the key of the result of a setting on a window."""
    return compute_result_key({**code_identity(spec), "spec": str(spec), "window": window.digest})


@dataclass(slots=True)
class SettingTrialRunner:
    """A runner that replays trials in `processes` processes."""

    processes: int
    store: CaseStore = field(default_factory=lambda: CaseStore(None, TRIAL_FORMAT))
    limit_s: float = STALL_TIMEOUT_S

    def __call__(self, trials: Sequence[SettingTrial], report: Callable[[float], None]) -> list[TrialOutcome]:
        """Return each trial's sums by window, or its error."""
        cases = [Case(trial_key(each.spec, window), (each.spec, window)) for each in trials for window in each.windows]
        engine = LocalProcessExecutor(self.processes, self.limit_s, reuse=True)
        runner = CaseRunner(_replay_trial_task, engine, self.store)
        results = iter(runner.run(cases, lambda done, total: report(done)))
        return [_to_outcome([next(results) for _ in trial.windows]) for trial in trials]


def _to_outcome(results: list[WindowMetricSums | TaskFailure]) -> TrialOutcome:
    """Return the sums, or the error of the first window that failed."""
    errors = [str(result) for result in results if isinstance(result, TaskFailure)]
    return errors[0] if errors else [result for result in results if isinstance(result, WindowMetricSums)]


def _replay_trial_task(task: tuple[PolicySpec, TuningWindow], tell: Tell) -> WindowMetricSums:
    return replay_window_sums(*task, lambda *done: tell())
