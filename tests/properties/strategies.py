"""Draw clusters whose nodes have weights and are partly in use, and clusters of many nodes."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from cpsched.model import Cluster, IntArray, RunningJob
from tests.builders import a_job, a_running, a_snapshot


class UsedCluster(NamedTuple):
    """A cluster, the amounts in use on each node, and the running jobs that use them."""

    cluster: Cluster
    used: IntArray
    running: list[RunningJob]


@st.composite
def used_clusters(draw, capacity, most_weight, grain=1, **facts):
    """Draw the weight of each node, up to `most_weight`, and its used amounts in multiples of `grain`."""
    weights = draw(st.lists(st.integers(0, most_weight), min_size=len(capacity), max_size=len(capacity)))
    used = [[grain * draw(st.integers(0, amount // grain)) for amount in row] for row in capacity]
    resources = ["cores", "gpus"][: len(capacity[0])]
    running = [
        a_running(a_job(100 + n, per_unit=row, walltime_s=9 + n), ((n, 1),)) for n, row in enumerate(used) if any(row)
    ]
    return UsedCluster(Cluster.of(capacity, resources, weights=weights, **facts), np.array(used), running)


def scattered(random, nodes, kinds):
    """Return a capacity for each node, equal within runs of random length."""
    return np.repeat(random.integers(1, kinds + 1, nodes), random.choice([1, 2, 3, 40, 70], nodes))[:nodes]


@st.composite
def many_nodes(draw):
    """Draw a snapshot of more nodes than two blocks of a layout have, some in use, with jobs of very different widths.

    The example is derived from one drawn number, because drawing each node is slow.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cores = scattered(random, int(random.integers(129, 150)), 4)
    used = random.integers(0, 2, len(cores)) * scattered(random, len(cores), 4)
    running = [
        a_running(a_job(100 + node, 1, amount, int(random.integers(1, 6))), ((node, 1),))
        for node, amount in enumerate(np.minimum(used, cores).tolist())
        if amount
    ]
    queue = [
        a_job(i, int(random.choice([1, 2, 5, 30, 64, 100])), int(random.integers(1, 4)), int(random.integers(1, 6)),
              distinct=bool(random.integers(2)))
        for i in range(8)
    ]  # fmt: skip
    return a_snapshot(Cluster.of(cores[:, None].tolist(), ["cores"]), queue, running)
