"""Compare the choice of leaf switches with a plain version of Slurm's rule (topology/tree/eval_nodes_tree.c)."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.feasibility import FreeAmounts, choose_nodes
from cpsched.model import Cluster
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.builders import a_job, a_snapshot
from tests.properties.strategies import used_clusters


def tree_choice(room, units, weights, leaves):
    """Return units by node as Slurm chooses them: weight by weight, then leaf by leaf, then by index."""
    fitting = [node for node in range(len(room)) if room[node]]
    chosen, need = [], units
    for weight in sorted({weights[node] for node in fitting}):
        level = [node for node in fitting if weights[node] == weight]
        if sum(room[node] for node in level) < need:
            chosen += level
            need -= sum(room[node] for node in level)
            continue
        below = {leaf: [node for node in level if leaves[node] == leaf] for leaf in sorted({leaves[n] for n in level})}
        mine = {leaves[node] for node in chosen}
        queue = [leaf for leaf in below if leaf in mine]
        others = [leaf for leaf in below if leaf not in mine]
        while need > 0:
            if units == 1:
                nodes = level
            elif queue:
                nodes = below[queue.pop(0)]
            else:
                enough = [leaf for leaf in others if sum(room[node] for node in below[leaf]) >= need]
                sizes = {leaf: len(below[leaf]) if enough else -len(below[leaf]) for leaf in enough or others}
                others.remove(best := min(sizes, key=sizes.__getitem__))
                nodes = below[best]
            for node in nodes:
                if need > 0:
                    chosen.append(node)
                    need -= room[node]
        break
    found = {node: int(room[node]) for node in chosen}
    if need < 0:
        found[chosen[-1]] += need
    return tuple(sorted(found.items()))


@st.composite
def trees(draw):
    """Draw a snapshot of nodes below leaf switches, some in use, with one queued job that fits."""
    leaves = draw(st.lists(st.integers(0, 3), min_size=2, max_size=12))
    cluster, used, running = draw(used_clusters([[4]] * len(leaves), 2, leaf_switches=leaves))
    weights = [0] * len(leaves) if cluster.weights is None else cluster.weights.tolist()
    each, distinct = draw(st.integers(1, 4)), draw(st.booleans())
    room = np.minimum((4 - used[:, 0]) // each, 1 if distinct else 4)
    units = draw(st.integers(1, max(1, int(room.sum()))))
    snapshot = a_snapshot(cluster, [a_job(1, units, each, distinct=distinct)], running)
    return snapshot, tree_choice(room, units, weights, leaves) if room.sum() >= units else ()


@scaled_example_settings(300)
@given(trees())
def test_arrays_choose_like_slurm(tree):
    snapshot, expected = tree
    (job,) = snapshot.queued_jobs()
    assert FreeAmounts(snapshot.cluster, snapshot.free).find_placement(job.request) == expected


@st.composite
def queues(draw):
    """Draw a snapshot of idle and partly used nodes below leaf switches, with several queued jobs."""
    leaves = draw(st.lists(st.integers(0, 4), min_size=4, max_size=16))
    cluster, _, running = draw(used_clusters([[4]] * len(leaves), 1, leaf_switches=leaves))
    jobs = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.booleans()), min_size=2, max_size=6))
    queue = [a_job(i, units, each, distinct=distinct) for i, (units, each, distinct) in enumerate(jobs)]
    return a_snapshot(cluster, queue, running)


@pytest.mark.parametrize(
    ("free", "units", "weights", "nodes"),
    [
        ("1111 11 111", 2, None, [4, 5]),
        ("1111 11 111", 3, None, [6, 7, 8]),
        ("1111 11 111", 5, None, [0, 1, 2, 3, 4]),
        ("1111 11 111", 6, None, [0, 1, 2, 3, 4, 5]),
        ("1111 11 111", 1, None, [0]),
        ("1000 11 111", 5, None, [4, 5, 6, 7, 8]),
        ("1111 11 111", 3, "0222 22 111", [0, 6, 7]),
        ("1111 11 111", 5, "0222 22 111", [0, 1, 6, 7, 8]),
        ("1111 11 111", 6, "0222 22 111", [0, 1, 2, 6, 7, 8]),
        ("1 1111 11", 3, "0 2222 22", [0, 5, 6]),
        ("11 1", 3, "11 2", [0, 1, 2]),
    ],
)
def test_takes_best_fitting_leaf_switch(free, units, weights, nodes):
    """The fewest nodes that suffice, else the most nodes; lower weights first, then their leaf switches."""
    below = [leaf for leaf, part in enumerate(free.split()) for _ in part]
    room = np.array([int(each) for each in free.replace(" ", "")])
    heavy = None if weights is None else [int(each) for each in weights.replace(" ", "")]
    cluster = Cluster.of([[1]] * len(room), ["cores"], weights=heavy, leaf_switches=below)
    assert [node for node, _ in choose_nodes(room, units, cluster)] == nodes


def test_equal_leaf_switches_change_nothing():
    cluster = Cluster.of([[1], [1]], ["cores"], leaf_switches=[3, 3])
    assert cluster.leaf_switches is None
    assert cluster.counted
    assert not dataclasses.replace(cluster, leaf_switches=np.array([3, 4])).counted
