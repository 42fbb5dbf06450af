"""Replay a window, including jobs that run at its beginning or are cancelled.

The replays run in separate processes, and their results are stored for reuse.

A half-closed replay models users who wait for their jobs. Suppose a job was submitted within `MAX_THINK_TIME_S` of the
end of the user's previous job. In the replay, it arrives with the same delay after the previous job's replayed end. The
first job of a session arrives at its real time. The method is from Zakay and Feitelson, "Preserving user behavior
characteristics in trace-based simulation of parallel job scheduling", MASCOTS 2014.
"""

from __future__ import annotations

import gc
import io
import math
import pickle
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.gc_pause import gc_paused
from cpsched.model import NEVER, Cluster, IntArray
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_sim.cluster.preemption import summarize_preemptions
from cpsched_sim.cluster.replay import Progress, ReplayOptions, Schedule, replay
from cpsched_sim.cluster.replay_calendar import CalendarOutcome, ReplayCalendar
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.bootstrap_statistics import FloatArray
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
from cpsched_sim.simulation_metrics import PlacedRun, mean_stranded_gpus
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.schedule_comparison import HALF_CLOSED_MODEL, OPEN_MODEL
from cpsched_sim.whatif.unused_capacity_causes import CAUSES, PlacedSchedule, compute_stranded_capacity
from cpsched_sim.whatif.whatif_cases import DecisionTiming, WhatIfCase
from cpsched_sim.whatif.whatif_window import OUTAGE, WhatIfWindow

MAX_THINK_TIME_S = 1200
"""Longest pause within a session in seconds: 20 minutes. The distribution of think times in eleven traces has a
break there (Zilber, Amit, Talby, "What is worth learning from parallel workloads?", ICS 2005).
"""

EVENT_TIMING = DecisionTiming()
"""Default timing: a round in each second with an event. Starts take effect immediately."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowReplayResult:
    """The replayed times of a window, int64[J] in the order of its jobs.

    A half-closed replay changes `arrival_s`. Jobs hold their nodes from the round that starts them; `start_s` is later
    by the lag. `late_fixed` is the number of jobs that started later than their fixed start. `stranded` is the capacity
    that was unused while jobs waited (see `cpsched_sim.whatif.unused_capacity_causes`).
    """

    arrival_s: IntArray
    start_s: IntArray
    end_s: IntArray
    processors: IntArray
    rounds: int
    cpu_s: float
    late_fixed: int
    stranded: FloatArray
    stranded_gpus: float = math.nan
    """Share of the cluster's GPU-hours that were idle but useless for the typical requests, or NaN if unknown."""
    preemption: Mapping[str, float] = field(default_factory=dict)
    """The values of `summarize_preemptions`, or empty if the site does not preempt jobs."""


def session_followers(window: WhatIfWindow) -> dict[int, list[tuple[int, int]]]:
    """Return the jobs that depend on each job's end, by index.

    Each dependent job is (index, delay in seconds after the end).
    """
    ended: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, item in enumerate(window.jobs):
        real_s = int(window.real_start_s[at])
        if item.job.user and real_s != NEVER:
            begun_s = max(real_s, window.from_s) if window.fixed_s[at] != NEVER else real_s
            ended[item.job.user].append((begun_s + item.run_s, at))
    for ends in ended.values():
        ends.sort()
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for at, item in enumerate(window.jobs):
        if window.fixed_s[at] != NEVER or item.job.submit_s <= window.from_s:
            continue
        ends = ended.get(item.job.user, [])
        last = bisect_right(ends, (item.job.submit_s, NEVER)) - 1
        if (
            last >= 0
            and 0 <= (think_s := item.job.submit_s - ends[last][0]) <= MAX_THINK_TIME_S
            and ends[last][1] != at
        ):
            found[ends[last][1]].append((at, think_s))
    return dict(found)


def replay_window(
    window: WhatIfWindow,
    policy: Policy,
    half_closed: bool = False,
    progress: Progress | None = None,
    pace: DecisionTiming = EVENT_TIMING,
) -> WindowReplayResult:
    """Replay a window with the given decision timing. Raise `PolicyError`.

    The window's site policy applies, if it has one.
    """
    followers = session_followers(window) if half_closed else {}
    calendar = ReplayCalendar(
        from_s=window.from_s,
        fixed_s=window.fixed_s,
        leaves_s=window.leaves_s,
        is_outage=window.role == OUTAGE,
        followers=followers,
        interval_s=pace.interval_s,
        lag_s=pace.lag_s,
    )
    options = ReplayOptions(
        progress=progress, site=window.site, strict=True, calendar=calendar, licenses=window.licenses
    )
    cluster = System(window.system, window.header).cluster
    if window.least_stranded_gpus:
        cluster = replace(cluster, typical=window.typical)
    schedule = replay(window.jobs, cluster, policy, options)
    outcome = schedule.calendar
    assert outcome is not None
    start_s = np.where(schedule.start_s != NEVER, schedule.start_s + outcome.lag_s, NEVER)
    preempts = window.site is not None and window.site.policy.preemption is not None
    return WindowReplayResult(
        outcome.arrival_s, start_s, schedule.end_s, schedule.processors, schedule.rounds, schedule.cpu_s,
        outcome.late_fixed, _compute_stranded(window, outcome, schedule),
        _stranded_gpu_share(window, cluster, schedule),
        summarize_preemptions(schedule.preemptions, outcome.arrival_s, schedule.start_s) if preempts else {},
    )  # fmt: skip


def _stranded_gpu_share(window: WhatIfWindow, cluster: Cluster, schedule: Schedule) -> float:
    if window.typical is None:
        return math.nan
    runs = [
        PlacedRun(
            window.jobs[at].job.request, int(schedule.start_s[at]), int(schedule.end_s[at]), schedule.placement_of(at)
        )
        for at in np.flatnonzero(schedule.start_s != NEVER).tolist()
    ]
    use = mean_stranded_gpus(runs, cluster, window.typical, window.from_s, window.to_s)
    return use.stranded / use.total


def _compute_stranded(window: WhatIfWindow, outcome: CalendarOutcome, schedule: Schedule) -> FloatArray:
    """Return the capacity that a schedule left unused while jobs waited."""
    waited_s = np.where(outcome.leaves_s != NEVER, outcome.leaves_s, outcome.arrival_s)
    ran = PlacedSchedule(
        outcome.arrival_s, np.where(schedule.start_s != NEVER, schedule.start_s, waited_s), schedule.start_s,
        schedule.end_s, schedule.place_at, schedule.place_count, schedule.place_node, schedule.place_units,
        window.role == OUTAGE,
    )  # fmt: skip
    requests = [item.job.request for item in window.jobs]
    cluster = System(window.system, window.header).cluster
    return compute_stranded_capacity(cluster, requests, ran, window.from_s, window.to_s)


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
