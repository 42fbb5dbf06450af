"""Measure what the goals of a site trade, in percent of `easy`.

Usage: `CPSCHED_TRACES=FOLDER python studies/goals.py training|test ROWS.jsonl [POLICY ...]`. Settings are chosen on the
training windows, and reported on the test windows. A policy is spelled as in a study: `lookahead objective=waits`.
ROWS.jsonl gets one row per replay, and replays that it already contains are not repeated. Each window starts on an
empty cluster with an unadjusted weight.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpsched.policy_spec import PolicySpec
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.simulation import ReplaySpec, replay_workload
from cpsched_sim.simulation_metrics import metric_values
from cpsched_sim.study.policy_ranking import WORKLOAD_AXES, compare_policies
from cpsched_sim.tuning.setting_candidates import to_replayable_policy
from cpsched_sim.workloads.workload_loader import Workload, load

BASELINE = "easy"
GOALS = {
    "waits": "lookahead objective=waits",
    "balance": "lookahead objective=balance",
    "large-jobs": "lookahead objective=large-jobs",
}
"""The policy of each goal."""
METRICS = {
    "af": "AF", "awf": "AWF", "bsld": "BSLD", "p2sf": "P2SF", "longest_wait_s": "Max", "mean_wait_s": "mean wait"
}  # fmt: skip
SEEDS = (0, 1)
TRACES: dict[str, dict[str, Any]] = {
    "KTH": {
        "file": "KTH-SP2.swf.gz", "jobs": 2500,
        "training": (2500, 7500, 12500, 20000), "test": (5000, 10000, 15000, 22500),
    },
    "KIT": {
        "file": "KIT-FH2-2016-1.first25k.swf.gz", "system": "kit-forhlr2", "jobs": 2500,
        "training": (2500, 15000, 20000), "test": (5000, 17500, 22500),
    },
    "RICC": {"file": "RICC-2010-2.swf.gz", "jobs": 3000, "training": (6000, 30000), "test": (12000, 48000)},
    "BLUE": {
        "file": "SDSC-BLUE.swf.gz", "jobs": 2500,
        "training": (20000, 40000, 60000, 75000), "test": (30000, 50000, 65000, 85000),
    },
}  # fmt: skip
"""By trace: the file, the number of jobs in a window, and the first job of each window that has a queue."""


def list_windows(half: str) -> Iterator[tuple[str, int, Workload]]:
    """Yield the windows of one half with trace and first job."""
    for name, trace in TRACES.items():
        last, path = max(trace[half]) + trace["jobs"], Path(os.environ["CPSCHED_TRACES"]) / trace["file"]
        workload = load(path, trace.get("system"), lenient=True, max_jobs=last)
        for first in trace[half]:
            yield name, first, replace(workload, jobs=workload.jobs[first : first + trace["jobs"]])


def replay_window(workload: Workload, policy: str, seed: int) -> dict[str, float]:
    """Return the metrics of one replay."""
    found = replay_workload(
        workload, ReplaySpec(to_replayable_policy(PolicySpec.parse(policy, SIMULATION_REGISTRIES), seed))
    )
    values = {**metric_values(found.measures, found.more), "longest_wait_s": float(found.measures.wait_s.max())}
    return {name: float(values[name]) for name in METRICS}


def measure(half: str, path: Path, policies: list[str]) -> list[dict[str, Any]]:
    """Replay what `path` lacks, and return the rows of all replays."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(row["trace"], row["window"], row["policy"], row["seed"]) for row in rows}
    for trace, first, workload in list_windows(half):
        for policy in (BASELINE, *policies):
            for seed in SEEDS:
                if (trace, first, policy, seed) in known:
                    continue
                labels = {
                    **dict.fromkeys(WORKLOAD_AXES, ""),
                    "trace": trace,
                    "window": first,
                    "outcome": "ended",
                    "drawn": False,
                }
                row = {**labels, "policy": policy, "seed": seed, "digest": f"{trace} {first} {policy} {seed}"}
                rows.append(row | replay_window(workload, policy, seed))
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    return rows


def print_table(rows: list[dict[str, Any]], policies: dict[str, str]) -> None:
    """Print the geometric means over the windows, with 95 % intervals for all traces together."""
    print("| traces | policy |", " | ".join(METRICS.values()), "|\n" + "|---" * (len(METRICS) + 2) + "|")
    for traces in (list(TRACES), *([name] for name in TRACES)):
        some = [row for row in rows if row["trace"] in traces]
        for label, policy in policies.items():
            cells = []
            for metric in METRICS:
                found = compare_policies(some, metric, policy, BASELINE)
                cells.append("-" if found is None else f"{100 * found.ratio:.0f}")
                if found is not None and found.low is not None and found.high is not None and len(traces) > 1:
                    cells[-1] += f" ({100 * found.low:.0f}–{100 * found.high:.0f})"
            print(f"| {traces[0] if len(traces) == 1 else 'all'} | {label} |", " | ".join(cells), "|")


if __name__ == "__main__":
    half, path, *given = sys.argv[1:]
    policies = {policy: policy for policy in given} or GOALS
    print_table(measure(half, Path(path), list(policies.values())), policies)
