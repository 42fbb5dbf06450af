"""The causes of unused nodes while jobs wait, sample by sample."""

from dataclasses import replace

import numpy as np
import pytest

from cpsched.model import NEVER, Cluster, Request
from cpsched.model.typical_requests import GPU_RESOURCES
from cpsched_sim.whatif.unused_capacity_causes import (
    AWAY,
    CAUSES,
    CORES,
    GPUS,
    HELD,
    MEMORY,
    PARTITION,
    PROCESSORS,
    WHOLE,
    PlacedSchedule,
    compute_stranded_capacity,
)

CLUSTER = Cluster.of([[4, 100, 0], [4, 100, 0], [8, 100, 2]], ["cores", "memory_mib", "gpus"], node_sets={"gpu": [2]})


def asks(cores, memory=0, gpus=0, node_set=0, units=1, exclusive=False):
    return Request(units, (cores, memory, gpus), exclusive=exclusive, node_set=node_set)


def empty(running, waiting, away=()):
    """Causes of one hour: (request, node) of what runs, requests that wait, nodes that are away."""
    ran = [*running, *((asks(1, exclusive=True), node) for node in away)]
    n = len(ran) + len(waiting)
    runs = np.arange(n) < len(ran)
    is_away = np.zeros(n, np.bool_)
    is_away[len(running) : len(ran)] = True
    node = np.array([node for _, node in ran], np.int64)
    start_s, left_s = np.where(runs, 0, NEVER), np.where(runs, 0, 10_000)
    count = runs.astype(np.int64)
    made = PlacedSchedule(
        np.zeros(n, np.int64), left_s, start_s, np.where(runs, 10_000, NEVER), np.cumsum(count) - count, count, node,
        np.ones(len(ran), np.int64), is_away,
    )  # fmt: skip
    found = compute_stranded_capacity(CLUSTER, [*(request for request, _ in ran), *waiting], made, 0, 3600)
    return {
        (what, cause): amount
        for what in (PROCESSORS, GPUS)
        for cause, amount in enumerate(found[what].tolist())
        if amount
    }


@pytest.mark.parametrize(
    ("running", "waiting", "away", "causes"),
    [
        ([(asks(1), 0)], [], [], {}),
        ([(asks(3), 2)], [asks(2, node_set=1)], [], {(PROCESSORS, HELD): 5, (PROCESSORS, PARTITION): 8}),
        # one core has all but a mebibyte of the last node's memory
        ([(asks(1, 1), 2)], [asks(1, 100, node_set=1)], [], {(PROCESSORS, MEMORY): 7, (PROCESSORS, PARTITION): 8}),
        ([(asks(1, 1), 2)], [asks(1, 99, node_set=1)], [], {(PROCESSORS, HELD): 7, (PROCESSORS, PARTITION): 8}),
        # GPUs count only while a GPU job waits
        ([(asks(8), 2)], [asks(2, node_set=1)], [], {(PROCESSORS, PARTITION): 8}),
        ([(asks(1), 2)], [asks(2, node_set=1, exclusive=True)], [],
         {(PROCESSORS, WHOLE): 7, (PROCESSORS, PARTITION): 8}),
        # an exclusively used node has no unused capacity
        ([(asks(1, exclusive=True), 2)], [asks(2, node_set=1)], [], {(PROCESSORS, PARTITION): 8}),
        ([(asks(4), 0), (asks(4), 1)], [asks(2)], [2], {(PROCESSORS, AWAY): 8}),
    ],
)  # fmt: skip
def test_unused_capacity_has_a_cause_while_jobs_wait(running, waiting, away, causes):
    assert empty(running, waiting, away) == causes


@pytest.mark.parametrize("name", GPU_RESOURCES)
def test_gpus_without_cores_are_stranded_by_cores(name, monkeypatch):
    """The resource of GPUs has a different name in Slurm, in system files and in PBS."""
    named = replace(CLUSTER, resources=("cores", "memory_mib", name))
    monkeypatch.setattr("tests.unit.sim.whatif.test_unused_capacity_causes.CLUSTER", named)
    found = empty([(asks(7), 2)], [asks(2, gpus=1, node_set=1)])
    assert (found[GPUS, CORES], found[PROCESSORS, CORES]) == (2, 1)


def test_each_unit_of_job_takes_its_capacity():
    """Two nodes of a job with two units on one and one on the other."""
    one = np.zeros(2, np.int64)
    made = PlacedSchedule(one, np.array([0, 9000]), np.array([0, NEVER]), np.array([9000, NEVER]), one, np.array([2, 0]),  # noqa: E501
               np.array([0, 2]), np.array([2, 1]), np.zeros(2, np.bool_))  # fmt: skip
    found = compute_stranded_capacity(CLUSTER, [asks(2, units=3), asks(1)], made, 0, 7200)
    assert found[PROCESSORS].tolist() == [10 if cause == HELD else 0 for cause in range(len(CAUSES))]


def test_outage_waiting_for_node_is_no_pending_job():
    made = PlacedSchedule(
        *(np.full(1, at, np.int64) for at in (0, 10_000, NEVER, NEVER, 0, 0)),
        *(np.zeros(0, np.int64),) * 2,
        np.ones(1, np.bool_),
    )
    assert not compute_stranded_capacity(CLUSTER, [asks(1)], made, 0, 3600).any()
