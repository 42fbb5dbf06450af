import numpy as np
import pytest

from cpsched.model import NEVER, NO_STARTS, PendingCode, Starts
from cpsched.wait_reasons import MAX_LISTED_JOBS, explain_waits
from tests.builders import a_cluster, a_job, a_running, a_snapshot

RESERVED = (PendingCode.RESERVED,)
FIRST = (PendingCode.PRIORITY,)


def explained(snapshot, plan, starts=NO_STARTS, **options):
    waits = explain_waits(snapshot, starts, np.array(plan, np.int64), **options)
    return {id: ((wait.reason.code, *wait.reason.arguments), wait.waits_for) for id, wait in waits.items()}


POOL = a_cluster(nodes=1, cores=4)
THREE_NODES = a_cluster(nodes=3, cores=1)
MANY_NODES = a_cluster(nodes=20, cores=1)
FIRST_STARTS = Starts.of({0: ((0, 1),)})
LACKS = PendingCode.RESOURCES


@pytest.mark.parametrize(
    ("snapshot", "plan", "starts", "expected"),
    [
        # A job that starts does not wait, and uses resources.
        (a_snapshot(POOL, [a_job(1, per_unit=3), a_job(2, per_unit=2)]), [0, NEVER], FIRST_STARTS,
         {2: ((LACKS, 0, 1), ())}),
        # A job waits behind those that end when it starts: running ones, pending ones, or those that start now.
        (a_snapshot(THREE_NODES, [a_job(1, units=2), a_job(2, walltime_s=20)],
                    [a_running(a_job(id, walltime_s=w), ((id - 7, 1),)) for id, w in ((7, 30), (8, 50), (9, 30))]),
         [30, 50], NO_STARTS, {1: ((LACKS, 0, 2), (7, 9)), 2: ((LACKS, 0, 1), (8,))}),
        (a_snapshot(POOL, [a_job(1, walltime_s=10), a_job(2)], now_s=100), [150, 160], NO_STARTS,
         {1: (RESERVED, ()), 2: (RESERVED, (1,))}),
        (a_snapshot(POOL, [a_job(1), a_job(2)]), [0, 7], FIRST_STARTS, {2: (RESERVED, (1,))}),
        # An impossible job blocks no other, and waits behind none.
        (a_snapshot(POOL, [a_job(1, units=9), a_job(2), a_job(3)]), [NEVER] * 3, NO_STARTS,
         {1: ((PendingCode.NEVER, "requests 9 units, but the empty cluster holds only 4"), ()), 2: (FIRST, ()),
          3: (FIRST, (2,))}),
        # Without a plan, all jobs wait behind the first that is blocked.
        (a_snapshot(POOL, [a_job(id) for id in (1, 2, 3, 4)]), [NEVER] * 4, NO_STARTS,
         {1: (FIRST, ()), 2: (FIRST, (1,)), 3: (FIRST, (1,)), 4: (FIRST, (1,))}),
        (a_snapshot(a_cluster(nodes=2), [a_job(1, units=8, exclusive=True)], [a_running(a_job(9), ((0, 1),))]), [NEVER],
         NO_STARTS, {1: ((PendingCode.WHOLE_NODES, 4, 8), ())}),
        (a_snapshot(MANY_NODES, [a_job(1, units=20)], [a_running(a_job(100 + n), ((n, 1),)) for n in range(20)]), [100],
         NO_STARTS, {1: ((LACKS, 0, 20), tuple(range(100, 100 + MAX_LISTED_JOBS)))}),
    ],
)  # fmt: skip
def test_explains_why_and_behind_whom_jobs_wait(snapshot, plan, starts, expected):
    assert explained(snapshot, plan, starts) == expected


def test_dispatcher_explains_fitting_job_that_waits():
    snapshot = a_snapshot(a_cluster(nodes=1, cores=2), [a_job(1), a_job(2), a_job(3, units=2)], now_s=5)
    waits = explained(snapshot, [9, NEVER, NEVER], planned=PendingCode.WEIGHT, unplanned=PendingCode.NOT_CONSIDERED)
    not_considered = (PendingCode.NOT_CONSIDERED,), (1,)
    assert waits == {1: ((PendingCode.WEIGHT,), ()), 2: not_considered, 3: not_considered}
