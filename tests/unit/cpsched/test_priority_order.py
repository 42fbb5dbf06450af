"""The order `priority`: tier, then priority, then arrival, as Slurm sorts its queue."""

from __future__ import annotations

import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster, Job, Request
from cpsched.planning import plan
from cpsched.registry import DISPATCHERS
from tests.builders import a_job, a_snapshot

NODES = Cluster.of([[4], [4]], ["cores"])
POOL = Cluster.of([[8]], ["cores"])


def snapshot(cluster, *jobs):
    queue = [a_job(id, units, 1, 60, id, priority=rank, tier=tier) for id, units, rank, tier in jobs]
    return a_snapshot(cluster, queue, now_s=100)


@pytest.mark.parametrize("cluster", [POOL, NODES])
def test_tier_precedes_priority_and_arrival_breaks_ties(cluster):
    queue = snapshot(cluster, (1, 8, 5, 0), (2, 8, 9, 0), (3, 8, 5, 0), (4, 8, 1, 1))
    assert plan(queue, "priority").plan_by_job(queue) == {4: 100, 2: 160, 1: 220, 3: 280}


def test_list_priority_is_registered():
    queue = snapshot(POOL, (1, 8, 1, 0), (2, 8, 2, 0))
    assert DISPATCHERS.build("list-priority").decide(queue).plan_by_job(queue) == {2: 100, 1: 160}


@pytest.mark.parametrize("wrong", [{"priority": -1}, {"priority": 2**32}, {"tier": -1}])
def test_priority_has_32_bits(wrong):
    with pytest.raises(InvalidValue):
        Job(1, 0, 60, Request(1, (1,)), **wrong)
