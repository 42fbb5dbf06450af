import math

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.planning import EVERY_JOB, GREEDY, ORDERS, STRICT, OrderSymbols, plan
from cpsched.registry import DISPATCHERS
from tests.builders import a_cluster, a_job, a_running, a_snapshot


@pytest.fixture
def snapshot():
    """Four jobs for a node of four cores, of which one runs a job until second 50.

    By arrival: a wide long job, a wide short one, a narrow long one, a narrow short one.
    """
    queue = [
        a_job(1, per_unit=4, walltime_s=90),
        a_job(2, per_unit=4, walltime_s=30),
        a_job(3, per_unit=1, walltime_s=80),
        a_job(4, per_unit=1, walltime_s=20),
    ]
    return a_snapshot(a_cluster(nodes=1, cores=4), queue, [a_running(a_job(9, walltime_s=50), ((0, 1),))])


def started(decision, snapshot):
    return set(decision.starts_by_job(snapshot))


def test_number_of_reservations_gives_classic_schedulers(snapshot):
    assert [started(plan(snapshot, reservations=count), snapshot) for count in (STRICT, GREEDY)] == [set(), {3, 4}]
    assert plan(snapshot, reservations=1).plan_by_job(snapshot) == {1: 50, 4: 0}


@pytest.mark.parametrize(
    "options",
    [
        {}, {"reservations": None}, {"reservations": EVERY_JOB},
        *({"order": order} for order in ("reg", lambda job: job.id, lambda job: 0, [0, 0, 0, 0])),
    ],
)  # fmt: skip
def test_all_jobs_keep_earliest_start_by_default(snapshot, options):
    """Also under an order in which all jobs are equal."""
    assert plan(snapshot, **options).plan_by_job(snapshot) == {1: 50, 2: 140, 3: 170, 4: 0}


@pytest.mark.parametrize(
    "order",
    [
        "saf",
        lambda job: job.request.units * job.request.per_unit[0] * job.walltime_s,
        lambda job: (job.request.per_unit[0] * job.walltime_s, -job.id),
        [360, 120, 80, 20],
        np.array([3.6, 1.2, 0.8, 0.2]),
    ],
)
def test_order_is_name_function_or_array(snapshot, order):
    expected = {4: 0, 3: 0, 2: 80, 1: 110}
    assert plan(snapshot, order).plan_by_job(snapshot) == expected


@pytest.mark.parametrize("order", [lambda job: job.id % 2, [id % 2 for id in range(60)]])
def test_many_ties_are_broken_by_arrival(order):
    snapshot = a_snapshot(a_cluster(nodes=1, cores=60), [a_job(id) for id in range(60)])
    assert plan(snapshot, order, need="starts").starts.slots.tolist() == [*range(0, 60, 2), *range(1, 60, 2)]


def test_starts_need_gives_no_plan(snapshot):
    decision = plan(snapshot, need="starts")
    assert (decision.plan_s, decision.waits) == (None, {})
    assert started(decision, snapshot) == {4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "biggest"}, "order=biggest: must be one of reg, shortest"),
        ({"order": [1, 2]}, "order=.*: must be a name, a function of a job, or 4 numbers"),
        ({"order": [1, 2, 3, float("nan")]}, "order=.*: must be a name"),
        ({"order": ["a", "b", "c", "d"]}, "order=.*: must be a name"),
        ({"order": [[1, 2], [3, 4], [5, 6], [7, 8]]}, "order=.*: must be a name"),
        ({"order": lambda job: float("nan") if job.id % 2 else 1}, "order=.*: must not return NaN"),
        ({"order": None}, "order=None: must be a name"),
        ({"order": lambda job: float("nan")}, "order=.*: must not return NaN"),
        ({"order": lambda job: None}, "order=.*: must return sortable keys"),
        ({"reservations": -2}, "reservations=-2: must be a whole number of at least 0"),
        ({"reservations": "all"}, "reservations=all: must be a whole number of at least 0"),
        ({"backfill": "none"}, "backfill=none: must be one of"),
        ({"allocation": "worst-fit"}, "allocation=worst-fit: must be first-fit or best-fit"),
    ],
)
def test_rejects_invalid_options(snapshot, options, message):
    with pytest.raises(InvalidValue, match=message):
        plan(snapshot, **options)


