"""Replay windows with settings in worker processes, each combination at most once.

A result depends only on the window, the setting and the code. Each result is stored in its own file, so that a later
run, or a run resumed after Ctrl-C, can reuse it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path

from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError, SimulationError
from cpsched_sim.experiments import result_keys
from cpsched_sim.experiments.task_runner import LocalProcessExecutor, TaskFailure, Tell, run_tasks
from cpsched_sim.file_io import write_atomically
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S
from cpsched_sim.simulation import ReplaySpec, replay_workload
from cpsched_sim.tuning.tuning_windows import TuningWindow
from cpsched_sim.tuning.window_scores import WindowMetricSums

MAX_UNUSED_DAYS = 60
"""Number of days after which unused results are deleted."""


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
    found = replay_workload(window.workload, ReplaySpec(spec), renew, before=window.history)
    tally = WindowMetricSums.of(found.measures, window.from_s, window.to_s)
    if tally.jobs < window.judged and not found.schedule.refused:
        raise InputError(f"{window.judged - tally.jobs:.0f} jobs never started")
    return tally


@dataclass(slots=True)
class TrialResultCache:
    """A cache of results in `folder`, one file per result.

    If `folder` is None, nothing is stored.
    """

    folder: Path | None
    taken: int = 0
    """Number of results found in the cache."""

    def find(self, spec: PolicySpec, window: TuningWindow) -> WindowMetricSums | None:
        """Return the stored result, or None if it is missing or unreadable."""
        if self.folder is None:
            return None
        path = self.folder / trial_result_file_name(spec, window)
        try:
            numbers = json.loads(path.read_bytes())
            found = WindowMetricSums(*map(float, numbers))
            path.touch()
        except (OSError, ValueError, TypeError):
            return None
        self.taken += 1
        return found

    def store_result(self, spec: PolicySpec, window: TuningWindow, tally: WindowMetricSums) -> None:
        """Store a result. Ignore write errors."""
        if self.folder is not None:
            with suppress(SimulationError):
                write_atomically(
                    self.folder / trial_result_file_name(spec, window), json.dumps(astuple(tally)).encode()
                )

    def delete_unused(self) -> None:
        """Delete results that have not been used for `MAX_UNUSED_DAYS`."""
        with suppress(OSError):
            for path in self.folder.glob("*.tally") if self.folder is not None else ():
                if time.time() - path.stat().st_mtime > 86_400 * MAX_UNUSED_DAYS:
                    path.unlink(missing_ok=True)


def trial_result_file_name(spec: PolicySpec, window: TuningWindow) -> str:
    """Return the file name of a result."""
    plugins = sorted(result_keys.plugin_digests(spec.dispatcher, spec.predictor).values())
    inputs = {"code": result_keys.code_digest(), "plugins": plugins, "spec": str(spec), "window": window.digest}
    return f"{result_keys.compute_result_key(inputs)}.tally"


@dataclass(slots=True)
class SettingTrialRunner:
    """A runner that replays trials in `processes` processes."""

    processes: int
    kept: TrialResultCache = field(default_factory=lambda: TrialResultCache(None))
    limit_s: float = STALL_TIMEOUT_S

    def __call__(self, trials: Sequence[SettingTrial], report: Callable[[float], None]) -> list[TrialOutcome]:
        """Return each trial's sums by window, or its error."""
        known = {
            (index, at): self.kept.find(trial.spec, window)
            for index, trial in enumerate(trials)
            for at, window in enumerate(trial.windows)
        }
        places = [place for place, tally in known.items() if tally is None]
        tasks = {at: (trials[index].spec, trials[index].windows[window]) for at, (index, window) in enumerate(places)}
        failed = dict[int, str]()

        def on_trial_result(at: int, outcome: WindowMetricSums | TaskFailure) -> None:
            index, window = places[at]
            if isinstance(outcome, TaskFailure):
                failed.setdefault(index, str(outcome))
            else:
                known[index, window] = outcome
                self.kept.store_result(trials[index].spec, trials[index].windows[window], outcome)

        engine = LocalProcessExecutor(self.processes, self.limit_s, reuse=True)
        run_tasks(
            _replay_trial_task,
            tasks,
            engine,
            on_trial_result,
            lambda done, total: report(done),
            len(known) - len(places),
        )
        return [
            failed.get(index) or [tally for (trial, _), tally in known.items() if trial == index and tally is not None]
            for index in range(len(trials))
        ]


def _replay_trial_task(task: tuple[PolicySpec, TuningWindow], tell: Tell) -> WindowMetricSums:
    return replay_window_sums(*task, lambda *done: tell())
