import pytest

from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher, with_walltime_estimates
from cpsched.feasibility import verify
from cpsched.model import Cluster
from cpsched.predictors.quantile import QuantilePredictor
from cpsched_sim.testing.dispatcher_properties import Policy, replay
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def a_queue_behind_a_long_job():
    """A wide job and a short narrow one wait for four cores, of which three run until 1000, by estimate until 100."""
    running = [a_running(a_job(9, units=3, walltime_s=1000), ((0, 3),))]
    queue = [a_job(1, units=4, walltime_s=500), a_job(2, units=1, walltime_s=400)]
    return a_snapshot(a_cluster(1, 4), queue, running, 50, estimates={9: 100, 1: 500, 2: 10})


def test_walltimes_replace_estimates():
    snapshot = a_queue_behind_a_long_job()
    found, slots = with_walltime_estimates(snapshot)
    found.check()
    assert (found.table.estimate_s.tolist(), found.table.end_s[found.running].tolist()) == ([500, 400, 1000], [1000])
    assert slots.tolist() == [0, 1, 2]
    assert [found.placement_of(slot) for slot in found.running.tolist()] == [((0, 3),)]


def test_sorts_running_jobs_by_new_ends():
    running = [a_running(a_job(id, walltime_s=s), ((0, 1),)) for id, s in ((7, 900), (8, 500), (9, 40))]
    snapshot = a_snapshot(a_cluster(1, 4), [], running, 50, estimates={7: 60, 8: 70})
    found, _ = with_walltime_estimates(snapshot)
    found.check()
    assert [found.table.jobs[slot].id for slot in found.running.tolist()] == [9, 8, 7]
    assert found.table.end_s[found.running].tolist() == [51, 500, 900]


def test_walltime_reservations_ignore_estimates():
    """By estimate the wide job starts at 100; by walltime at 1000, so that the narrow one delays no job."""
    snapshot = a_queue_behind_a_long_job()
    by_estimate = LookaheadDispatcher("awf").decide(snapshot)
    by_request = LookaheadDispatcher("awf", reserve_by="walltime").decide(snapshot)
    assert by_estimate.plan_by_job(snapshot) == {1: 100, 2: 50}
    assert by_request.plan_by_job(snapshot) == {1: 1000, 2: 50}
    assert verify(by_request, snapshot) == []


@pytest.mark.parametrize("cluster", [a_cluster(1, 8), Cluster.of([[4, 2], [4, 2]], ["cores", "gpus"])])
def test_complete_replay_has_no_violation(cluster):
    amounts = (1, 0)[: len(cluster.resources)]
    trace = [
        TraceJob(a_job(i, 1 + i % 5, amounts, 40 + 7 * (i % 9), 5 * i, user="ab"[i % 2]), 5 + 3 * (i % 12))
        for i in range(120)
    ]
    dispatcher = LookaheadDispatcher("slowdown", effort=5, reserve_by="walltime")
    schedule = replay(trace, cluster, Policy(QuantilePredictor(0.5), dispatcher, "walltime"))
    assert schedule.violations == ()
    assert (schedule.end_s < 10**6).all()
