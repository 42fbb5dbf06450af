"""The process that replays the site's last weeks for the tuner, and writes what it found into a file.

    python -m cpsched_bridge.program.tuning_process FD PARENT_PID REQUEST RESULT

It is the first to give way: least priority, a limit of CPU time and memory that the kernel keeps, and it dies with the
bridge. `cpsched_bridge.program.tuner` starts it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpsched.goals import Goal, ratios
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.children import begin
from cpsched_bridge.store.rounds import cluster_from_json
from cpsched_bridge.store.tuning import write_for_the_owner
from cpsched_bridge.store.weeks import WeeksFile
from cpsched_sim.traces.job import TraceJob
from cpsched_sim.tuning.candidates import changes, replayable
from cpsched_sim.tuning.judging import figures
from cpsched_sim.tuning.replays import SettingTrial, TrialReplays
from cpsched_sim.tuning.tuner import TuningQuestion, tune
from cpsched_sim.tuning.windows import halves
from cpsched_sim.workloads.load import Workload

WEEK_S = 7 * 86_400
WINDOW_JOBS = 4000
SEEDS = 2
_MOST_WRITTEN = 64 * 2**20


def limit(cpu_s: int, memory_mib: int) -> None:
    """Give way to everything else, and have the kernel keep the limits."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mib * 2**20, memory_mib * 2**20))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the last weeks say; see `tuner.finding_of`. Raises what `tune` raises."""
    cluster = cluster_from_json(request["cluster"])
    goal = Goal(request["name"], request["weights"], request["limits"])
    present, base = PolicySpec(**request["present"]), PolicySpec(**request["base"])
    from_s = int(request["now_s"] - WEEK_S * (request["weeks"] + 1))
    ended = WeeksFile(Path(request["weeks_file"])).read(cluster, from_s)
    jobs = [TraceJob(each.job, max(1, each.end_s - each.start_s), each.start_s) for each in ended]
    workload = Workload("the last weeks", "the site", cluster, jobs, {}, ())
    if not jobs:
        return {"error": "no job has ended yet"}
    replays = TrialReplays(0)
    cut, _ = halves(workload, request["weeks"], request["window_days"], WINDOW_JOBS)
    found = tune(TuningQuestion(goal, present, seeds=SEEDS), cut, replays)
    gain = found.gain
    return {
        "at_s": request["now_s"],
        "verdict": found.verdict,
        "sentence": found.sentence,
        "chosen": None if found.chosen is None else _as_json(found.chosen.spec),
        "changes": "" if found.chosen is None else changes(present, found.chosen.spec),
        "ratio": 1.0 if gain is None else gain.ratio,
        "low": 1.0 if gain is None else gain.low,
        "high": 1.0 if gain is None else gain.high if gain.high < float("inf") else None,
        "worst_window": max((*found.chosen.each_window, *found.each_choosing)) if found.chosen else 1.0,
        "came": _came(request, workload, goal, present, base),
    }


def _as_json(spec: PolicySpec) -> dict[str, Any]:
    return {
        "dispatcher": spec.dispatcher, "predictor": spec.predictor, "overrun": spec.overrun,
        "dispatcher_settings": dict(spec.dispatcher_settings), "predictor_settings": dict(spec.predictor_settings),
    }  # fmt: skip


def _came(
    request: Mapping[str, Any], workload: Workload, goal: Goal, present: PolicySpec, base: PolicySpec
) -> float | None:
    """The score of what is in force against what the settings file says, on the days since the change."""
    since_s = request["since_s"]
    if since_s is None or request["now_s"] - since_s < WEEK_S:
        return None
    cut, _ = halves(workload, (request["now_s"] - since_s) / WEEK_S, request["window_days"], WINDOW_JOBS)
    trials = [SettingTrial(replayable(spec, 0), cut.all) for spec in (present, base)]
    mine, before = TrialReplays(0)(trials, lambda done: None)
    if isinstance(mine, str) or isinstance(before, str):
        return None
    return goal.score(ratios(figures(mine), figures(before)))


def main(words: list[str]) -> None:
    """Answer the request, or say what went wrong."""
    _, parent, asked, result = words
    begin(int(parent))
    try:
        request = json.loads(Path(asked).read_bytes())
        limit(int(request["cpu_s"]), int(request["memory_mib"]))
        content = answer(request)
    except MemoryError:
        content = {"error": "its budget of memory is too small: tune.memory_mib"}
    except Exception as error:
        content = {"error": f"{type(error).__name__}: {error}"}
    write_for_the_owner(Path(result), json.dumps(content).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
