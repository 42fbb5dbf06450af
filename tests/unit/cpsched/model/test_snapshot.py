import dataclasses

import numpy as np
import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue
from cpsched.model import ClusterState, Snapshot
from cpsched.model.value_bounds import TIME_BOUND_S
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def test_returns_running_jobs_unchanged():
    running = [a_running(a_job(2), ((1, 1),)), a_running(a_job(3, units=2, walltime_s=5), ((0, 1), (2, 1)))]
    snapshot = a_snapshot(a_cluster(), [a_job(1)], running)
    assert [r.job.id for r in snapshot.running_jobs()] == [3, 2], "by expected end"
    assert snapshot.running_jobs()[0].placement == ((0, 1), (2, 1))


@pytest.mark.parametrize(
    "estimates", [{}, *({1: estimate_s} for estimate_s in (0, -1, TIME_BOUND_S, 10**30, 1.5, float("nan"), "60"))]
)
def test_rejects_missing_estimate_or_one_out_of_bounds(estimates):
    cluster = a_cluster()
    with pytest.raises(InvalidValue, match=r"job 1 estimate_s=.*: must be a whole number of seconds"):
        Snapshot.of(100, cluster, cluster.capacity, [a_job(1)], estimates=estimates)


@pytest.mark.parametrize(("overrun", "end_s"), [("one-second", 101), ("double", 160), ("walltime", 500)])
def test_overdue_job_ends_after_now(overrun, end_s):
    cluster, job = a_cluster(), a_job(1, walltime_s=500)
    free = cluster.capacity - [[1], [0], [0], [0]]
    snapshot = Snapshot.of(100, cluster, free, [], [a_running(job, ((0, 1),))], {1: 40}, overrun)
    assert snapshot.table.end_s.tolist() == [end_s]


def test_no_plan_is_in_the_past():
    """A running job is overdue and holds all the waiting job needs: that one can start in a second, not before."""
    cluster = a_cluster(nodes=1, cores=1)
    running = (a_running(a_job(9, walltime_s=50), ((0, 1),)),)
    policy = Policy(WalltimePredictor(), EasyDispatcher())
    snapshot = policy.add_estimates(ClusterState(100, cluster, cluster.capacity * 0, (a_job(1),), running))
    assert policy.decide(snapshot).plan_by_job(snapshot) == {1: 101}


def broken(snapshot, **changes):
    columns = {name: getattr(snapshot.table, name).copy() for name in ("estimate_s", "end_s")}
    for name in set(changes) & set(columns):
        columns[name][:] = changes.pop(name)
    return dataclasses.replace(snapshot, table=snapshot.table.view_with(columns), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"estimate_s": 0}, "job 1 estimate_s=0: must be positive"),
        ({"end_s": 10}, "job 8 end_s=10: must be after now_s=10"),
        ({"end_s": [0, 60, 50]}, "running=.*: must be sorted by expected end"),
        ({"free": np.zeros((4, 1))}, "free=float64: must be int64 with 2 axes"),
        ({"free": np.zeros((3, 1), np.int64)}, r"free.shape=\(3, 1\): must be \(4, 1\)"),
        ({"free": np.full((4, 1), -1)}, "free=-1: must not be negative"),
        ({"queue": np.array([7])}, "queue and running=.*: must be slots below 3"),
        ({"queue": np.array([0, 1])}, "queue and running=.*: must contain each job once"),
        ({"queue": [0]}, "queue=list: must be int64 with 1 axes"),
        ({"now_s": 2 * TIME_BOUND_S}, "now_s=.*: must be within"),
    ],
)
def test_rejects_invalid_snapshot(changes, message):
    running = [a_running(a_job(i, walltime_s=50), ((i - 6, 1),)) for i in (8, 9)]
    snapshot = a_snapshot(a_cluster(), [a_job(1)], running, now_s=10)
    with pytest.raises(InvalidValue, match=message):
        broken(snapshot, **changes)


def test_returns_estimate_of_own_jobs_only():
    first, second = a_job(1), a_job(2)
    snapshot = a_snapshot(a_cluster(), [first, second], estimates={1: 7, 2: 9})
    assert (snapshot.estimate_of(first), snapshot.estimate_of(second)) == (7, 9)
    with pytest.raises(InvalidValue, match="job=3: is not in this table"):
        snapshot.estimate_of(a_job(3))


def test_adding_estimates_does_not_change_scene():
    cluster = a_cluster()
    scene = ClusterState(0, cluster, cluster.capacity, (a_job(1), a_job(2, ineligible="dependency")))
    snapshot = Policy(WalltimePredictor(), EasyDispatcher()).add_estimates(scene)
    assert ([job.id for job in scene.queue], [job.id for job in snapshot.queued_jobs()]) == ([1, 2], [1])
    assert scene.free is cluster.capacity


@pytest.mark.parametrize(
    ("now_s", "epoch_s", "unix_s"),
    [(1_728_000_000, 0, 1_728_000_000), (60, 1_728_000_000, 1_728_000_060), (60, 0, None)],
)
def test_snapshot_has_unix_time_if_epoch_is_known(now_s, epoch_s, unix_s):
    """A live cluster, a trace with UnixStartTime, and one without."""
    assert a_snapshot(dataclasses.replace(a_cluster(), epoch_s=epoch_s), [], now_s=now_s).unix_s == unix_s
