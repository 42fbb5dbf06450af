"""Run a window's replays in separate processes, and store the results for reuse."""

from __future__ import annotations

import gc
import io
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.gc_pause import gc_paused
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
from cpsched_sim.file_io import file_sha256
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

    def key(self, digests: Mapping[str, Any]) -> str:
        """Return the key of the result. It depends on all inputs, of which `digests` identifies those of all tasks."""
        settings = self.spec.settings()
        policy = self.case.changes.get("policy")
        files = {name: file_sha256(Path(name)) for name in settings.values() if Path(name).is_file()}
        if policy is not None:  # includes the dumps that the policy file refers to
            files[policy] = load_site_policy_file(Path(policy)).sha256
        return compute_result_key({
            **code_identity(self.spec), **digests, "dispatcher": self.spec.dispatcher,
            "predictor": self.spec.predictor, "settings": settings, "changes": dict(self.case.changes),
            "pace": asdict(self.case.bridge_timing), "mode": self.mode, "files": files,
        })  # fmt: skip


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

    def run(
        self, tasks: Sequence[WhatIfReplayTask], progress: Callable[[float, int | None], None]
    ) -> list[WindowReplayResult]:
        """Return the results of all tasks. Run those without a stored result.

        Raise `InputError` if a task fails. The results of the other tasks are stored.
        """
        store = CaseStore(self.out / REPLAYS_FOLDER, replay_format(len(self.window.jobs)))
        engine = LocalProcessExecutor(self.processes, self.limit_s)
        with tempfile.TemporaryDirectory(prefix="cpsched-whatif-") as folder:  # only this user can read it
            path = Path(folder) / "window.pickle"
            with path.open("wb") as file:
                pickle.dump(self.window, file, protocol=pickle.HIGHEST_PROTOCOL)
            cases = [Case(task.key(self.digests), (path, task)) for task in tasks]
            results = CaseRunner(_run_replay_task, engine, store).run(cases, progress)
        failed = [
            f"{task.case.name}: {result}" for task, result in zip(tasks, results, strict=True)
            if isinstance(result, TaskFailure)
        ]  # fmt: skip
        if failed:
            raise InputError(f"{len(failed)} of {len(tasks)} replays failed: {failed[0]}")
        return results


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
    facts = np.array([replayed.rounds, replayed.cpu_s, replayed.late_fixed, replayed.stranded_gpus], np.float64)
    file = io.BytesIO()
    counts = np.array([replayed.preemption[name] for name in PREEMPTION_FIGURES if replayed.preemption], np.float64)
    np.savez_compressed(file, facts=facts, stranded=replayed.stranded, preemption=counts, **columns)
    return file.getvalue()


def _unpack_result(jobs: int, content: bytes) -> WindowReplayResult:
    """Return a stored result. Raise an exception if it is damaged, or of another number of jobs."""
    with np.load(io.BytesIO(content), allow_pickle=False) as kept:
        columns = [kept[name] for name in JOB_COLUMNS]
        rounds, cpu_s, late, stranded_gpus = kept["facts"].tolist()
        stranded = kept["stranded"].astype(np.float64)
        counts = kept["preemption"].tolist()
    if any(column.shape != (jobs,) or column.dtype != np.int64 for column in columns):
        raise ValueError(f"columns must have {jobs} jobs")
    if stranded.shape != (2, len(CAUSES)):
        raise ValueError(f"stranded must have {len(CAUSES)} causes")
    arrival_s, start_s, end_s, processors = columns
    preemption = dict(zip(PREEMPTION_FIGURES, counts, strict=False))
    return WindowReplayResult(
        arrival_s, start_s, end_s, processors, int(rounds), cpu_s, int(late), stranded, stranded_gpus, preemption
    )


def replay_format(jobs: int) -> ResultFormat:
    """Return the form in which the replays of a window with this number of jobs are stored."""
    return ResultFormat(".npz", _pack_result, partial(_unpack_result, jobs))
