"""Run the replays of a window, each in its own process; finished replays are stored and reused."""

from __future__ import annotations

import gc
import io
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.gc_pause import gc_paused
from cpsched.policy_spec import PolicySpec
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.result_keys import code_identity, hash_inputs, plugin_digests
from cpsched_sim.experiments.runner import LocalProcessExecutor, TaskFailure, Tell, run_all
from cpsched_sim.file_io import sha256_of, write_atomically
from cpsched_sim.simulation import ReplayPolicySetup
from cpsched_sim.site.policy_file import load_policy
from cpsched_sim.watchdog import LIMIT_S
from cpsched_sim.whatif.case_comparison import HALF_CLOSED, OPEN
from cpsched_sim.whatif.stranded_capacity import CAUSES
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_window import WhatIfWindow
from cpsched_sim.whatif.window_replay import WindowReplayResult, replay_window

REPLAYS = "replays"
COLUMNS = ("arrival_s", "start_s", "end_s", "processors")


@dataclass(frozen=True, slots=True)
class WhatIfReplayTask:
    """One replay: a case, a seed and a user model."""

    case: WhatIfCase
    spec: PolicySpec
    mode: str

    def words(self, digests: Mapping[str, Any]) -> dict[str, Any]:
        """Return everything that the schedule depends on; replays with equal values have equal schedules."""
        settings = self.spec.settings()
        policy = self.case.changes.get("policy")
        files = {name: sha256_of(Path(name)) for name in settings.values() if Path(name).is_file()}
        if policy is not None:  # includes the dumps that the policy file names
            files[policy] = load_policy(Path(policy)).sha256
        return {
            "code": code_identity(), **digests, "dispatcher": self.spec.dispatcher,
            "predictor": self.spec.predictor, "settings": settings, "changes": dict(self.case.changes),
            "pace": asdict(self.case.pace), "mode": self.mode, "files": files,
            "plugins": sorted(plugin_digests(self.spec.dispatcher, self.spec.predictor).values()),
        }  # fmt: skip

    def digest(self, digests: Mapping[str, Any]) -> str:
        """Return the digest that names the result."""
        return hash_inputs(self.words(digests))


def tasks_of(cases: Sequence[WhatIfCase], seeds: int, sessions: bool) -> list[WhatIfReplayTask]:
    """Return a task for every case: open replays with each seed, and a half-closed replay with the first seed."""
    found = []
    for case in cases:
        specs = case.seeds(seeds)
        found += [WhatIfReplayTask(case, spec, OPEN) for spec in specs]
        found += [WhatIfReplayTask(case, specs[0], HALF_CLOSED)] if sessions else []
    return found


@dataclass(slots=True)
class WindowReplayRunner:
    """Runs the replays of one window and stores them in a folder. `digests` identify the common inputs."""

    window: WhatIfWindow
    out: Path
    digests: Mapping[str, Any]
    processes: int = 2
    limit_s: float = LIMIT_S

    def path(self, task: WhatIfReplayTask) -> Path:
        """Return the path of a task's schedule."""
        return self.out / REPLAYS / f"{task.digest(self.digests)}.npz"

    def finished(self, tasks: Sequence[WhatIfReplayTask]) -> dict[int, WindowReplayResult]:
        """Return the results stored by an earlier run, by task index."""
        found = {at: _read(self.path(task), len(self.window.jobs)) for at, task in enumerate(tasks)}
        return {at: replayed for at, replayed in found.items() if replayed is not None}

    def run(
        self,
        tasks: Sequence[WhatIfReplayTask],
        done: dict[int, WindowReplayResult],
        progress: Callable[[float, int | None], None],
    ) -> None:
        """Run the tasks missing from `done` and add their results.

        Raise `InputError` if one fails; others are stored.
        """
        failed: list[str] = []

        def finished(at: int, replayed: WindowReplayResult | TaskFailure) -> None:
            if isinstance(replayed, TaskFailure):
                failed.append(f"{tasks[at].case.name}: {replayed}")
            else:
                write_atomically(self.path(tasks[at]), _packed(replayed))
                done[at] = replayed

        with tempfile.TemporaryDirectory(prefix="cpsched-whatif-") as folder:  # readable only by this user
            kept = Path(folder) / "window.pickle"
            with kept.open("wb") as file:
                pickle.dump(self.window, file, protocol=pickle.HIGHEST_PROTOCOL)
            todo = {at: (kept, task) for at, task in enumerate(tasks) if at not in done}
            run_all(
                _replay_one, todo, LocalProcessExecutor(self.processes, self.limit_s), finished, progress, len(done)
            )
        if failed:
            raise InputError(f"{len(failed)} of {len(tasks)} replays failed: {failed[0]}")


def _replay_one(given: tuple[Path, WhatIfReplayTask], tell: Tell) -> WindowReplayResult:
    """Run one task in a worker process."""
    kept, task = given
    with gc_paused(), kept.open("rb") as file:
        window: WhatIfWindow = pickle.load(file)  # written by this program into its own folder
        window = task.case.apply_to(window)
    gc.freeze()  # this process runs nothing else
    tell()
    policy = ReplayPolicySetup(task.spec).build(window.jobs)
    return replay_window(window, policy, task.mode == HALF_CLOSED, tell, task.case.pace)


def _packed(replayed: WindowReplayResult) -> bytes:
    columns = {name: getattr(replayed, name) for name in COLUMNS}
    facts = np.array([replayed.rounds, replayed.cpu_s, replayed.late_fixed], np.float64)
    file = io.BytesIO()
    np.savez_compressed(file, facts=facts, stranded=replayed.stranded, **columns)
    return file.getvalue()


def _read(path: Path, jobs: int) -> WindowReplayResult | None:
    """Return a stored schedule, or None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            columns = [kept[name] for name in COLUMNS]
            rounds, cpu_s, late = kept["facts"].tolist()
            empty = kept["stranded"].astype(np.float64)
    except Exception:  # a damaged file can raise any exception; the replay then runs again
        return None
    if any(column.shape != (jobs,) or column.dtype != np.int64 for column in columns):
        return None
    if empty.shape != (2, len(CAUSES)):
        return None
    arrival_s, start_s, end_s, processors = columns
    return WindowReplayResult(arrival_s, start_s, end_s, processors, int(rounds), cpu_s, int(late), empty)
