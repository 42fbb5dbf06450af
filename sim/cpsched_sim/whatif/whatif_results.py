"""Compute the findings for the twin and each case, as plain values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from cpsched.formatting import format_count, format_duration, format_percent
from cpsched.metrics import ScheduleData
from cpsched.model import NEVER
from cpsched_sim.experiments.bootstrap_statistics import BlockBootstrap, FloatArray, finite_or_none
from cpsched_sim.site.fairness import WINDOW_S, AccountUsageByWindow, account_machine_shares, account_usage_by_window
from cpsched_sim.whatif.job_classes import classify_by_user, classify_jobs
from cpsched_sim.whatif.schedule_comparison import (
    HOPELESS_GRADE,
    OPEN_MODEL,
    SIGNIFICANT,
    ComparedRuns,
    compare_case_with_twin,
    measure_twin_fidelity,
    users_waiting_longer,
)
from cpsched_sim.whatif.unused_capacity_causes import CAUSES, GPUS, PROCESSORS
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_replay import (
    WhatIfReplayRunner,
    WhatIfReplayTask,
    WindowReplayResult,
    build_replay_tasks,
)
from cpsched_sim.whatif.whatif_window import OUTAGE, ROLES, WhatIfWindow
from cpsched_sim.whatif.window_metrics import (
    WINDOW_METRICS,
    SharedWindowFacts,
    WindowSchedule,
    actual_schedule,
    hourly_usage,
    waits_s,
)

QUANTILES = tuple(range(0, 101, 2))
MAX_POINTS = 400
"""Maximum number of points in a line plot over time."""


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """The cases and options for one window."""

    twin: WhatIfCase
    cases: Sequence[WhatIfCase]
    seeds: int = 3
    sessions: bool = True
    anyway: bool = False
    """Whether to replay the cases even if the twin's grade is hopeless."""


def replay_and_compute_findings(
    replays: WhatIfReplayRunner, plan: WhatIfRequest, progress: Callable[[float, int | None], None]
) -> dict[str, Any]:
    """Run the replays and return the findings. Store each finished replay.

    Raise `InputError` if a replay fails.
    """
    window = replays.window
    blocks = BlockBootstrap.of(window.from_s, window.to_s)
    applied = [
        case.apply_to_window(window) for case in plan.cases
    ]  # raises for an impossible case before hours of replays
    twin_tasks = build_replay_tasks([plan.twin], 1, plan.sessions)
    twins = replays.run(twin_tasks, progress)
    really, twin = actual_schedule(window), _schedules_by_mode(twin_tasks, twins)
    processors = twins[0].processors
    facts = SharedWindowFacts.of(
        window, blocks, processors, [really, *(made for runs in twin.values() for made in runs)]
    )
    classes = classify_jobs(window, processors[window.is_judged])
    found = describe_replay(window, plan)
    found["replays"] = len(twin_tasks)
    found["blocks"] = {"kind": blocks.kind, "count": blocks.count}
    found["fidelity"] = measure_twin_fidelity(facts, really, twin[OPEN_MODEL][0], classes)
    found["late_begins"] = twins[0].late_fixed
    found["lines"] = {"real": _plot_data(facts, really), "twin": _plot_data(facts, twin[OPEN_MODEL][0])}
    found["shares"] = {
        "real": usage_against_shares(facts, really),
        "twin": usage_against_shares(facts, twin[OPEN_MODEL][0]),
    }
    found["stranded"] = _stranded_findings(facts, twins[0])
    found["stranded_gpus"] = finite_or_none(twins[0].stranded_gpus)
    found |= _preemption_findings(twins[0])
    found["cases"] = []
    found["stopped"] = found["fidelity"]["verdict"]["grade"] == HOPELESS_GRADE and not plan.anyway
    if plan.cases and not found["stopped"]:
        tasks = build_replay_tasks(plan.cases, plan.seeds, plan.sessions)
        made = replays.run(tasks, progress)
        found["replays"] += len(tasks)
        for case, there in zip(plan.cases, applied, strict=True):
            mine = [at for at, task in enumerate(tasks) if task.case is case]
            replayed = [made[at] for at in mine]
            runs = ComparedRuns(really, twin, _schedules_by_mode([tasks[at] for at in mine], replayed))
            found["cases"].append(_case_findings(facts, there, case, runs, replayed))
    found["sentences"] = summary_sentences(found)
    return found


def _schedules_by_mode(
    tasks: Sequence[WhatIfReplayTask], replayed: Sequence[WindowReplayResult]
) -> dict[str, list[WindowSchedule]]:
    found: dict[str, list[WindowSchedule]] = {}
    for task, each in zip(tasks, replayed, strict=True):
        found.setdefault(task.mode, []).append(WindowSchedule(each.arrival_s, each.start_s, each.end_s))
    return found


