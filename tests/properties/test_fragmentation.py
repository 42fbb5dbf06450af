"""Compare fragmentation, and the choice of nodes by it, with plain versions."""

import dataclasses
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpsched import registry
from cpsched.feasibility import FreeAmounts
from cpsched.kernels.fragmentation import stranded_by_node, stranded_growth_by_node
from cpsched.model import Cluster, Request
from cpsched.model.typical_requests import find_typical_requests
from cpsched_bridge.store.round_records import cluster_from_json, cluster_to_json
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.builders import a_job, a_snapshot
from tests.properties.strategies import used_clusters

RESOURCES = ["cores", "gpus"]


def stranded(row, kinds):
    """Return the idle GPUs of a node times the share of the kinds that do not fit, in millionths."""
    return sum(share for (cores, gpus), share in kinds.items() if cores > row[0] or gpus > row[1]) * int(row[1])


def plain_choice(snapshot, job):
    """Return units by node: weight by weight, then by the growth of stranded GPUs per unit, then by index."""
    cluster, request = snapshot.cluster, job.request
    kinds = dict(zip(map(tuple, cluster.typical.amounts.tolist()), cluster.typical.shares.tolist(), strict=True))
    keys = []
    for node, row in enumerate(snapshot.free):
        fitting = [int(left) // amount for left, amount in zip(row, request.per_unit, strict=True) if amount]
        room = min(*fitting, 1 if request.distinct else request.units)
        if request.exclusive and (row != cluster.capacity[node]).any():
            room = 0
        if room:
            after = (0, 0) if request.exclusive else row - room * np.array(request.per_unit)
            growth = (stranded(after, kinds) - stranded(row, kinds)) // room
            keys.append((0 if cluster.weights is None else int(cluster.weights[node]), growth, node, room))
    chosen, need = {}, request.units
    for _, _, node, room in sorted(keys):
        if need > 0:
            chosen[node] = min(room, need)
            need -= chosen[node]
    return tuple(sorted(chosen.items())) if need <= 0 else ()


@st.composite
def gpu_nodes(draw):
    """Draw a snapshot of nodes with GPUs, some in use, with typical requests and one queued job."""
    capacity = draw(st.lists(st.sampled_from([(8, 4), (8, 4), (6, 2)]), min_size=4, max_size=9))
    requests = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4])), min_size=2, max_size=8))
    cluster, _, running = draw(used_clusters(capacity, 1))
    typical = find_typical_requests([Request(1, each) for each in requests], RESOURCES)
    each = (draw(st.integers(1, 3)), draw(st.sampled_from([0, 1, 1, 2])))
    units = draw(st.sampled_from([1, 1, 2, 3]))
    options = {"distinct": draw(st.booleans()), "exclusive": draw(st.sampled_from([False, False, True]))}
    return a_snapshot(dataclasses.replace(cluster, typical=typical), [a_job(1, units, each, **options)], running)


@scaled_example_settings(300)
@given(gpu_nodes())
def test_arrays_choose_nodes_with_least_stranded_gpus(snapshot):
    (job,) = snapshot.queued_jobs()
    assert FreeAmounts(snapshot.cluster, snapshot.free).find_placement(job.request) == plain_choice(snapshot, job)


@scaled_example_settings(100)
@given(gpu_nodes())
def test_slurm_ignores_typical_requests(snapshot):
    plain = dataclasses.replace(snapshot, cluster=dataclasses.replace(snapshot.cluster, typical=None))
    slurm = registry.DISPATCHERS.build("slurm")
    starts = [slurm.decide(each, "starts").starts_by_job(each) for each in (snapshot, plain)]
    assert starts[0] == starts[1]


def test_measures_stranded_gpus_by_typical_requests():
    """Of 20 requests for GPUs, 95 % are typical: 12, 5 and 2. Requests without GPUs do not count."""
    kinds = {(2, 1): 12, (4, 4): 5, (8, 2): 2, (8, 3): 1, (8, 0): 40}
    requests = [Request(1, each) for each, count in kinds.items() for _ in range(count)]
    typical = find_typical_requests(requests, RESOURCES)
    assert (typical.gpu, typical.amounts.tolist()) == (1, [[2, 1], [4, 4], [8, 2]])
    assert typical.shares.tolist() == [631579, 263158, 105263]
    free = np.array([[8, 4], [4, 4], [2, 3], [1, 2], [8, 0], [8, 1]])
    assert stranded_by_node(typical, free).tolist() == [
        0,
        4 * 105263,
        3 * (263158 + 105263),
        2 * 1_000_000,
        0,
        263158 + 105263,
    ]
    per_unit, units = np.array([2, 1]), np.array([2, 1, 1, 0, 1, 0])
    growths = [stranded_growth_by_node(typical, free, per_unit, units, whole).tolist() for whole in (0, 1)]
    assert growths == [
        [263158 + 105263, 3 * 263158 - 105263, 2 * 631579 - 263158 - 105263, 0, 0, 0],
        [0, -4 * 105263, -3 * (263158 + 105263), 0, 0, 0],
    ]
    assert find_typical_requests(requests, ["cores", "mics"]) is find_typical_requests([], RESOURCES) is None


def test_cluster_keeps_typical_requests_in_the_journal():
    cluster = dataclasses.replace(
        Cluster.of([[4, 8]], RESOURCES), typical=find_typical_requests([Request(2, (1, 2))], RESOURCES)
    )
    back = cluster_from_json(json.loads(json.dumps(cluster_to_json(cluster))))
    assert (back.typical.gpu, back.typical.amounts.tolist(), back.typical.shares.tolist()) == (1, [[1, 2]], [1_000_000])
