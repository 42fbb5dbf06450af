"""Simulate the jobs of a site configuration, and compare node weights, leaf switches and waits by dispatcher.

`python -m tests.slurm.simulated_sites [--site NAME] [--seeds N]` needs no cluster. It prints the mean over the seeds
and, in brackets, the mean difference from `easy` with its 95 % interval. Starts take no time. Licenses, GPUs,
dependencies and limits are ignored, and each array task is a job.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics

import numpy as np

from cpsched import registry
from cpsched.model import Cluster
from cpsched.planning import FloatArray
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import TraceReplay
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_job
from tests.slurm.site_configs import BY_CLUSTER, NODES, SiteConfig
from tests.slurm.sites import JOBS, jobs_of, partition, run_of, tasks

CORES = 16
CASES = {
    "easy": ("easy", {}),
    "easy by index": ("easy", {}),
    "slurm": ("slurm", {}),
    "slurm bf_interval=1": ("slurm", {"scheduler_parameters": "bf_interval=1"}),
}
"""Dispatchers with their settings. The case "by index" has no leaf switches."""


def cluster_of(config: SiteConfig) -> Cluster:
    """Return the configuration's nodes with their partitions, weights and leaf switches."""
    names = [f"w{number + 1}" for number in range(NODES)]
    weights, leaves = config.weights(), config.leaf_switches()
    order = sorted(set(leaves.values()))
    members = {
        name: [at - 1 for group in partition(config, name)[0] for at in range(config.nodes_of(group)[0],
               config.nodes_of(group)[1] + 1)]
        for name in config.partitions
    }  # fmt: skip
    return Cluster.of(
        [[CORES]] * NODES, ["cores"], names, members,
        [weights[name] for name in names], [order.index(leaves[name]) for name in names],
    )  # fmt: skip


def trace_of(config: SiteConfig, seed: int) -> list[TraceJob]:
    """Return the configuration's jobs."""
    run, found, at_s = run_of(config), list[TraceJob](), 0.0
    names = list(config.partitions)
    for job in jobs_of(run, JOBS, seed):
        at_s += job.pause_s
        shape, count = run.shapes[job.shape], tasks(run, job)
        units = shape.units if count == 1 else 1
        for _ in range(count):
            node_set = 1 + (names.index(shape.partition) if shape.partition in names else 0)
            made = a_job(
                len(found), units, shape.cores, 300, int(at_s), distinct=units > 1, exclusive=shape.exclusive,
                node_set=node_set,
            )  # fmt: skip
            found.append(TraceJob(made, job.run_s))
    return found


def figures(config: SiteConfig, case: str, seed: int) -> FloatArray:
    """Return the mean sum of node weights, the mean number of leaf switches, and the mean wait."""
    trace, cluster = trace_of(config, seed), cluster_of(config)
    weights, leaves = np.array([*config.weights().values()]), np.array([*config.leaf_switches().values()])
    if case == "easy by index":
        cluster = dataclasses.replace(cluster, leaf_switches=None)
    name, settings = CASES[case]
    done = TraceReplay(
        trace, cluster, Policy(registry.PREDICTORS.build("walltime"), registry.DISPATCHERS.build(name, settings))
    ).run()
    nodes = [[node for node, _ in done.placement_of(i)] for i in range(len(trace))]
    return np.array([
        statistics.mean(float(weights[each].sum()) for each in nodes),
        statistics.mean(len(set(leaves[each])) for each in nodes),
        statistics.mean(float(done.start_s[i] - item.job.submit_s) for i, item in enumerate(trace)),
    ])  # fmt: skip


LINE = "{:8} {:20}" + " {:>24}" * 3
COLUMNS = ("site", "dispatcher", "node weights", "leaf switches", "mean wait s")


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--site", action="append", choices=BY_CLUSTER, metavar="NAME", help="default: site02 and site15"
    )
    parser.add_argument("--seeds", type=int, default=24)
    wanted = parser.parse_args()
    if wanted.seeds < 2:
        parser.error("--seeds must be at least 2, because intervals are printed")
    print(LINE.format(*COLUMNS))
    for site in wanted.site or ("site02", "site15"):
        config = BY_CLUSTER[site]
        found = {case: np.array([figures(config, case, 1 + seed) for seed in range(wanted.seeds)]) for case in CASES}
        for case, rows in found.items():
            difference = rows - found["easy"]
            half = 1.96 * difference.std(axis=0, ddof=1) / np.sqrt(wanted.seeds)
            cells = zip(rows.mean(axis=0), difference.mean(axis=0), half, strict=True)
            print(LINE.format(site, case, *(f"{mean:.2f} ({by:+.3f} ± {most:.3f})" for mean, by, most in cells)))


if __name__ == "__main__":
    main()
