"""The compiled kernels against a slow, plain reference that shares no code with them, on random input."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpsched import kernels
from cpsched.fit import holds, verify
from cpsched.model import Cluster, Decision, Effort, Starts
from cpsched.overrun import expected_end_s
from cpsched.planning import EVERY, GREEDY, STRICT, Rule, plan
from cpsched_sim.testing.worlds import snapshots
from tests.builders import a_job, a_running, a_snapshot
from tests.properties import reference

RESERVATIONS = [STRICT, GREEDY, 1, 2, 3, EVERY]


def as_plan(decision, snapshot):
    return decision.starts_by_job(snapshot), decision.plan_s.tolist()


@settings(max_examples=250, deadline=None)
@given(snapshots(), st.sampled_from(RESERVATIONS), st.booleans(), st.randoms(use_true_random=False))
def test_plans_on_nodes_equal_the_reference(snapshot, reservations, best_fit, random):
    """Starts with their placements, and every planned start, in a random order of the queue."""
    order = list(range(len(snapshot.queue)))
    random.shuffle(order)
    expected = reference.plan(snapshot, order, reservations, best_fit)
    rule = "best-fit" if best_fit else "first-fit"
    found = plan(snapshot, "plan", Rule(reservations, "given", allocation=rule), np.array(order, np.int64))
    assert verify(found, snapshot) == []
    if snapshot.cluster.counted and snapshot.cluster.size > 1:
        assert found.starts_by_job(snapshot).keys() == expected[0].keys()
    else:
        assert as_plan(found, snapshot) == expected


@settings(max_examples=150, deadline=None)
@given(
    snapshots(),
    st.sampled_from(["reg", "shortest", "longest", "sjf", "ljf", "saf", "laf", "spf"]),
    st.sampled_from(RESERVATIONS),
)
def test_every_order_equals_the_reference(snapshot, order, reservations):
    """Order and backfill order, sorted in the kernel, against Python's sort of the same keys."""
    queue, table = snapshot.queue, snapshot.table
    E, r = table.estimate_s[queue].tolist(), (table.units[queue] * table.per_unit[queue, 0]).tolist()
    keys = {
        "reg": lambda i: 0,
        "shortest": lambda i: E[i],
        "longest": lambda i: -E[i],
        "sjf": lambda i: (E[i], r[i]),
        "ljf": lambda i: (-E[i], r[i]),
        "saf": lambda i: r[i] * E[i],
        "laf": lambda i: -r[i] * E[i],
        "spf": lambda i: (r[i] * E[i] ** 2, r[i] * E[i]),
    }
    positions, backfill = sorted(range(len(E)), key=keys[order]), sorted(range(len(E)), key=keys["shortest"])
    if not snapshot.cluster.counted:
        expected = reference.plan(snapshot, positions, reservations)
        assert as_plan(plan(snapshot, "plan", Rule(reservations, order)), snapshot) == expected
        expected = reference.plan(snapshot, positions, 1, backfill=backfill)
        assert as_plan(plan(snapshot, "plan", Rule(1, order, "shortest")), snapshot) == expected


@settings(max_examples=150, deadline=None)
@given(snapshots(), st.sampled_from(RESERVATIONS), st.sampled_from(["first-fit", "best-fit"]))
def test_asking_for_the_starts_alone_gives_the_same_starts(snapshot, reservations, allocation):
    cut = plan(snapshot, "starts", Rule(reservations, allocation=allocation))
    whole = plan(snapshot, "plan", Rule(reservations, allocation=allocation))
    assert cut.starts_by_job(snapshot) == whole.starts_by_job(snapshot)


@settings(max_examples=150, deadline=None)
@given(snapshots(), st.sampled_from(RESERVATIONS))
def test_a_pool_counted_or_placed_gives_the_same_plan(snapshot, reservations):
    """One node of one resource: the pool's kernel and the nodes' kernel agree in every start."""
    cores = 2 + int(snapshot.cluster.capacity[:, 0].sum())
    cluster = Cluster.of([[cores]], ["cores"])
    queue = [replace(job, request=replace(job.request, per_unit=(1,), node_set=0)) for job in snapshot.queued_jobs()]
    pooled = a_snapshot(cluster, queue, [a_running(a_job(99, units=cores // 2, walltime_s=20), ((0, cores // 2),))], 5)
    counted = as_plan(plan(pooled, "plan", Rule(reservations)), pooled)
    object.__setattr__(cluster, "counted", False)
    assert as_plan(plan(pooled, "plan", Rule(reservations)), pooled) == counted


@settings(max_examples=250, deadline=None)
@given(snapshots(), st.data())
def test_the_compiled_fit_rule_says_what_verify_says(snapshot, data):
    """Valid placements, and ones with wrong nodes, counts and slots."""
    nodes = st.integers(-1, snapshot.cluster.size)
    placement = st.lists(st.tuples(nodes, st.integers(0, 3)), min_size=1, max_size=3).map(tuple)
    slots = st.sampled_from(snapshot.queue.tolist() + snapshot.running.tolist())
    random = data.draw(st.dictionaries(slots, placement, max_size=3))
    fitting = plan(snapshot, "starts", Rule(GREEDY)).starts.placements()
    starts = Starts.of(data.draw(st.sampled_from([random, fitting, fitting | random])))
    decision = Decision(starts, Effort("test"))
    before = snapshot.free.copy()
    assert holds(decision, snapshot) == (verify(decision, snapshot) == [])
    assert np.array_equal(snapshot.free, before)


@given(
    st.integers(0, 50), st.integers(1, 50), st.integers(1, 50), st.integers(0, 200),
    st.sampled_from(["one-second", "double", "walltime"]),
)  # fmt: skip
def test_expected_ends_compiled_and_plain_agree(start_s, estimate_s, walltime_s, now_s, overrun):
    plain = expected_end_s(start_s, estimate_s, walltime_s, now_s, overrun)
    assert kernels.expected_end(start_s, estimate_s, walltime_s, now_s, kernels.OVERRUN_CODES[overrun]) == plain


@pytest.mark.parametrize("kernel", [kernels.revise_overdue, kernels.revise_overdue.py_func])
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=8), st.integers(0, 60))
@settings(deadline=None)
def test_overdue_jobs_move_to_where_their_new_end_belongs(kernel, jobs, now_s):
    start_s = np.array([start for start, _ in jobs], np.int64)
    estimate_s = np.array([estimate for _, estimate in jobs], np.int64)
    end_s = start_s + estimate_s
    running = np.lexsort((np.arange(len(jobs)), end_s))
    kernel(running, end_s, start_s, estimate_s, estimate_s, len(jobs), now_s, 0)
    assert end_s.tolist() == [max(s + e, now_s + 1) for s, e in jobs]
    assert running.tolist() == sorted(range(len(jobs)), key=lambda slot: (end_s[slot], slot))