def _case_findings(
    facts: SharedWindowFacts,
    there: WhatIfWindow,
    case: WhatIfCase,
    runs: ComparedRuns,
    replayed: Sequence[WindowReplayResult],
) -> dict[str, Any]:
    """Return the findings of one case from its replays."""
    every = [runs.real, *(made for modes in (runs.twin, runs.case) for each in modes.values() for made in each)]
    mine = SharedWindowFacts.of(facts.window, facts.blocks, facts.processors, every)
    classes = classify_jobs(facts.window, facts.processors[facts.window.is_judged])
    left = int((facts.counted & ~mine.counted).sum())
    return {
        "name": case.name, "dispatcher": case.spec.dispatcher, "predictor": case.spec.predictor,
        "settings": case.spec.settings(), "changes": dict(case.changes), "timing": case.bridge_timing_description,
        "seeds": len(runs.case[OPEN_MODEL]),
        "jobs": int(mine.counted.sum()), "never_started": left,
        "cpu_s": sum(each.cpu_s for each in replayed),
        **compare_case_with_twin(mine, mine.with_system_of(there), runs, classes),
        "losers": users_waiting_longer(mine, runs.twin, runs.case, classify_by_user(facts.window)),
        "lines": _plot_data(mine, runs.case[OPEN_MODEL][0]),
        "shares": usage_against_shares(mine, runs.case[OPEN_MODEL][0]),
        "stranded": _stranded_findings(mine.with_system_of(there), replayed[0]),
        "stranded_gpus": finite_or_none(replayed[0].stranded_gpus),
        **_preemption_findings(replayed[0]),
    }  # fmt: skip


def _preemption_findings(replayed: WindowReplayResult) -> dict[str, Any]:
    """Return preemption statistics, or {} if the site does not preempt jobs."""
    return {"preemption": dict(replayed.preemption)} if replayed.preemption else {}


def _stranded_findings(facts: SharedWindowFacts, replayed: WindowReplayResult) -> list[dict[str, Any]]:
    """Return by cause the share of processors and GPUs unused while jobs waited."""
    rows = ((PROCESSORS, "processors", facts.machine), (GPUS, "GPUs", facts.machine_gpus))
    return [
        {"what": name, "cause": cause, "part": float(replayed.stranded[what, at]) / machine}
        for what, name, machine in rows if machine
        for at, cause in enumerate(CAUSES)
    ]  # fmt: skip