@pytest.mark.parametrize("order", ["reg", lambda job: job.id, []])
def test_empty_queue_has_empty_plan(order):
    decision = plan(a_snapshot(a_cluster(), []), order)
    assert (len(decision.starts), decision.plan_s.tolist()) == (0, [])


def test_each_order_has_complete_row():
    assert all(order.name == name and order.sentence and order.key for name, order in ORDERS.items())


E, R, S, W = (np.array(column, float) for column in ([100, 10_000], [4, 16], [1000, 100], [9000, 9900]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wfp3", [-4 * 90**3, -16 * 0.970299]),
        ("unicep", [-9000 / (2 * 100), -9900 / (4 * 10_000)]),
        ("f1", [4 * 2 + 870 * 3, 16 * 4 + 870 * 2]),
        ("f2", [4 * 10 + 25_600 * 3, 16 * 100 + 25_600 * 2]),
        ("f3", [4 * 100 + 6_860_000 * 3, 16 * 10_000 + 6_860_000 * 2]),
        ("f4", [2 * 100 + 530_000 * 3, 4 * 10_000 + 530_000 * 2]),
        ("boost", [1000 + 3600 * math.log(1 - math.exp(-5 / 3600)), 100 + 3600 * math.log(1 - math.exp(-2000 / 3600))]),
    ],
)
def test_published_scores_have_their_coefficients(name, expected):
    assert ORDERS[name].by(OrderSymbols(E, R, S, W, 80.0, 3600.0)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("dispatcher", "tau_h", "rule"), [("list-boost", "0", "must be positive"), ("easy", "2", "requires order=boost")]
)
def test_scale_of_boost_is_positive_and_has_effect(dispatcher, tau_h, rule):
    with pytest.raises(InvalidValue, match=f"tau_h=.*: {rule}"):
        DISPATCHERS.build(dispatcher, {"tau_h": tau_h})


def test_larger_scale_lets_small_jobs_overtake_older_ones():
    wide, small = a_job(1, per_unit=4, walltime_s=3600), a_job(2, per_unit=4, walltime_s=60, submit_s=10_000)
    snapshot = a_snapshot(a_cluster(nodes=1, cores=4), [wide, small], now_s=10_000)
    found = [DISPATCHERS.build("easy", {"order": "boost", "tau_h": tau_h}).decide(snapshot) for tau_h in ("0.5", "2")]
    assert [started(decision, snapshot) for decision in found] == [{1}, {2}]


def test_unicep_orders_jobs_of_one_processor():
    """The logarithm of one processor is 0. A job that has not waited divides 0 by 0."""
    estimate_s, wait_s = np.array([100.0, 10, 1, 10]), np.array([50.0, 50, 5000, 0])
    scores = ORDERS["unicep"].by(OrderSymbols(estimate_s, np.array([1.0, 1, 2, 1]), S, wait_s, 80.0, 3600.0))
    assert np.argsort(scores).tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("wfp3", [3, 2, 1, 4]),
        ("unicep", [1, 3, 2, 4]),
        ("f1", [3, 1, 2, 4]),
        ("f2", [3, 2, 1, 4]),
        ("f3", [3, 2, 1, 4]),
        ("f4", [3, 2, 1, 4]),
        ("boost", [4, 3, 2, 1]),
        ("saf", [4, 3, 2, 1]),
    ],
)
def test_orders_use_processors_submission_and_wait(order, expected):
    """Jobs of a whole node each, at second 10,000: three submitted at second 1,000, and one now."""
    facts = ((1, 10_000, 1000), (4, 100, 1000), (16, 1, 1000), (1, 1, 10_000))
    queue = [
        a_job(id, per_unit=r, walltime_s=walltime_s, submit_s=submit_s, exclusive=True)
        for id, (r, walltime_s, submit_s) in enumerate(facts, 1)
    ]
    found = plan(a_snapshot(a_cluster(nodes=1, cores=16), queue, now_s=10_000), order)
    assert [queue[at].id for at in np.argsort(found.plan_s)] == expected
