"""Compare the compiled kernels on random input with a slow, plain reference that shares no code with them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpsched.feasibility import verify
from cpsched.jit.decorators import kernel
from cpsched.kernels.node_list_scheduling import MAX_FAILED_JOBS
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.model import NEVER, Cluster
from cpsched.model.overrun import OVERRUN_CODES, expected_end_s
from cpsched.planning import EVERY_JOB, GREEDY, STRICT, get_scheduling_state, plan
from cpsched_sim.cluster.event_kernels import revise_overdue_ends
from cpsched_sim.testing.hypothesis_strategies import full_clusters, scaled_example_settings, snapshots
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.properties import reference
from tests.properties.strategies import many_nodes

RESERVATIONS = [STRICT, GREEDY, 1, 2, 3, EVERY_JOB]


def as_plan(decision, snapshot):
    return decision.starts_by_job(snapshot), decision.plan_s.tolist()


@pytest.mark.parametrize("worlds", [snapshots(), full_clusters(), many_nodes()])
@scaled_example_settings(200)
@given(st.data(), st.sampled_from(RESERVATIONS), st.booleans(), st.randoms(use_true_random=False))
def test_node_plans_equal_reference(worlds, data, reservations, best_fit, random):
    """For a random queue order, all placements and planned starts equal the reference.

    On full, unequal nodes, more requests fail than a plan remembers, with many ties and all sharing rules.
    """
    snapshot = data.draw(worlds)
    order = list(range(len(snapshot.queue)))
    random.shuffle(order)
    expected = reference.plan(snapshot, order, reservations, best_fit)
    rule = "best-fit" if best_fit else "first-fit"
    found = plan(snapshot, np.argsort(order), reservations, allocation=rule)
    assert verify(found, snapshot) == []
    if snapshot.cluster.counted and snapshot.cluster.size > 1:
        assert found.starts_by_job(snapshot).keys() == expected[0].keys()
    else:
        assert as_plan(found, snapshot) == expected


def test_generated_queues_exceed_remembered_failures():
    """The tests of long queues need worlds with more failures than a plan remembers, and most worlds have them."""
    waiting = []

    @settings(max_examples=25, database=None, derandomize=True)
    @given(full_clusters())
    def count(snapshot):
        _, planned = reference.plan(snapshot, range(len(snapshot.queue)), EVERY_JOB)
        waiting.append(sum(start not in (NEVER, snapshot.now_s) for start in planned))

    count()
    assert np.mean(np.array(waiting) > MAX_FAILED_JOBS) > 0.6
    assert np.mean(np.array(waiting) > 0) > 0.9


@scaled_example_settings(150)
@given(
    st.one_of(snapshots(), full_clusters()),
    st.sampled_from(["reg", "priority", "shortest", "longest", "sjf", "ljf", "saf", "laf", "spf"]),
    st.sampled_from(RESERVATIONS),
)
def test_every_order_equals_reference(snapshot, order, reservations):
    """The kernel sorts the queue and the backfill order as Python sorts the same keys; no job has a priority."""
    queue, table = snapshot.queue, snapshot.table
    E, r = table.estimate_s[queue].tolist(), (table.units[queue] * table.per_unit[queue, 0]).tolist()
    keys = {
        "reg": lambda i: 0,
        "priority": lambda i: 0,
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
        assert as_plan(plan(snapshot, order, reservations), snapshot) == expected
        expected = reference.plan(snapshot, positions, 1, backfill=backfill)
        assert as_plan(plan(snapshot, order, 1, backfill="shortest"), snapshot) == expected


@scaled_example_settings(150)
@given(
    st.one_of(snapshots(), full_clusters()), st.sampled_from(RESERVATIONS), st.sampled_from(["first-fit", "best-fit"])
)
def test_starts_need_gives_same_starts(snapshot, reservations, allocation):
    cut = plan(snapshot, reservations=reservations, allocation=allocation, need="starts")
    whole = plan(snapshot, reservations=reservations, allocation=allocation)
    assert cut.starts_by_job(snapshot) == whole.starts_by_job(snapshot)


@scaled_example_settings(150)
@given(snapshots(), st.integers(0, 2**32 - 1))
def test_counted_and_placed_pool_give_same_plan(snapshot, seed):
    """On one node with one resource, the pool kernel and the node kernel agree in every start."""
    random = np.random.default_rng(seed)
    queue = [
        replace(job, request=replace(job.request, per_unit=(1,), distinct=False, node_set=0))
        for job in snapshot.queued_jobs()
    ]
    used, limits_s = random.integers(1, 4, 4).tolist(), random.integers(6, 40, 4).tolist()
    running = [
        a_running(a_job(90 + at, units=units, walltime_s=limit_s), ((0, units),))
        for at, (units, limit_s) in enumerate(zip(used, limits_s, strict=True))
    ]
    cores = max([sum(used) + int(random.integers(2)), *(job.request.units for job in queue)])
    cluster = Cluster.of([[cores]], ["cores"])
    pooled = a_snapshot(cluster, queue, running, 5)
    counted = [as_plan(plan(pooled, reservations=count), pooled) for count in RESERVATIONS]
    object.__setattr__(cluster, "counted", False)
    assert [as_plan(plan(pooled, reservations=count), pooled) for count in RESERVATIONS] == counted


@given(
    st.integers(0, 50), st.integers(0, 50), st.integers(1, 50), st.integers(0, 2**53),
    st.sampled_from(["one-second", "double", "walltime"]),
)  # fmt: skip
def test_expected_end_is_always_later_than_now(start_s, estimate_s, walltime_s, now_s, overrun):
    end_s = expected_end_s(start_s, estimate_s, walltime_s, now_s, overrun)
    assert end_s > now_s
    if start_s + estimate_s > now_s:
        assert end_s == start_s + estimate_s
    elif overrun == "double":
        assert any(end_s == start_s + max(1, estimate_s) * 2**n for n in range(60))
        assert end_s - start_s <= 2 * max(now_s - start_s, estimate_s, 1)
    else:
        assert end_s == max(now_s + 1, start_s + walltime_s if overrun == "walltime" else 0)


@kernel
def revised(site: SchedulingState, overrun: int) -> int:
    return revise_overdue_ends(site, overrun)


@pytest.mark.parametrize("revise", [revised, revised.py_func])
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=8), st.integers(0, 60))
def test_overdue_jobs_move_to_position_of_new_end(revise, jobs, now_s):
    running = [a_running(a_job(i, walltime_s=e), ((i, 1),), start_s=s) for i, (s, e) in enumerate(jobs)]
    site = get_scheduling_state(a_snapshot(a_cluster(9), [], running, now_s))
    revise(site, OVERRUN_CODES["one-second"])
    end_s = site.jobs.end_s
    assert end_s.tolist() == [max(s + e, now_s + 1) for s, e in jobs]
    assert site.running.tolist() == sorted(range(len(jobs)), key=lambda slot: (end_s[slot], slot))
