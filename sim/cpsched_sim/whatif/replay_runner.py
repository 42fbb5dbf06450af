"""Run a window's replays in separate processes, and store the results for reuse."""

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
from cpsched_sim.experiments.result_keys import code_digest, compute_result_key, plugin_digests
from cpsched_sim.experiments.task_runner import LocalProcessExecutor, TaskFailure, Tell, run_tasks
from cpsched_sim.file_io import file_sha256, write_atomically
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.whatif.case_comparison import HALF_CLOSED_MODEL, OPEN_MODEL
from cpsched_sim.whatif.unused_capacity_causes import CAUSES
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_replay import WindowReplayResult, replay_window
from cpsched_sim.whatif.whatif_window import WhatIfWindow

REPLAYS_FOLDER = "replays"
PREEMPTION_FIGURES = ("preemptions", "victims", "lost_node_h", "in_vain", "mean_wait_s_of_preemptors")
JOB_COLUMNS = ("arrival_s", "start_s", "end_s", "processors")


@dataclass(frozen=True, slots=True)
class WhatIfReplayTask:
    """One replay: a case, a seed and a user model."""

    case: WhatIfCase
    spec: PolicySpec
    mode: str

    def result_inputs(self, digests: Mapping[str, Any]) -> dict[str, Any]:
        """Return all inputs on which the schedule depends."""
        settings = self.spec.settings()
        policy = self.case.changes.get("policy")
        files = {name: file_sha256(Path(name)) for name in settings.values() if Path(name).is_file()}
        if policy is not None:  # includes the dumps that the policy file refers to
            files[policy] = load_site_policy_file(Path(policy)).sha256
        return {
            "code": code_digest(), **digests, "dispatcher": self.spec.dispatcher,
            "predictor": self.spec.predictor, "settings": settings, "changes": dict(self.case.changes),
            "pace": asdict(self.case.bridge_timing), "mode": self.mode, "files": files,
            "plugins": sorted(plugin_digests(self.spec.dispatcher, self.spec.predictor).values()),
        }  # fmt: skip

    def digest(self, digests: Mapping[str, Any]) -> str:
        """Return the digest that identifies the result."""
        return compute_result_key(self.result_inputs(digests))


def build_replay_tasks(cases: Sequence[WhatIfCase], seeds: int, sessions: bool) -> list[WhatIfReplayTask]:
    """Return the tasks of all cases.

    Each case has an open replay per seed and, with `sessions`, a half-closed replay with the first seed.
    """
    found = []
    for case in cases:
        specs = case.policies_by_seed(seeds)
        found += [WhatIfReplayTask(case, spec, OPEN_MODEL) for spec in specs]
        found += [WhatIfReplayTask(case, specs[0], HALF_CLOSED_MODEL)] if sessions else []
    return found


@dataclass(slots=True)
class WhatIfReplayRunner:
    """A runner of a window's replays, whose results it stores in a folder.

    `digests` identifies the inputs that all replays share.
    """

    window: WhatIfWindow
    out: Path
    digests: Mapping[str, Any]
    processes: int = 2
    limit_s: float = STALL_TIMEOUT_S

    def path(self, task: WhatIfReplayTask) -> Path:
        """Return the path of a task's schedule."""
        return self.out / REPLAYS_FOLDER / f"{task.digest(self.digests)}.npz"

    def load_finished_replays(self, tasks: Sequence[WhatIfReplayTask]) -> dict[int, WindowReplayResult]:
        """Return the results that an earlier run stored, by task index."""
        found = {at: _load_stored_replay(self.path(task), len(self.window.jobs)) for at, task in enumerate(tasks)}
        return {at: replayed for at, replayed in found.items() if replayed is not None}

    def run(
        self,
        tasks: Sequence[WhatIfReplayTask],
        done: dict[int, WindowReplayResult],
        progress: Callable[[float, int | None], None],
    ) -> None:
        """Run the tasks that are missing from `done`, and add their results to it.

        Raise `InputError` if a task fails. The results of the other tasks are stored.
        """
        failed: list[str] = []

        def finished(at: int, replayed: WindowReplayResult | TaskFailure) -> None:
            if isinstance(replayed, TaskFailure):
                failed.append(f"{tasks[at].case.name}: {replayed}")
            else:
                write_atomically(self.path(tasks[at]), _pack_result(replayed))
                done[at] = replayed

        with tempfile.TemporaryDirectory(prefix="cpsched-whatif-") as folder:  # only this user can read it
            kept = Path(folder) / "window.pickle"
            with kept.open("wb") as file:
                pickle.dump(self.window, file, protocol=pickle.HIGHEST_PROTOCOL)
            todo = {at: (kept, task) for at, task in enumerate(tasks) if at not in done}
            run_tasks(
                _run_replay_task,
                todo,
                LocalProcessExecutor(self.processes, self.limit_s),
                finished,
                progress,
                len(done),
            )
        if failed:
            raise InputError(f"{len(failed)} of {len(tasks)} replays failed: {failed[0]}")


def _run_replay_task(given: tuple[Path, WhatIfReplayTask], tell: Tell) -> WindowReplayResult:
    """Run one task in a worker process."""
    kept, task = given
    with gc_paused(), kept.open("rb") as file:
        window: WhatIfWindow = pickle.load(file)  # written by this program to its own folder
        window = task.case.apply_to_window(window)
    gc.freeze()  # this process runs nothing else
    tell()
    policy = ReplaySpec(task.spec).build(window.jobs)
    return replay_window(window, policy, task.mode == HALF_CLOSED_MODEL, tell, task.case.bridge_timing)


def _pack_result(replayed: WindowReplayResult) -> bytes:
    columns = {name: getattr(replayed, name) for name in JOB_COLUMNS}
    facts = np.array([replayed.rounds, replayed.cpu_s, replayed.late_fixed], np.float64)
    file = io.BytesIO()
    counts = np.array([replayed.preemption[name] for name in PREEMPTION_FIGURES if replayed.preemption], np.float64)
    np.savez_compressed(file, facts=facts, stranded=replayed.stranded, preemption=counts, **columns)
    return file.getvalue()


def _load_stored_replay(path: Path, jobs: int) -> WindowReplayResult | None:
    """Return a stored schedule, or None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            columns = [kept[name] for name in JOB_COLUMNS]
            rounds, cpu_s, late = kept["facts"].tolist()
            empty = kept["stranded"].astype(np.float64)
            counts = kept["preemption"].tolist()
    except Exception:  # a damaged file can raise any exception; the replay then runs again
        return None
    if any(column.shape != (jobs,) or column.dtype != np.int64 for column in columns):
        return None
    if empty.shape != (2, len(CAUSES)):
        return None
    arrival_s, start_s, end_s, processors = columns
    preemption = dict(zip(PREEMPTION_FIGURES, counts, strict=False))
    return WindowReplayResult(arrival_s, start_s, end_s, processors, int(rounds), cpu_s, int(late), empty, preemption)
