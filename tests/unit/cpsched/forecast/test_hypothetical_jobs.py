import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.forecast import backfill_windows, hypothetical_job, planned_queue, smaller_requests, with_hypothetical_job
from cpsched.forecast.hypothetical_jobs import WINDOWS_S, BackfillWindow
from cpsched.model import NEVER, Cluster, Job, Request, RunningJob, Snapshot
from cpsched.planning import plan, planned_starts
from tests.builders import a_job, a_running, a_snapshot

CLUSTER = Cluster.of([[4]] * 4, ["cores"])


def seen(*queue, busy=2, ends_s=7200):
    """Four nodes of four cores, of which the first `busy` are taken until `ends_s`."""
    return a_snapshot(CLUSTER, queue, [a_running(a_job(50 + i, 4, 1, ends_s), ((i, 4),)) for i in range(busy)])


def nodes(count):
    return Request(count, (4,), True)


def start_s(snapshot, walltime_s, request):
    job = hypothetical_job(snapshot.now_s, walltime_s, request)
    return planned_queue(snapshot, plan(snapshot).plan_s).start_s(job)


@pytest.mark.parametrize(
    ("queue", "walltime_s", "count", "expected_s"),
    [
        ([], 600, 2, 0),
        ([], 600, 3, 7200),
        ([], 600, 5, NEVER),
        # No other job is delayed.
        ([Job(1, 0, 600, nodes(4))], 7200, 2, 0),
        ([Job(1, 0, 600, nodes(4))], 7201, 2, 7800),
    ],
)
def test_job_starts_now_or_when_capacity_is_free(queue, walltime_s, count, expected_s):
    assert start_s(seen(*queue), walltime_s, nodes(count)) == expected_s


def test_rejects_request_with_wrong_resources():
    with pytest.raises(InvalidValue, match="must have 1 entries"):
        start_s(seen(), 600, Request(1, (1, 2)))


def windows(snapshot, *node_set):
    return backfill_windows(snapshot, planned_queue(snapshot, plan(snapshot).plan_s), *node_set)


def test_windows_are_largest_for_each_duration():
    assert windows(seen(Job(1, 0, 600, nodes(3)))) == [
        BackfillWindow(True, 2, 3600),
        BackfillWindow(True, 1, 72 * 3600),
        BackfillWindow(False, 8, 3600),
        BackfillWindow(False, 4, 72 * 3600),
    ]


@pytest.mark.parametrize(("node_set", "whole", "cores"), [(0, 3, 13), (1, 1, 5), (2, 1, 4)])
def test_windows_respect_node_set(node_set, whole, cores):
    """Whole nodes and single cores alike are those of the node set; of nodes in use in part their cores alone."""
    cluster = Cluster.of([[4, 1]] * 4, ["cores", "gpus"], node_sets={"p": [1, 2], "q": [0]})
    busy = RunningJob(a_job(50, 1, (3, 0), 7200), 0, ((1, 1),))
    snapshot = Snapshot.of(0, cluster, [[4, 1], [1, 1], [4, 1], [4, 1]], [], [busy], {50: 7200})
    assert windows(snapshot, node_set) == [
        BackfillWindow(True, whole, 72 * 3600),
        BackfillWindow(False, cores, 72 * 3600),
    ]
    assert WINDOWS_S == (900, 3600, 14400, 43200, 86400, 259200)


def test_full_cluster_has_no_window():
    assert windows(seen(busy=4)) == []


@pytest.mark.parametrize(
    ("walltime_s", "count", "expected"),
    [
        (600, 3, [("half the time", 300, 3), ("2 instead of 3", 600, 2)]),
        (119, 1, []),
        (120, 1, [("half the time", 60, 1)]),
    ],
)
def test_lists_smaller_requests(walltime_s, count, expected):
    found = smaller_requests(hypothetical_job(0, walltime_s, nodes(count)))
    assert [(words, less.walltime_s, less.request.units) for words, less in found] == expected


@pytest.mark.parametrize("seed", range(6))
def test_tries_job_last_without_joining_queue(seed):
    """Each of several questions is answered as if it were the only one."""
    rng = np.random.default_rng(seed)

    def drawn(id):
        distinct = bool(rng.integers(2))
        request = Request(int(rng.integers(1, 5 if distinct else 12)), (int(rng.integers(1, 5)),), distinct)
        return Job(id, 0, int(rng.integers(1, 5)) * 600, request)

    snapshot = seen(*(drawn(id) for id in range(12)), busy=int(rng.integers(5)))
    plan_s = plan(snapshot).plan_s
    queue = planned_queue(snapshot, plan_s)
    for _ in range(40):
        job = hypothetical_job(0, int(rng.integers(1, 9)) * 600, drawn(99).request)
        whole = with_hypothetical_job(snapshot, job)
        order = np.argsort(np.append(plan_s, NEVER), kind="stable").astype(np.int64)
        assert queue.start_s(job) == planned_starts(whole, order)[-1]


def test_plans_job_behind_thousands():
    """A plan may end before the queue does, if no further job can start now."""
    snapshot = seen(*(Job(id, 0, 600, nodes(4)) for id in range(100, 2400)), busy=4)
    assert start_s(snapshot, 600, nodes(4)) == 7200 + 2300 * 600


def test_selects_part_of_queue():
    snapshot = seen(*(Job(id, 0, 600, nodes(4)) for id in range(3)))
    whole = with_hypothetical_job(snapshot, hypothetical_job(0, 60, nodes(1)), np.array([2, 0]))
    assert [whole.table.jobs[slot].id for slot in whole.queue] == [2, 0, -1]
