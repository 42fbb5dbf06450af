"""Compare the nodes that Slurm and the core choose for the same jobs in the same states.

`deploy/cluster wide 24` and `python -m tests.slurm.node_choice [--site NAME] [--jobs N] [--seed N]`. Slurm alone starts
one job after another, and the core places each of them on the nodes that were free before. If a job does not fit, half
of the running jobs are cancelled. The status is 1 if any choice differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from cpsched.feasibility import FreeAmounts
from cpsched.model import Cluster, Placement, Request
from cpsched.slurm_text.hostlist import expand_hostlist
from tests.slurm.harness import Slurm
from tests.slurm.site_configs import CONFIGS, NODES, SiteConfig
from tests.slurm.sites import prepare, start

CORES = 16
SHAPES = ((1, 4), (1, 8), (2, 8), (2, 16), (3, 4), (4, 8), (5, 16), (6, 8))
"""Nodes, and tasks on each of them."""


def cluster_of(config: SiteConfig) -> Cluster:
    """Return the configuration's nodes with their weights and leaf switches."""
    names = [f"w{number + 1}" for number in range(NODES)]
    weights, leaves = config.weights(), config.leaf_switches()
    order = sorted(set(leaves.values()))
    numbers = [order.index(leaves[name]) for name in names]
    rows = [[CORES]] * NODES
    return Cluster.of(rows, ["cores"], names, weights=[weights[name] for name in names], leaf_switches=numbers)


def placed_by_slurm(slurm: Slurm, partition: str, nodes: int, tasks: int) -> tuple[str, list[str]]:
    """Submit a job, and return its number and nodes; no nodes if it does not start in three seconds."""
    shape = [f"-N{nodes}", f"-n{nodes * tasks}", f"--ntasks-per-node={tasks}", "--mem-per-cpu=10", "-p", partition]
    wrap = ["--parsable", "--chdir=/tmp", "-t60", "-o", "/dev/null", "--uid=alice", "--wrap", "sleep 3000"]
    number = slurm.run("sbatch", *wrap, *shape).strip()
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s:
        state, _, found = slurm.run("squeue", "-h", "-j", number, "-o", "%T %N").strip().partition(" ")
        if state == "RUNNING":
            return number, list(expand_hostlist(found))
        time.sleep(0.2)
    return number, []


def compare(slurm: Slurm, config: SiteConfig, jobs: int, seed: int) -> tuple[int, int, list[str]]:
    """Return how many jobs were compared, how many of several nodes, and a line for each difference."""
    cluster, draw = cluster_of(config), random.Random(seed)
    free, running = FreeAmounts(cluster, cluster.capacity), dict[str, tuple[Request, Placement]]()
    partition, differences, wide, done = next(iter(config.partitions)), list[str](), 0, 0
    while done < jobs:
        nodes, tasks = draw.choice(SHAPES)
        request = Request(nodes, (tasks,), distinct=nodes > 1)
        expected = [cluster.node_names[node] for node, _ in free.find_placement(request)]
        number, found = placed_by_slurm(slurm, partition, nodes, tasks)
        if not found:
            ended = draw.sample(sorted(running), (len(running) + 1) // 2)
            slurm.run("scancel", number, *ended)
            for each in ended:
                free.release(*running.pop(each))
            while slurm.run("squeue", "-h").count("\n") > len(running):
                time.sleep(0.2)
            if expected:
                differences.append(f"{nodes} nodes of {tasks} tasks: {','.join(expected)}, but Slurm did not start it")
            continue
        done, wide = done + 1, wide + (nodes > 1)
        if sorted(found) != sorted(expected):
            differences.append(f"{nodes} nodes of {tasks} tasks: Slurm {','.join(found)}, core {','.join(expected)}")
        placement = tuple(sorted((cluster.node_names.index(name), 1) for name in found))
        running[number] = request, placement
        free.take(*running[number])
    slurm.run("scancel", *running)
    return done, wide, differences


def main() -> int:
    """Run as a command; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", default="site15", help="a configuration whose default partition has all nodes")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    config = next(each for each in CONFIGS if wanted.site in (each.name, each.cluster))
    slurm = Slurm()
    try:
        prepare(slurm)
        start(slurm, config)
        done, wide, differences = compare(slurm, config, wanted.jobs, wanted.seed)
    finally:
        slurm.close()
    print(*differences, f"{config.name}: {done} jobs, {wide} of several nodes, {len(differences)} differ", sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
