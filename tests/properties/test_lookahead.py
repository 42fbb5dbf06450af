"""Compare the compiled search with the plain reference: its plan is the list schedule of its final order."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.feasibility import verify
from cpsched.model import NEVER
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings, snapshots
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.properties import reference
from tests.properties.strategies import many_nodes
from tests.searches import Ablated


def reference_plan(dispatcher, snapshot, reservations):
    """Return the list schedule of a round's final order: the starts, and the planned starts by queue position."""
    ids = [job.id for job in snapshot.queued_jobs()]
    order = [ids.index(id) for id in dispatcher.memory()["order"]]
    return reference.plan(snapshot, [*order, *(p for p in range(len(ids)) if p not in order)], reservations)


@pytest.mark.parametrize("worlds", [snapshots(), many_nodes()], ids=["snapshots", "many nodes"])
@scaled_example_settings(150)
@given(st.data(), st.sampled_from(sorted(set(OBJECTIVES) - {"bsld"})), st.integers(0, 40))
def test_plan_is_list_schedule_of_its_order(worlds, data, objective, effort):
    """Jobs that a search removes and places again leave no trace in the starts, placements and planned starts."""
    snapshot = data.draw(worlds)
    dispatcher = LookaheadDispatcher(objective, effort=effort)
    decision = dispatcher.decide(snapshot)
    assert verify(decision, snapshot) == []
    if decision.effort.path != "searched":
        return
    starts, planned = reference_plan(dispatcher, snapshot, NEVER)
    assert decision.plan_s.tolist() == planned
    if not snapshot.cluster.counted or snapshot.cluster.size == 1:
        assert decision.starts_by_job(snapshot) == starts


def a_pool(busy, waiting):
    """Return a snapshot of eight processors; `busy` and `waiting` give each job's processors and walltime."""
    running = [a_running(a_job(100 + i, units, walltime_s=s), ((0, units),)) for i, (units, s) in enumerate(busy)]
    queue = [a_job(i, units, walltime_s=s) for i, (units, s) in enumerate(waiting)]
    return a_snapshot(a_cluster(nodes=1, cores=8), queue, running)


sizes = st.tuples(st.integers(1, 8), st.integers(1, 40))
small = st.tuples(st.integers(1, 3), st.integers(1, 40))
pools = st.builds(a_pool, st.lists(small, max_size=2), st.lists(sizes, min_size=2, max_size=10))


@scaled_example_settings(150)
@given(pools, st.sampled_from(["af", "awf"]), st.integers(0, 3), st.integers(0, 40), st.sampled_from([2, 127]))
@example(a_pool([(2, 7)], [(8, 5), (7, 9), (1, 10), (7, 1)]), "awf", 1, 12, 2)  # a change after the reservation
def test_few_reservations_on_pool_equal_list_schedule(snapshot, objective, reservations, effort, candidates):
    """Jobs without a reservation have no slot in the reference."""
    dispatcher = Ablated(objective, effort=effort, reservations=reservations, candidates=candidates)
    decision = dispatcher.decide(snapshot)
    assert verify(decision, snapshot) == []
    if decision.effort.path != "searched":
        return
    _, planned = reference_plan(dispatcher, snapshot, reservations)
    held = np.array(planned) != NEVER
    assert decision.plan_s[held].tolist() == np.array(planned)[held].tolist()
    assert (decision.plan_s[~held] > snapshot.now_s).all()


@pytest.mark.parametrize("objective", ["af", "awf"])
@scaled_example_settings(25)
@given(snapshots())
def test_more_search_costs_no_more(objective, snapshot):
    """A longer search begins with the same decodes as a shorter search, so its result is at least as good."""
    table, queue = snapshot.table, snapshot.queue
    area = np.maximum(table.units[queue] * table.per_unit[queue, 0], 1) * np.maximum(table.estimate_s[queue], 10)
    weight = area if objective == "awf" else np.ones_like(area)
    costs = []
    for effort in (0, 20, 60):
        plan_s = LookaheadDispatcher(objective, effort=effort).decide(snapshot).plan_s
        known = plan_s != NEVER
        costs.append(float((weight[known] * (plan_s[known] - snapshot.now_s)).sum()))
    assert costs[0] >= costs[1] >= costs[2]


@scaled_example_settings(50)
@given(snapshots())
def test_default_bounds_longest_wait_by_arrival_order(snapshot):
    """Every plan that a search selects satisfies the bound on the longest wait."""
    submit_s = snapshot.table.submit_s[snapshot.queue]
    decision = LookaheadDispatcher().decide(snapshot)
    by_arrival_s = Ablated(candidates=2, effort=0).decide(snapshot).plan_s
    known = by_arrival_s != NEVER
    if decision.effort.path != "searched" or not known.any():
        return
    longest_s = (by_arrival_s - submit_s)[known].max()
    old = known & (2 * (snapshot.now_s - submit_s) >= longest_s)
    assert (decision.plan_s - submit_s)[old].max(initial=0) <= longest_s