def describe_replay(window: WhatIfWindow, plan: WhatIfRequest) -> dict[str, Any]:
    """Describe what was replayed, on which system, and what was omitted."""
    roles = Counter(window.role.tolist())
    nodes = sum(kind.count for kind in window.system.node_types.values())
    return {
        "version": version("cpsched"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "file": window.name,
        "system": {"name": window.system.name, "guessed_by": window.guessed, "nodes": nodes or None},
        "window": {
            "from": window.to_local_time(window.from_s).isoformat(), "to": window.to_local_time(window.to_s).isoformat(),  # noqa: E501
            "zone": window.zone or "UTC, or as in the file",
            "jobs": {name: roles[at] for at, name in enumerate(ROLES)},
            "users": len({item.job.user for item in window.judged_jobs()}),
        },
        "left_out": dict(window.left_out),
        "notes": [*window.notes, *filter(None, (case.added_nodes_hint(window) for case in plan.cases))],
        "twin": plan.twin.name,
        "seeds": plan.seeds, "sessions": plan.sessions,
    }  # fmt: skip


def _plot_data(facts: SharedWindowFacts, made: WindowSchedule) -> dict[str, list[float]]:
    """Return the data for the plots.

    They are quantiles of waits, and the queue length and utilization over time.
    """
    hourly = hourly_usage(facts, made)
    wait_s = waits_s(made, facts.counted)
    return {
        "wait_quantiles_s": [round(float(each), 1) for each in np.percentile(wait_s, QUANTILES)],
        "waiting": _downsample_by_mean(hourly.waiting),
        "used": _downsample_by_mean(hourly.used / max(1, facts.machine)),
    }


def _downsample_by_mean(values: FloatArray) -> list[float]:
    step = -(-len(values) // MAX_POINTS)
    return [round(float(values[at : at + step].mean()), 4) for at in range(0, len(values), step)]


# ------------------------------------------------------------------------------------------ in words


def summary_sentences(found: Mapping[str, Any]) -> list[str]:
    """Summarize the findings in three sentences, and a fourth one on stranded GPUs if there are typical requests."""
    near, window = found["fidelity"], found["window"]
    chars = 10 if window["from"][:10] != window["to"][:10] else 16
    begin, end = (window[name][:chars].replace("T", " ") for name in ("from", "to"))
    first = (
        f"From {begin} to {end}, {format_count(near['jobs'], 'job')} of {format_count(window['users'], 'user')} "
        f"waited {format_duration(near['real_mean_wait_s'])} on average."
    )
    second = (
        f"In the replay of Slurm's own scheduler (the twin), they waited {format_duration(near['twin_mean_wait_s'])}. "
        f"The twin's fidelity is {near['verdict']['grade']}."
    )
    if found["stopped"]:
        third = (
            "The twin differs too much from the real schedule to serve as a baseline, so no other case was replayed."
        )
    elif not found["cases"]:
        third = "No other case was requested."
    else:
        third = _best_case_sentence(found["cases"])
    if found["stranded_gpus"] is None:
        return [first, second, third]
    shares = [f"{format_percent(found['stranded_gpus'], 1)} in the twin"]
    shares += [f"{format_percent(case['stranded_gpus'], 1)} under {case['name']}" for case in found["cases"]]
    return [first, second, third, f"GPU-hours stranded, idle but useless for typical jobs: {', '.join(shares)}."]


def _best_case_sentence(cases: Sequence[Mapping[str, Any]]) -> str:
    rows = [(case["name"], mean_wait_row(case)) for case in cases]
    significant = [(name, row) for name, row in rows if row["verdict"] == SIGNIFICANT]
    if not significant:
        names = ", ".join(name for name, _ in rows)
        return f"The data do not show whether they would have waited less under {names}."
    name, row = min(significant, key=lambda each: each[1]["difference"])
    low, high = row["interval"]
    less = row["difference"] < 0
    return (
        f"Under {name}, they would have waited {format_duration(row['case'])}: {format_duration(abs(row['difference']))} "  # noqa: E501
        f"{'less' if less else 'longer'} than in the twin (95 % interval: {format_wait_difference(low, high)})."
    )


def format_wait_difference(low: float, high: float) -> str:
    """Format the interval of a difference in waits: `12 min less to 3 min longer`."""
    words = [f"{format_duration(abs(each))} {'less' if each < 0 else 'longer'}" for each in (low, high)]
    return " to ".join(words)


def mean_wait_row(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row with a case's mean wait."""
    found: Mapping[str, Any] = next(row for row in case["figures"] if row["name"] == WINDOW_METRICS[0].name)
    return found


def usage_against_shares(facts: SharedWindowFacts, made: WindowSchedule) -> dict[str, Any] | None:
    """Return each account's fraction of the usage, and the distance from the shares.

    Return None if the site's policy is unknown, or if no job ran in the window. As in `account_usage_by_window`, each
    day's usage is divided among the accounts whose jobs could have used it, in proportion to their shares. The distance
    is the fraction of the usage that accounts had beyond their part.
    """
    window = facts.window
    if window.site is None:
        return None
    start_s, arrival_s = np.maximum(made.start_s, window.from_s), np.maximum(made.arrival_s, window.from_s)
    is_there = (made.start_s != NEVER) & (window.role != OUTAGE) & (arrival_s < window.to_s) & (made.end_s > start_s)
    if not is_there.any():
        return None
    jobs = [window.jobs[at].job for at in np.flatnonzero(is_there).tolist()]
    measures = ScheduleData(
        arrival_s[is_there], start_s[is_there], made.end_s[is_there], facts.processors[is_there], jobs=jobs
    )
    lasts_s = window.to_s - int(arrival_s[is_there].min())
    days = max(1, round(lasts_s / WINDOW_S))
    shares = account_machine_shares(window.site)
    whole = account_usage_by_window(measures, shares, -(-lasts_s // days))
    use = AccountUsageByWindow(whole.accounts, whole.used[:, :days], whole.due[:, :days])
    return {"distance": use.misallocated_share, "accounts": _account_rows(use, shares)}


def _account_rows(use: AccountUsageByWindow, shares: dict[str, float]) -> list[dict[str, Any]]:
    total = max(1e-9, float(use.used.sum()))
    used, due = use.used.sum(axis=1), (use.due * use.used.sum(axis=0)).sum(axis=1)
    return [
        {
            "account": name, "share": shares.get(name, 0.0), "due": float(due[at]) / total,
            "used": float(used[at]) / total,
        }
        for at, name in enumerate(use.accounts)
    ]  # fmt: skip
