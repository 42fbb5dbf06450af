"""Test long queues, for which a plan omits classes without nodes and does not plan every job's start."""

import numpy as np
import pytest

from cpsched import registry
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import NEVER, Cluster
from cpsched.planning import plan
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.properties import reference


def a_long_queue(count, seed=5):
    """Return short jobs of one to three units, for 20 nodes with two resources."""
    random = np.random.default_rng(seed)
    return [
        a_job(i, int(random.integers(1, 4)), (int(random.integers(1, 3)), int(random.integers(0, 2))),
              int(random.integers(1, 7)))
        for i in range(count)
    ]  # fmt: skip


NODES = Cluster.of([[2, 1]] * 20, ["cores", "gpus"])


def test_dropping_empty_groups_changes_no_plan():
    snapshot = a_snapshot(NODES, a_long_queue(350))
    starts, planned = reference.plan(snapshot, range(350), NEVER)
    found = plan(snapshot)
    assert (found.plan_s.tolist(), found.starts_by_job(snapshot)) == (planned, starts)


@pytest.mark.parametrize("name", ["list-reg", "lookahead"])
def test_long_plan_keeps_carried_groups(name):
    state = SimulatedCluster(NODES)
    for job in a_long_queue(400):
        state.submit(job, 3)
    state.apply(registry.DISPATCHERS.build("easy").decide(state.snapshot(), "starts").starts)
    state.advance(1)
    plans = [registry.DISPATCHERS.build(name).decide(state.snapshot()) for _ in range(2)]
    assert np.array_equal(plans[0].plan_s, plans[1].plan_s)
    rebuilt = registry.DISPATCHERS.build(name).decide(reference.without_groups(state.snapshot()))
    assert np.array_equal(plans[0].plan_s, rebuilt.plan_s)


@pytest.mark.parametrize("cluster", [a_cluster(1, 2), Cluster.of([[1, 0], [1, 0]], ["cores", "gpus"])])
def test_leaves_jobs_far_behind_unplanned_if_none_can_start(cluster):
    amounts = (1, 0)[: len(cluster.resources)]
    running = [a_running(a_job(9999, 1, amounts, 50), ((0, 1),))]
    queue = [a_job(i, 2, amounts, 10) for i in range(2600)]
    snapshot = a_snapshot(cluster, queue, running)
    plan_s = plan(snapshot).plan_s
    planned = int((plan_s != NEVER).sum())
    assert 2000 <= planned < 2600
    assert (plan_s[:planned] == 50 + 10 * np.arange(planned)).all()

    # A job that can start is found, however far back it is, and then all jobs before it are planned.
    late = [*queue[:2500], a_job(5000, 1, amounts, 20)]
    snapshot = a_snapshot(cluster, late, running)
    decision = plan(snapshot)
    assert set(decision.starts_by_job(snapshot)) == {5000}
    assert (decision.plan_s != NEVER).all()


def test_lookahead_covers_requested_number_of_jobs():
    snapshot = a_snapshot(NODES, a_long_queue(300))
    plan_s = LookaheadDispatcher(horizon=20, covered=120, effort=3).decide(snapshot).plan_s
    assert 120 <= int((plan_s != NEVER).sum()) < 160
