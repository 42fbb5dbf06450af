import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Starts
from cpsched_sim.cluster.simulated_cluster import SimulatedCluster
from tests.builders import a_cluster, a_job


def a_simulated(**shape):
    return SimulatedCluster(a_cluster(**shape))


def test_job_waits_runs_and_ends():
    cluster = a_simulated(nodes=2, cores=4)
    assert cluster.submit(a_job(7, units=3, per_unit=2), run_s=50) is None
    assert [job.id for job in cluster.snapshot().queued_jobs()] == [7]
    cluster.start(7, ((0, 2), (1, 1)))
    assert cluster.snapshot().free.tolist() == [[0], [2]]
    assert cluster.snapshot().running_jobs()[0].placement == ((0, 2), (1, 1))
    assert cluster.next_end_s() == 50
    assert cluster.advance(49) == []
    ended = cluster.advance(60)
    assert [(e.job.id, e.start_s, e.end_s) for e in ended] == [(7, 0, 50)]
    assert cluster.snapshot().free.tolist() == [[4], [4]]
    assert cluster.now_s == 60


def test_rejects_impossible_job_with_reason():
    cluster = a_simulated(nodes=2, cores=4)
    assert cluster.submit(a_job(1, units=3, distinct=True), 1) == (
        "requests 3 units on distinct nodes, but the empty cluster holds only 2"
    )
    assert cluster.submit(a_job(2, per_unit=5), 1) == "no node can hold even one unit"
    assert cluster.queue_length == 0


def test_start_that_does_not_fit_changes_nothing():
    cluster = a_simulated(nodes=1, cores=4)
    cluster.submit(a_job(1, units=3), 10)
    cluster.submit(a_job(2, units=3), 10)
    with pytest.raises(InvalidValue, match="start=2: does not fit"):
        cluster.apply(Starts.of({0: ((0, 3),), 1: ((0, 3),)}))
    assert cluster.snapshot().free.tolist() == [[4]]
    assert (cluster.queue_length, cluster.running_count) == (2, 0)


def test_snapshot_is_read_only():
    cluster = a_simulated()
    cluster.submit(a_job(1), 1)
    snapshot = cluster.snapshot()
    assert not snapshot.free.flags.writeable
    assert not snapshot.queue.flags.writeable
    assert not snapshot.running.flags.writeable
    assert not snapshot.table.units.flags.writeable


def test_new_job_runs_walltime_until_predicted():
    cluster, job = a_simulated(), a_job(1, walltime_s=50)
    cluster.submit(job, 1)
    assert cluster.snapshot().estimate_of(job) == 50
    cluster.table.estimate_s[0] = 5
    assert cluster.snapshot().estimate_of(job) == 5


def test_cancelled_job_leaves_queue_and_cannot_start():
    cluster = a_simulated()
    cluster.submit(a_job(1), 1)
    cluster.submit(a_job(2), 1)
    cluster.cancel(1)
    assert [job.id for job in cluster.snapshot().queued_jobs()] == [2]
    with pytest.raises(InvalidValue, match="does not fit"):
        cluster.start(1, ((0, 1),))


def test_columns_grow_with_jobs():
    cluster = a_simulated(nodes=1, cores=1000)
    for i in range(300):
        cluster.submit(a_job(i), run_s=1000 - i)
        cluster.start(i, ((0, 1),))
    assert cluster.running_count == 300
    assert [e.job.id for e in cluster.advance(800)] == list(range(299, 199, -1))


def test_overdue_jobs_end_one_second_later():
    cluster = SimulatedCluster(a_cluster(), overrun="one-second")
    for i, estimate_s in ((1, 10), (2, 11)):
        cluster.submit(a_job(i), run_s=100)
        cluster.table.estimate_s[i - 1] = estimate_s
        cluster.start(i, ((0, 1),))
    cluster.advance(10)
    assert cluster.table.end_s[:2].tolist() == [11, 11]
    cluster.advance(20)
    assert cluster.table.end_s[:2].tolist() == [21, 21]
    assert [r.job.id for r in cluster.snapshot().running_jobs()] == [1, 2]


def test_time_does_not_go_back():
    cluster = a_simulated()
    cluster.advance(10)
    with pytest.raises(InvalidValue, match="must not be before 10"):
        cluster.advance(9)
