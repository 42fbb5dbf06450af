"""Compare the nodes that Slurm and the core choose for the same jobs in the same states.

`deploy/cluster wide 24` and `python -m tests.slurm.node_choice [--site NAME] [--jobs N] [--seed N]`. Slurm alone starts
one job after another, and the core places each of them on the nodes that were free before. If a job does not fit, half
of the running jobs are cancelled. The status is 1 if any choice differs. `--blocks 4,4,0,6 --block-sizes 4,8` replaces
the site's blocks, and `--weights 1,5,1,5` gives equal groups of nodes these weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
from contextlib import closing
from typing import NamedTuple

import numpy as np

from cpsched.feasibility import FreeAmounts
from cpsched.model import BlockRule, BlockTopology, Cluster, Placement, Request
from cpsched.slurm_text.hostlist import expand_hostlist
from tests.slurm.harness import Slurm
from tests.slurm.site_configs import BY_CLUSTER, NODES, NodeGroup, SiteConfig
from tests.slurm.sites import prepare, start

CORES = 16
SHAPES = ((1, 4), (1, 8), (2, 8), (2, 16), (3, 4), (4, 8), (5, 16), (6, 8))
"""Nodes, and tasks on each of them."""
SEGMENTS = ((2, 16, 1), (4, 16, 2), (6, 8, 3), (6, 16, 2), (8, 16, 4), (9, 8, 3))
"""With blocks also: nodes, tasks on each of them, and nodes of each segment."""


class JobShape(NamedTuple):
    """A job's nodes, the tasks on each of them, and its rule for blocks."""

    nodes: int
    tasks: int
    rule: BlockRule = BlockRule(0)

    def options(self) -> list[str]:
        """Return the options of `sbatch`."""
        found = [f"-N{self.nodes}", f"-n{self.nodes * self.tasks}", f"--ntasks-per-node={self.tasks}"]
        found += [f"--segment={self.rule.segment}"] if self.rule.segment else []
        found += ["--spread-segments"] if self.rule.spread else []
        return found + (["--consolidate-segments"] if self.rule.consolidate else [])


def integers(text: str) -> tuple[int, ...]:
    """Return the numbers of an option, such as 4,4,0,6."""
    return tuple(map(int, text.split(",")))


def shapes_of(config: SiteConfig) -> list[JobShape]:
    """Return the shapes for a configuration."""
    found = [JobShape(*shape) for shape in SHAPES]
    if config.blocks:
        found += [JobShape(nodes, 16) for nodes in (7, 8, 10, 12)]
        found += [
            JobShape(nodes, tasks, BlockRule(0, segment, spread, consolidate))
            for nodes, tasks, segment in SEGMENTS
            for spread in (False, True)
            for consolidate in (False, True)
        ]
    return found


def cluster_of(config: SiteConfig) -> Cluster:
    """Return the configuration's nodes with their weights and leaf switches."""
    names = [f"w{number + 1}" for number in range(NODES)]
    weights, leaves = config.weights(), config.leaf_switches()
    order = sorted(set(leaves.values()))
    numbers = [order.index(leaves[name]) for name in names]
    cluster = Cluster.of(
        [[CORES]] * NODES, ["cores"], names, weights=[weights[name] for name in names], leaf_switches=numbers
    )
    if not config.blocks:
        return cluster
    blocks = config.base_blocks()
    inside = np.array([blocks[name] >= 0 for name in names])
    rules = list(dict.fromkeys(shape.rule for shape in shapes_of(config)))
    widths = [size // config.block_sizes[0] for size in config.block_sizes]
    topology = BlockTopology(
        tuple(blocks[name] for name in names), config.block_sizes[0], sum(widths), len(config.blocks)
    )
    return dataclasses.replace(
        cluster,
        node_sets=np.array([cluster.node_sets[0], *(inside for _ in rules)]),
        node_set_names=("all", *(f"blocks{at}" for at in range(len(rules)))),
        block_topologies=(topology,),
        node_set_blocks=(None, *rules),
    )


def request_of(shape: JobShape, cluster: Cluster) -> Request:
    """Return the request of a job."""
    has_rule = shape.nodes > 1 and bool(cluster.block_topologies)
    node_set = cluster.node_set_blocks.index(shape.rule) if has_rule else 0
    return Request(shape.nodes, (shape.tasks,), distinct=shape.nodes > 1, node_set=node_set)


def placed_by_slurm(slurm: Slurm, partition: str, shape: JobShape) -> tuple[str, list[str]]:
    """Submit a job, and return its number and nodes; no nodes if it does not start in three seconds."""
    options = [*shape.options(), "--mem-per-cpu=10", "-p", partition]
    wrap = ["--parsable", "--chdir=/tmp", "-t60", "-o", "/dev/null", "--uid=alice", "--wrap", "sleep 3000"]
    number = slurm.run("sbatch", *wrap, *options, check=False).strip()
    if not number:
        return "", []  # Slurm refuses a job that never fits
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
        shape = draw.choice(shapes_of(config))
        request = request_of(shape, cluster)
        expected = [cluster.node_names[node] for node, _ in free.find_placement(request)]
        number, found = placed_by_slurm(slurm, partition, shape)
        if not found:
            ended = draw.sample(sorted(running), (len(running) + 1) // 2)
            if number or ended:
                slurm.run("scancel", *([number] if number else []), *ended)
            for each in ended:
                free.release(*running.pop(each))
            while slurm.run("squeue", "-h").count("\n") > len(running):
                time.sleep(0.2)
            if expected:
                differences.append(f"{shape}: {','.join(expected)}, but Slurm did not start it")
            continue
        done, wide = done + 1, wide + (shape.nodes > 1)
        if sorted(found) != sorted(expected):
            differences.append(f"{shape}: Slurm {','.join(found)}, core {','.join(expected)}")
        placement = tuple(sorted((cluster.node_names.index(name), 1) for name in found))
        running[number] = request, placement
        free.take(*running[number])
    slurm.run("scancel", *running)
    return done, wide, differences


def main() -> int:
    """Run as a command; return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--site", choices=BY_CLUSTER, metavar="NAME", default="site15",
        help="a configuration whose default partition has all nodes; default: site15",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blocks", type=integers, help="nodes of each base block")
    parser.add_argument("--block-sizes", type=integers, help="with --blocks: planned sizes of blocks")
    parser.add_argument(
        "--weights", type=integers, default=(1,), help="with --blocks: weights of 1, 2, 3, 4, 6 or 8 groups of nodes"
    )
    wanted = parser.parse_args()
    config = BY_CLUSTER[wanted.site]
    if wanted.blocks:
        if not wanted.block_sizes:
            parser.error("--blocks needs --block-sizes")
        groups = tuple(NodeGroup(NODES // len(wanted.weights), weight=weight) for weight in wanted.weights)
        everything = {next(iter(config.partitions)): "".join(map(str, range(len(groups))))}
        config = dataclasses.replace(
            config, groups=groups, partitions=everything, topology=False,
            blocks=wanted.blocks, block_sizes=wanted.block_sizes,
        )  # fmt: skip
    with closing(Slurm()) as slurm:
        prepare(slurm)
        start(slurm, config)
        done, wide, differences = compare(slurm, config, wanted.jobs, wanted.seed)
    print(*differences, f"{config.name}: {done} jobs, {wide} of several nodes, {len(differences)} differ", sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
