"""Replays of windows under settings: in processes or in this one, and none of them twice.

A result depends on the window, the setting and the code alone. Each is kept in a small file of its own, so that a
second run, or one that goes on after Ctrl-C, takes what is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from cpsched.errors import CpschedError
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import SimError, Unusable
from cpsched_sim.experiment import Setup, run
from cpsched_sim.experiments import keys
from cpsched_sim.files import write_whole
from cpsched_sim.patience import LIMIT_S, patience
from cpsched_sim.processes import Died, side_by_side
from cpsched_sim.tuning.judging import FigureSums
from cpsched_sim.tuning.windows import TraceWindow

MOST_AT_ONCE = 6
"""Trials that one process takes."""
KEPT_DAYS = 60
"""Results that nobody asked for so long are taken away."""


@dataclass(frozen=True, slots=True)
class SettingTrial:
    """A setting that is to be replayed on some windows."""

    spec: PolicySpec
    windows: tuple[TraceWindow, ...]
    limit_s: float = LIMIT_S
    """How long a replay may go on without progress; 0: for ever."""


Outcome = list[FigureSums] | str
"""The tallies of a trial by its windows, or why there are none."""
Note = Callable[[SettingTrial, int, FigureSums], None]
"""Is told of each replay: the trial, which of its windows, and what came of it."""
Trials = Callable[[Sequence[SettingTrial], Callable[[float], None]], list[Outcome]]
"""What replays trials, and is told how many replays more are done: the tallies of each, or why there are none."""


def tally_of(spec: PolicySpec, window: TraceWindow, renew: Callable[..., None] | None = None) -> FigureSums:
    """Replay a window. Raises what `run` raises; `Unusable` where judged jobs never started."""
    found = run(window.workload, Setup(spec), renew, before=window.history)
    tally = FigureSums.of(found.measures, window.from_s, window.to_s)
    if tally.jobs < window.judged and not found.schedule.refused:
        raise Unusable(f"{window.judged - tally.jobs:.0f} jobs never started")
    return tally


@dataclass(slots=True)
class KeptTrials:
    """Results of before, a file each, in `folder`; None: nothing is kept."""

    folder: Path | None
    taken: int = 0
    """How many were found."""

    def find(self, spec: PolicySpec, window: TraceWindow) -> FigureSums | None:
        """The result of before; None where there is none that can be read."""
        if self.folder is None:
            return None
        path = self.folder / key_of(spec, window)
        try:
            numbers = json.loads(path.read_bytes())
            found = FigureSums(*map(float, numbers))
            path.touch()
        except (OSError, ValueError, TypeError):
            return None
        self.taken += 1
        return found

    def keep(self, spec: PolicySpec, window: TraceWindow, tally: FigureSums) -> None:
        """Write a result down; a disk that takes nothing more is no reason to stop."""
        if self.folder is not None:
            with suppress(SimError):
                write_whole(self.folder / key_of(spec, window), json.dumps(astuple(tally)).encode())

    def tidy(self) -> None:
        """Take away what nobody asked for in `KEPT_DAYS`."""
        with suppress(OSError):
            for path in self.folder.glob("*.tally") if self.folder is not None else ():
                if time.time() - path.stat().st_mtime > 86_400 * KEPT_DAYS:
                    path.unlink(missing_ok=True)


def key_of(spec: PolicySpec, window: TraceWindow) -> str:
    """The name of the file of a result."""
    plugins = sorted(keys.plugins_of(spec.dispatcher, spec.predictor).values())
    inputs = {"code": keys.code_identity(), "plugins": plugins, "spec": str(spec), "window": window.digest}
    return f"{keys.key_of(inputs)}.tally"


@dataclass(slots=True)
class TrialReplays:
    """Replays trials, `processes` at once; 0: in this process."""

    processes: int
    kept: KeptTrials = field(default_factory=lambda: KeptTrials(None))
    limit_s: float = LIMIT_S

    def __call__(self, trials: Sequence[SettingTrial], told: Callable[[float], None]) -> list[Outcome]:
        """The tallies of each trial by its windows, or what went wrong with it."""
        known = [[self.kept.find(trial.spec, window) for window in trial.windows] for trial in trials]
        left = [[at for at, tally in enumerate(tallies) if tally is None] for tallies in known]
        before = float(sum(tally is not None for tallies in known for tally in tallies))
        told(before)
        open_ = [index for index, missing in enumerate(left) if missing]
        asked = [replace(trials[i], limit_s=self.limit_s, windows=_at(trials[i].windows, left[i])) for i in open_]

        finished: list[FigureSums] = []

        def note(trial: SettingTrial, at: int, tally: FigureSums) -> None:
            self.kept.keep(trial.spec, trial.windows[at], tally)
            finished.append(tally)
            told(before + len(finished))

        here = not self.processes
        outcomes = [_replayed(trial, note) for trial in asked] if here else self._apart(asked, note)
        found: list[Outcome] = []
        by_index = dict(zip(open_, outcomes, strict=True))
        for index, tallies in enumerate(known):
            outcome: Outcome = by_index.get(index, [])
            if isinstance(outcome, str):
                found.append(outcome)
                continue
            for at, tally in zip(left[index], outcome, strict=True):
                tallies[at] = tally
            found.append([tally for tally in tallies if tally is not None])
        return found

    def _apart(self, asked: Sequence[SettingTrial], note: Note) -> list[Outcome]:
        """In processes. Each takes several trials, since loading kernels takes longer than a short replay.

        Where a process dies, the trials that it had not finished are tried again, each in a process of its own.
        """
        outcomes: dict[int, Outcome] = {}
        size = max(1, min(MOST_AT_ONCE, len(asked) // (2 * self.processes)))
        batches = [tuple(range(begin, min(begin + size, len(asked)))) for begin in range(0, len(asked), size)]
        while batches:
            died: dict[int, str] = {}

            def heard(
                at: int,
                message: object,
                batches: Sequence[tuple[int, ...]] = batches,
                died: dict[int, str] = died,
            ) -> bool:
                if isinstance(message, Died):
                    died[at] = str(message)
                elif message is not None:
                    number, place, said = cast(tuple[int, int | None, Any], message)
                    if place is None:
                        outcomes[batches[at][number]] = said
                    else:
                        note(asked[batches[at][number]], place, said)
                return message is None or isinstance(message, Died)

            tasks = {at: (tuple(asked[index] for index in batch),) for at, batch in enumerate(batches)}
            side_by_side(_work, tasks, self.processes, heard)
            outcomes.update({batches[at][0]: why for at, why in died.items() if len(batches[at]) == 1})
            batches = [(index,) for at in died for index in batches[at] if index not in outcomes]
        return [outcomes[index] for index in range(len(asked))]


def _at(windows: Sequence[TraceWindow], places: Sequence[int]) -> tuple[TraceWindow, ...]:
    return tuple(windows[place] for place in places)


def _replayed(trial: SettingTrial, note: Note) -> Outcome:
    """The tallies of a trial, or what went wrong; each window is noted at once."""
    found = []
    try:
        for at, window in enumerate(trial.windows):
            with patience(trial.limit_s) as patient:
                found.append(tally_of(trial.spec, window, patient.renew))
            note(trial, at, found[-1])
    except (CpschedError, SimError) as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return found


def _work(trials: Sequence[SettingTrial], pipe: Connection) -> None:
    """The work of one process: it sends each window that is done, each trial at its end, and None as its last word."""
    for number, trial in enumerate(trials):

        def note(trial: SettingTrial, at: int, tally: FigureSums, number: int = number) -> None:
            pipe.send((number, at, tally))

        pipe.send((number, None, _replayed(trial, note)))
    pipe.send(None)
