"""From a plan to a decision: its cost, the jobs that start, and the jobs that wait and until when."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.solve_result import (
    CpSolveResult,
    build_solve_effort,
    decision_of_placed_plan,
    decision_of_unplaced_plan,
    empty_decision,
    planned_starts_in_queue_order,
    start_first_job_if_idle,
)
from cpsched.feasibility import verify
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, WeightedDelayObjective, empty_plan
from cpsched.model import NEVER, Effort, Need, PendingCode, PendingReason, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot, considered

EFFORT = Effort("solver", 3, 7, "optimal")


def a_queue(running: bool = False) -> Snapshot:
    """At second 100: two jobs of two whole nodes and one of a core wait for four nodes; perhaps one core is taken."""
    queue = [
        a_job(1, units=2, per_unit=4, distinct=True),
        a_job(2, units=2, per_unit=4, distinct=True),
        a_job(3, per_unit=1),
    ]
    busy = [a_running(a_job(9, walltime_s=500), ((3, 1),), start_s=50)] if running else []
    return a_snapshot(a_cluster(), queue, busy, now_s=100)


def a_plan(facts: CpInstance, *start_s: int) -> CpPlan:
    plan = empty_plan(facts)
    plan.start_s[:] = start_s
    return plan


OBJECTIVE = WeightedDelayObjective(np.array([1.0, 2.0, 3.0]), np.array([100, 100, 100]), 40.0)


@pytest.mark.parametrize(
    ("status", "has_plan", "objective", "bound"),
    [
        ("optimal", True, 40 + 10 + 40, 45.0),
        ("", True, None, None),
        ("unknown", False, None, None),
        ("", False, None, None),
    ],
)
def test_reports_objective_and_bound_of_successful_search(
    status: str, has_plan: bool, objective: float | None, bound: float | None
) -> None:
    facts = considered(a_queue())
    plan = a_plan(facts, 110, 120, 100) if has_plan else None
    answer = CpSolveResult(plan, "solver", False, 5.0, status, 0.25, 99, 0.125, 0.5)
    effort = build_solve_effort(facts, answer, OBJECTIVE, 77)
    assert effort == Effort("solver", 3, 77, status, objective, bound, 0.25, 99, 0.125, 0.5)


def test_empty_answer_has_zero_cost() -> None:
    assert CpSolveResult(None, "dive", certain=False) == CpSolveResult(None, "dive", False, 0.0, "", 0.0, 0, 0.0, 0.0)


def test_expected_starts_follow_queue_order() -> None:
    snapshot = a_queue()
    order = snapshot.queue[[2, 0]]
    assert planned_starts_in_queue_order(snapshot, order, np.array([130, 110])).tolist() == [110, NEVER, 130]
    assert planned_starts_in_queue_order(snapshot, order[:0], order[:0]).tolist() == [NEVER] * 3


@pytest.mark.parametrize("need", ["plan", "starts"])
def test_jobs_start_as_planned_and_others_wait(need: Need) -> None:
    snapshot = a_queue()
    facts = considered(snapshot)
    decision = decision_of_placed_plan(snapshot, facts, cp_problem.build_first_leaf_plan(facts), EFFORT, need)
    assert verify(decision, snapshot) == []
    assert set(decision.starts_by_job(snapshot)) == {1, 2}
    assert decision.effort is EFFORT
    if need == "starts":
        assert (decision.plan_s, decision.waits) == (None, {})
    else:
        assert (decision.plan_by_job(snapshot), set(decision.waits)) == ({1: 100, 2: 100, 3: 200}, {3})
        assert decision.waits[3].reason == PendingReason(PendingCode.RESOURCES, (0, 1))


def test_fitting_job_waits_for_heavier_ones() -> None:
    snapshot = a_queue()
    facts = considered(snapshot, 1)
    decision = decision_of_placed_plan(snapshot, facts, a_plan(facts, 150), EFFORT, "plan")
    assert decision.waits[1].reason.code is PendingCode.WEIGHT
    assert decision.waits[2].reason.code is PendingCode.NOT_CONSIDERED


POOL_OF_TWO = a_snapshot(a_cluster(nodes=2), [a_job(1, units=3, per_unit=3), a_job(2, per_unit=3)], now_s=100)


@pytest.mark.parametrize(
    ("snapshot", "starts", "allocation", "nodes", "effort", "plan"),
    [
        # A core of the fourth node is taken: of two jobs of two whole nodes one finds room.
        (a_queue(True), (100, 100, 100), "first-fit", {1: [0, 1], 3: [2]}, ("solver", 1), {1: 100, 3: 100}),
        (a_queue(True), (100, 200, 100), "first-fit", {1: [0, 1], 3: [2]}, ("solver", 0), {1: 100, 2: 200, 3: 100}),
        (a_queue(True), (150, 200, 100), "first-fit", {3: [0]}, ("solver", 0), {1: 150, 2: 200, 3: 100}),
        (a_queue(True), (150, 200, 100), "best-fit", {3: [3]}, ("solver", 0), {1: 150, 2: 200, 3: 100}),
        (a_queue(True), (150, 200, 101), "first-fit", {}, ("solver", 0), {1: 150, 2: 200, 3: 101}),
        # An idle cluster starts jobs that fit besides those that cannot be placed.
        (a_queue(), (100, 100, 100), "best-fit", {1: [0, 1], 2: [2, 3]}, ("solver", 1), {1: 100, 2: 100}),
        # A pool of eight cores may seem to have room for three units of three; two nodes of four have not.
        (POOL_OF_TWO, (100, 150), "best-fit", {2: [1]}, ("solver-alone", 1), {2: 100}),
    ],
)  # fmt: skip
def test_counts_pool_starts_that_fit_on_no_node(
    snapshot: Snapshot,
    starts: tuple[int, ...],
    allocation: str,
    nodes: dict[int, list[int]],
    effort: tuple[str, int],
    plan: dict[int, int],
) -> None:
    facts = considered(snapshot, len(starts))
    decision = decision_of_unplaced_plan(snapshot, facts, a_plan(facts, *starts), EFFORT, "plan", allocation)
    placements = decision.starts_by_job(snapshot)
    assert verify(decision, snapshot) == []
    assert {id: [node for node, _ in placement] for id, placement in placements.items()} == nodes
    assert ((decision.effort.path, decision.effort.unplaced), decision.plan_by_job(snapshot)) == (effort, plan)


@pytest.mark.parametrize(("running", "starts"), [(False, {1}), (True, set())])
def test_starts_first_fitting_job_if_cluster_would_stay_idle(running: bool, starts: set[int]) -> None:
    """Else the next round would be this one again."""
    snapshot = a_queue(running)
    facts = considered(snapshot)
    decision = start_first_job_if_idle(snapshot, facts, EFFORT, "plan")
    assert set(decision.starts_by_job(snapshot)) == starts
    assert decision.effort.path == ("solver-alone" if starts else "solver")
    assert decision.plan_by_job(snapshot) == ({1: 100} if starts else {})
    later = decision_of_unplaced_plan(snapshot, facts, a_plan(facts, 150, 160, 170), EFFORT, "plan", "best-fit")
    assert (set(later.starts_by_job(snapshot)), later.effort.unplaced) == (starts, 0)


def test_starts_next_job_if_first_fits_nowhere() -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(1, per_unit=9), a_job(2, per_unit=1)], now_s=100)
    facts = considered(snapshot, 2)
    assert set(start_first_job_if_idle(snapshot, facts, EFFORT, "plan").starts_by_job(snapshot)) == {2}
    decision = start_first_job_if_idle(snapshot, considered(snapshot, 1), EFFORT, "plan")
    assert (decision.starts_by_job(snapshot), decision.effort.path) == ({}, "solver")


@pytest.mark.parametrize("need", ["plan", "starts"])
def test_all_jobs_wait_without_plan_if_nothing_starts(need: Need) -> None:
    decision = empty_decision(a_queue(), EFFORT, need)
    assert len(decision.starts) == 0
    if need == "plan":
        assert (decision.plan_s.tolist(), set(decision.waits)) == ([NEVER] * 3, {1, 2, 3})
    else:
        assert decision.plan_s is None
