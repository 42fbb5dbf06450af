import numpy as np

from cpsched.model import NEVER, NO_STARTS, PendingCode, Starts
from cpsched.wait_reasons import MAX_LISTED_JOBS, explain_waits
from tests.builders import a_cluster, a_job, a_running, a_snapshot

RESERVED = (PendingCode.RESERVED,)
FIRST = (PendingCode.PRIORITY,)


def explained(snapshot, plan, starts=NO_STARTS, **options):
    waits = explain_waits(snapshot, starts, np.array(plan, np.int64), **options)
    return {id: ((wait.reason.code, *wait.reason.arguments), wait.waits_for) for id, wait in waits.items()}


def test_starting_job_does_not_wait_and_uses_resources():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), [a_job(1, per_unit=3), a_job(2, per_unit=2)])
    waits = explained(snapshot, [0, NEVER], Starts.of({0: ((0, 1),)}))
    assert waits == {2: ((PendingCode.RESOURCES, 0, 1), ())}


def test_job_waits_behind_jobs_that_end_at_its_start():
    running = [a_running(a_job(id, walltime_s=w), ((id - 7, 1),)) for id, w in ((7, 30), (8, 50), (9, 30))]
    snapshot = a_snapshot(a_cluster(nodes=3, cores=1), [a_job(1, units=2), a_job(2, walltime_s=20)], running)
    code = PendingCode.RESOURCES
    assert explained(snapshot, [30, 50]) == {1: ((code, 0, 2), (7, 9)), 2: ((code, 0, 1), (8,))}


def test_job_may_wait_behind_pending_job():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), [a_job(1, walltime_s=10), a_job(2)], now_s=100)
    assert explained(snapshot, [150, 160])[2] == (RESERVED, (1,))


def test_job_without_end_at_its_start_waits_behind_starts():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), [a_job(1), a_job(2)])
    assert explained(snapshot, [0, 7], Starts.of({0: ((0, 1),)})) == {2: (RESERVED, (1,))}


def test_impossible_job_blocks_and_waits_behind_no_other():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), [a_job(1, units=9), a_job(2), a_job(3)])
    waits = explained(snapshot, [NEVER] * 3)
    assert waits[1] == ((PendingCode.NEVER, "requests 9 units, but the empty cluster holds only 4"), ())
    assert (waits[2], waits[3]) == ((FIRST, ()), (FIRST, (2,)))


def test_without_plan_all_wait_behind_first_blocked_job():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), [a_job(id) for id in (1, 2, 3, 4)])
    waits = explained(snapshot, [NEVER] * 4)
    assert [behind for _, behind in waits.values()] == [(), (1,), (1,), (1,)]


def test_whole_node_job_lacks_whole_nodes():
    snapshot = a_snapshot(a_cluster(nodes=2), [a_job(1, units=8, exclusive=True)], [a_running(a_job(9), ((0, 1),))])
    assert explained(snapshot, [NEVER])[1][0] == (PendingCode.WHOLE_NODES, 4, 8)


def test_bounds_number_of_named_jobs():
    running = [a_running(a_job(id), ((id - 100, 1),)) for id in range(100, 120)]
    snapshot = a_snapshot(a_cluster(nodes=20, cores=1), [a_job(1, units=20)], running)
    assert explained(snapshot, [100])[1][1] == tuple(range(100, 100 + MAX_LISTED_JOBS))


def test_dispatcher_explains_fitting_job_that_waits():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=2), [a_job(1), a_job(2), a_job(3, units=2)], now_s=5)
    waits = explained(snapshot, [9, NEVER, NEVER], planned=PendingCode.WEIGHT, unplanned=PendingCode.NOT_CONSIDERED)
    not_considered = (PendingCode.NOT_CONSIDERED,), (1,)
    assert waits == {1: ((PendingCode.WEIGHT,), ()), 2: not_considered, 3: not_considered}
