"""Node-hours lost to preemption, by Slurm's choice of victims and by least work: `python -m tests.benchmarks.victims`.

Half of the jobs in each trace, drawn at random, have a scavenger QOS. The other jobs may preempt them. Each seed has
its own windows of a trace, which are replayed at three loads with each choice. CPSCHED_TRACES is the folder of the
traces. Printed per trace: lost node-hours, mean waits of the jobs that preempted and of all that may, and mean response
times of scavengers (stopped ones run again in full), by Slurm's choice and by ours, with the ratio in percent and its
95 % interval over the windows.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cpsched_sim.experiments.bootstrap_statistics import bootstrap_interval, draw_resample_counts
from cpsched_sim.simulation import simulate
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.study.case_execution import scale_load
from cpsched_sim.systems.system_file import System, load_system
from cpsched_sim.workloads.eurora_generator import generate_eurora_records
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy, load

TRACES = {
    "KIT": ("KIT-FH2-2016-1.first25k.swf.gz", "kit-forhlr2"),
    "RICC": ("RICC-2010-2.swf.gz", "pool"),
    "Theta": ("ALCF-Theta-2022nov-2023dec-users.swf.gz", "pool"),
}
CHOICES = ("slurm", "least-work")
LOADS = (0.8, 1.0, 1.3)
POLICY = """
accounts: { all: {} }
qos: { normal: { priority: 10, preempt: [scavenger] }, scavenger: {} }
priority: { qos: 1000 }
preemption: { type: qos, mode: requeue, victims: %s }
"""
FIGURES = ("lost_node_h", "wait_of_preemptors_s", "wait_of_normal_s", "response_of_scavengers_s")


def windows(name: str, jobs: int, count: int) -> Iterator[Workload]:
    """Yield windows of `jobs` jobs, evenly spread over a trace; Eurora's are generated, each from its own seed."""
    if name == "Eurora":
        target = System(load_system("eurora"))
        for seed in range(count):
            drawn = [
                record.to_trace_job(target.request(record.ask))
                for record in generate_eurora_records(4, seed, 2.0)[:jobs]
            ]
            yield Workload(name, target.name, target.cluster, drawn, {}, ())
        return
    file, system = TRACES[name]
    whole = load(Path(os.environ["CPSCHED_TRACES"]) / file, system, lenient=True)
    for first in np.linspace(0, len(whole.jobs) - jobs, count + 2, dtype=int)[1:-1].tolist():
        yield replace(whole, jobs=whole.jobs[first : first + jobs])


def figures(workload: Workload, choice: str, seed: int) -> dict[str, float]:
    """Return the figures of one replay."""
    scavenges = np.random.default_rng(seed).random(len(workload.jobs)) < 0.5
    jobs = [
        replace(item, job=replace(item.job, qos="scavenger" if low else "normal"))
        for item, low in zip(workload.jobs, scavenges.tolist(), strict=True)
    ]
    site = parse_site_policy_file(Path("policy.yaml"), POLICY % choice)
    found = simulate(apply_site_policy(replace(workload, jobs=jobs), site), "easy", settings={"order": "priority"})
    submit_s = np.array([item.job.submit_s for item in jobs])
    counts = found.summary()["preemption"]
    return {
        "victims": counts["victims"], "preemptions": counts["preemptions"], "in_vain": counts["in_vain"],
        "lost_node_h": counts["lost_node_h"],
        "wait_of_preemptors_s": counts["mean_wait_s_of_preemptors"],
        "wait_of_normal_s": float((found.schedule.start_s - submit_s)[~scavenges].mean()),
        "response_of_scavengers_s": float((found.schedule.end_s - submit_s)[scavenges].mean()),
    }  # fmt: skip


def compared(rows: Mapping[int, Sequence[Mapping[str, Any]]], name: str) -> str:
    """Return the means of both choices over all replays, and their ratio in percent with its interval over windows."""
    theirs, ours = (np.array([sum(row[choice][name] for row in each) for each in rows.values()]) for choice in CHOICES)
    means = f"{theirs.mean() / len(LOADS):,.1f}, {ours.mean() / len(LOADS):,.1f}"
    if not theirs.sum():
        return means
    counts = draw_resample_counts(len(rows))
    interval = bootstrap_interval((counts @ ours) / np.maximum(counts @ theirs, 1e-9), len(rows))
    span = f" ({100 * interval[0]:.0f}-{100 * interval[1]:.0f})" if interval else ""
    return f"{means}: {100 * ours.sum() / theirs.sum():.1f}{span}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="KIT,RICC,Theta,Eurora")
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--windows", type=int, default=2, help="per seed")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    for name in chosen.traces.split(","):
        rows: dict[int, list[dict[str, Any]]] = {}
        for number, window in enumerate(windows(name, chosen.jobs, chosen.windows * chosen.seeds)):
            for factor in LOADS:
                scaled, seed = scale_load(window, factor), number % chosen.seeds
                row = {choice: figures(scaled, choice, seed) for choice in CHOICES}
                rows.setdefault(number, []).append(row)
                print(json.dumps({"trace": name, "window": number, "load": factor, "seed": seed, **row}), flush=True)
        for figure in FIGURES:
            print(f"{name} {figure} (Slurm, least work): {compared(rows, figure)}", flush=True)


if __name__ == "__main__":
    main()
