"""The first leaf and its relaxation, compiled and as plain Python."""

from __future__ import annotations

import numpy as np

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.cp_objective import sort_by_slowdown
from cpsched.kernels.cp.branch_and_bound import branch_and_bound
from cpsched.kernels.cp.cp_state import (
    PLACEMENT_COLUMNS,
    BranchAndBoundState,
    CpInstance,
    WeightedDelayObjective,
    empty_plan,
)
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.kernels.cp.dive import dive
from cpsched.kernels.cp.relaxation import build_relaxation
from cpsched.kernels.cp.running_rectangles import running_rectangles
from cpsched.kernels.cp.startable_jobs import startable_slots
from cpsched.model import Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def considered(snapshot: Snapshot) -> CpInstance:
    facts = cp_problem.build_cp_instance(snapshot)
    return facts.with_considered_jobs(sort_by_slowdown(snapshot, startable_slots(facts, snapshot.queue, 100)))


def a_mix() -> Snapshot:
    cluster = a_cluster(nodes=3, cores=4, memory=8)
    running = [a_running(a_job(90, units=2, per_unit=(1, 3), walltime_s=70), ((0, 1), (2, 1)))]
    queue = [
        a_job(1, units=3, per_unit=(1, 2), walltime_s=100, distinct=True),
        a_job(2, units=2, per_unit=(2, 2), walltime_s=30),
        a_job(3, units=1, per_unit=(2, 4), walltime_s=60, exclusive=True),
        a_job(4, units=4, per_unit=(1, 1), walltime_s=20),
        a_job(5, units=2, per_unit=(3, 1), walltime_s=90, distinct=True),
    ]
    return a_snapshot(cluster, queue, running, now_s=5)


def test_considers_jobs_that_could_start_alone() -> None:
    cluster = a_cluster(nodes=2, cores=4)
    running = [a_running(a_job(9, per_unit=2), ((0, 1),))]
    queue = [
        a_job(1, per_unit=4),
        a_job(2, units=2, per_unit=3),
        a_job(3, units=2, per_unit=2, distinct=True),
        a_job(4, units=3, per_unit=2, distinct=True),
        a_job(5, units=3, per_unit=2),
        a_job(6, units=2, per_unit=1, exclusive=True),
        a_job(7, units=5, per_unit=1, exclusive=True),
    ]
    snapshot = a_snapshot(cluster, queue, running)
    slots = startable_slots(cp_problem.build_cp_instance(snapshot), snapshot.queue, 100)
    assert [snapshot.table.jobs[slot].id for slot in slots] == [1, 3, 5, 6]


def test_stacks_running_jobs_longest_first() -> None:
    """So what is free stays in one piece: 1 + 1 now, 3 once the short job is gone, all once both are."""
    cluster = a_cluster(nodes=1, cores=4)
    running = [a_running(a_job(8, per_unit=2, walltime_s=9), ((0, 1),)), a_running(a_job(9, walltime_s=50), ((0, 1),))]
    facts = cp_problem.build_cp_instance(a_snapshot(cluster, [a_job(1)], running))
    base = np.zeros(1, np.int64)
    base.setflags(write=False)
    position, size, end_s = running_rectangles(facts, (base, 4), 0, 1000)
    assert sorted(zip(position.tolist(), size.tolist(), end_s.tolist(), strict=True)) == [(0, 1, 50), (1, 2, 9)]


def test_dive_places_all_jobs() -> None:
    facts = considered(a_mix())
    plan = cp_problem.build_first_leaf_plan(facts)
    assert (plan.start_s >= facts.now_s).all()
    assert [int(plan.units[plan.first[j] : plan.first[j] + plan.parts[j]].sum()) for j in range(len(plan.start_s))] == [
        int(facts.table.units[slot]) for slot in facts.jobs
    ]


def test_dive_boxes_do_not_overlap() -> None:
    facts = considered(a_mix())
    plan = cp_problem.build_first_leaf_plan(facts)
    boxes = [
        (
            int(plan.node[p]),
            plan.y[p],
            plan.y[p] + plan.dy[p],
            plan.start_s[j],
            plan.start_s[j] + facts.table.estimate_s[slot],
        )
        for j, slot in enumerate(facts.jobs.tolist())
        for p in range(plan.first[j], plan.first[j] + plan.parts[j])
    ]
    for i, (node, low, high, start_s, end_s) in enumerate(boxes):
        assert (high <= facts.machine.capacity[node]).all()
        for other, other_low, other_high, other_start_s, other_end_s in boxes[:i]:
            if node == other and start_s < other_end_s and other_start_s < end_s:
                assert (np.minimum(high, other_high) <= np.maximum(low, other_low)).all()


def test_relaxation_bounds_first_leaf_from_below() -> None:
    facts = considered(a_mix())
    plan = cp_problem.build_first_leaf_plan(facts)
    cost = WeightedDelayObjective(1.0 / facts.table.estimate_s[facts.jobs], np.full(len(facts.jobs), facts.now_s), 0.0)
    before = plan_delay_cost(cost, plan.start_s)
    _, exhausted, bound = branch_and_bound(
        facts, BranchAndBoundState(build_relaxation(facts, True), cost, plan, empty_plan(facts)), 100_000, 1000
    )
    assert exhausted
    assert 0 < bound <= plan_delay_cost(cost, plan.start_s) <= before


def test_compiled_dive_equals_plain_python() -> None:
    facts = considered(a_mix())
    compiled, plain = cp_problem.build_first_leaf_plan(facts), empty_plan(facts)
    dive.py_func(facts, plain, np.arange(len(facts.jobs)), False)  # type: ignore[attr-defined]
    for name in PLACEMENT_COLUMNS:
        assert (getattr(compiled, name) == getattr(plain, name)).all(), name
