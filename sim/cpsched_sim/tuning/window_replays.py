"""Replay windows with settings in worker processes, each combination at most once.

A result depends only on the window, the setting and the code. Each result is stored in its own file, so that a later
run, or a run resumed after Ctrl-C, can reuse it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field

from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
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
from cpsched_sim.tuning.window_scores import WindowMetricSums


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
