"""Test that no start uses cores of a reservation, regardless of which offered nodes are selected."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpsched.feasibility import amounts_by_node, units_fitting_by_node
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator
from cpsched_bridge.adapters.slurm.translation.start_split_prediction import defer_reservation_conflicts
from cpsched_bridge.ports import StartOrder
from tests.unit.bridge.adapters.slurm.scenes import LATER, Scene

MINUTE_S = 60
CORES = 16

Facts = dict[str, Any]

TIMES = st.sampled_from([(-10, 5), (-5, 60), (1, 30), (10, 20), (30, 90), (59, 70), (60, 61)])
"""Start and end of a reservation in minutes from now; jobs run for 5, 30 or 60 minutes."""
HELD = st.dictionaries(st.sampled_from(["n1", "n2"]), st.integers(1, CORES), min_size=1)
RESERVATIONS = st.lists(st.tuples(TIMES, HELD, st.sampled_from([False, False, True])), max_size=2)
WHOLE = st.sampled_from([False, False, False, True])
JOBS = st.lists(st.tuples(st.sampled_from([1, 3, 8, 16]), st.sampled_from([5, 30, 60]), WHOLE), max_size=12)
RUNNING = st.lists(
    st.tuples(st.sampled_from(["n1", "n2"]), st.integers(1, 4), st.sampled_from([5, 30, 60])), max_size=2
)


def scene_of(reservations: list[Any], jobs: list[Any], running: list[Any]) -> Scene:
    scene = Scene().only("first")
    model = scene.job("first")
    waiting = [
        {**model, "id": 500 + at, "submit_time": at, "cpus": cores, "cpus_per_task": cores, "min_cpus_per_node": cores}
        | {"time_limit": minutes, "memory_per_cpu": 1, "resource_sharing": "NO" if whole else "OK"}
        for at, (cores, minutes, whole) in enumerate(jobs)
    ]
    placed = [
        {**model, "id": 900 + at, "state": "RUNNING", "allocated_nodes": node, "cpus": cores, "time_limit": minutes}
        | {"allocated_tres": {"cpu": cores, "node": 1}, "start_time": scene.now_s, "reservation": None}
        for at, (node, cores, minutes) in enumerate(running)
    ]
    scene.rows["jobs"] = waiting + placed
    for node, cores, _ in running:
        scene.node(node)["allocated_cpus"] += cores
    scene.rows["reservations"] = [
        LATER["reservations"]
        | {"name": f"r{at}", "nodes": ",".join(held), "users": ["bob"], "accounts": []}
        | {"cpu_ids_by_node": {} if whole else {name: f"0-{cores - 1}" for name, cores in held.items()}}
        | {"start_time": scene.now_s + begin * MINUTE_S, "end_time": scene.now_s + end * MINUTE_S}
        for at, ((begin, end), held, whole) in enumerate(reservations)
    ]
    return scene


@given(RESERVATIONS, JOBS, RUNNING, st.randoms(use_true_random=False))
def test_no_start_uses_reserved_resources(
    reservations: list[Any], jobs: list[Any], running: list[Any], chance: Any
) -> None:
    scene, translator = scene_of(reservations, jobs, running), SlurmTranslator()
    seen = translator.observe(scene.read())
    assert (seen.free >= 0).all()
    free, starts = seen.free.copy(), []
    for job in chance.sample([each.job for each in seen.pending], len(seen.pending)):
        room = units_fitting_by_node(job.request, seen.cluster, free)
        if job.request.exclusive:
            room[(free != seen.cluster.capacity).any(axis=1)] = 0
        nodes = room.nonzero()[0].tolist()
        if job.ineligible is None and nodes:
            starts.append(StartOrder(job, ((seen.cluster.node_names[nodes[0]], 1),)))
            for node, amounts in amounts_by_node(job.request, ((nodes[0], 1),), seen.cluster.capacity).items():
                free[node] -= amounts
    found = defer_reservation_conflicts(starts, (), translator.to_come, translator.machine, scene.now_s)
    begun = [each for each in found if isinstance(each, StartOrder)]
    if starts:
        assert begun, "of the starts that fit by themselves one at least is sent"
    for (begin, end), held, whole in reservations:
        used = np.zeros(4, np.int64)
        for sent in begun:
            if _meets(sent, begin) and end > 0:
                request, node = sent.job.request, seen.cluster.node_names.index(sent.nodes[0][0])
                used[node] += CORES if request.exclusive else request.per_unit[0]
        for node, cores, minutes in running:
            if begin < minutes and not whole:
                used[seen.cluster.node_names.index(node)] += cores
        for name, cores in held.items():
            own = used[seen.cluster.node_names.index(name)]
            ours = any(sent.nodes[0][0] == name for sent in begun if _meets(sent, begin))
            assert not ours or own <= (0 if whole else CORES - cores)


def _meets(sent: StartOrder, begin: int) -> bool:
    return max(begin, 0) * MINUTE_S < sent.job.walltime_s
