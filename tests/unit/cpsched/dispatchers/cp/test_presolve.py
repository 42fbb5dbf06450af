"""Rounds without a search: all jobs start, a bound is met, or a model has no solution. Also perturbed dives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem, presolve
from cpsched.dispatchers.cp.cp_problem import CpProblem, Running
from cpsched.dispatchers.cp.presolve import (
    improve_by_perturbed_dives,
    is_infeasible,
    pool_relaxation,
    solve_by_relaxed_bound,
    solve_pool_tree,
    try_start_all_now,
)
from cpsched.kernels.cp.branch_and_bound import COST_TOLERANCE, LEFT_SHIFTED, NO_PLACES
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, WeightedDelayObjective, empty_plan
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.model import Job
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def considered(
    *jobs: Job, nodes: int = 1, running: Any = (), now_s: int = 0, how: Running = "at-least-1s"
) -> CpInstance:
    snapshot = a_snapshot(a_cluster(nodes=nodes), jobs, running, now_s)
    return cp_problem.build_cp_instance(snapshot, how).with_considered_jobs(snapshot.queue)


def waits(facts: CpInstance, *weight: float) -> WeightedDelayObjective:
    """Each second that a job waits from now costs its weight."""
    count = len(facts.jobs)
    return WeightedDelayObjective(np.array(weight or [1.0] * count), np.full(count, facts.now_s, np.int64), 0.0)


@pytest.mark.parametrize(
    ("amounts", "path"), [((4,), "single"), ((1,), "single"), ((2, 2), "all-fit"), ((3, 2), None), ((4, 1), None)]
)
def test_all_start_now_if_all_fit(amounts: tuple[int, ...], path: str | None) -> None:
    facts = considered(*(a_job(id, per_unit=amount) for id, amount in enumerate(amounts, 1)))
    answer = try_start_all_now(facts)
    if path is None:
        assert answer is None
    else:
        assert answer is not None
        assert (answer.path, answer.certain) == (path, True)
        assert answer.plan is not None
        assert answer.plan.start_s.tolist() == [0] * len(amounts)


def test_plan_that_meets_bound_is_optimal() -> None:
    """One at a time: the short job first costs the long one 10 s, the other way round 100 s."""
    facts = considered(a_job(1, per_unit=4, walltime_s=100), a_job(2, per_unit=4, walltime_s=10))
    answer = solve_by_relaxed_bound(facts, waits(facts), 0)
    assert answer.plan is not None
    assert answer.plan.start_s.tolist() == [10, 0]
    assert (answer.path, answer.certain, answer.status, answer.bound) == ("bound-met", True, "optimal", 10.0)


def test_best_found_plan_is_answer_if_bound_is_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = considered(a_job(1, per_unit=4, walltime_s=100), a_job(2, per_unit=4, walltime_s=10))
    seeds: list[int] = []

    def never(facts: CpInstance, relaxed: Any, objective: Any, plan: CpPlan, *_: Any) -> tuple[int, bool, float]:
        return 0, False, 3.0

    def noted(
        facts: CpInstance, plan: CpPlan, objective: WeightedDelayObjective, random: np.random.Generator
    ) -> CpPlan:
        seeds.append(int(random.integers(1000)))
        return plan

    monkeypatch.setattr(presolve, "branch_and_bound", never)
    monkeypatch.setattr(presolve, "improve_by_perturbed_dives", noted)
    answer = solve_by_relaxed_bound(facts, waits(facts), 7)
    assert (answer.certain, answer.status, answer.bound) == (False, "", 3.0)
    assert seeds == [int(np.random.default_rng(7).integers(1000))]
    assert answer.plan is not None
    assert answer.plan.start_s.tolist() == [0, 100], "the first leaf"


@pytest.mark.parametrize(("bound", "met"), [(100.0, True), (101.0, True), (100.0 - 1e-8, True), (99.9, False)])
def test_bound_is_met_within_tolerance(monkeypatch: pytest.MonkeyPatch, bound: float, met: bool) -> None:
    facts = considered(a_job(1, per_unit=4, walltime_s=100), a_job(2, per_unit=4, walltime_s=10))
    monkeypatch.setattr(presolve, "branch_and_bound", lambda *_: (0, True, bound))
    monkeypatch.setattr(presolve, "improve_by_perturbed_dives", lambda facts, plan, *_: plan)
    answer = solve_by_relaxed_bound(facts, waits(facts), 0)
    assert answer.certain is met


def dives(monkeypatch: pytest.MonkeyPatch, *start_s: tuple[int, ...]) -> list[list[int]]:
    """Dives that give these plans, one after the other and the last one for ever; the orders they are asked for."""
    orders: list[list[int]] = []

    def dive(facts: CpInstance, plan: CpPlan, order: np.ndarray, _: bool) -> int:
        plan.start_s[:] = start_s[min(len(orders), len(start_s) - 1)]
        orders.append(order.tolist())
        return len(order)

    monkeypatch.setattr(presolve, "dive", dive)
    return orders


class Calm:
    """Draws nothing but zeros, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def normal(self, mean: float, sigma: float, count: int) -> np.ndarray:
        self.asked.append((sigma, count))
        return np.full(count, mean)


def planned(facts: CpInstance, *start_s: int) -> CpPlan:
    plan = empty_plan(facts)
    plan.start_s[:] = start_s
    return plan


@pytest.mark.parametrize(
    ("found", "taken"), [(100, False), (101, False), (99, True), (0, True), (100 * (1 - COST_TOLERANCE), False)]
)
def test_uses_best_shaken_dive_if_better(monkeypatch: pytest.MonkeyPatch, found: float, taken: bool) -> None:
    facts = considered(a_job(1), a_job(2))
    objective = waits(facts, 1.0, found / 100)
    dives(monkeypatch, (0, 100))
    best = planned(facts, 100, 0)
    result = improve_by_perturbed_dives(facts, best, objective, Calm())  # type: ignore[arg-type]
    assert result.start_s.tolist() == ([0, 100] if taken else [100, 0])


def test_shakes_dives_around_best_order(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = considered(*(a_job(id) for id in (1, 2, 3)))
    orders, calm = dives(monkeypatch, (90, 0, 0), (50, 40, 0)), Calm()
    result = improve_by_perturbed_dives(facts, planned(facts, 70, 80, 60), waits(facts), calm)  # type: ignore[arg-type]
    assert orders[0] == [2, 0, 1], "by start"
    assert orders[1] == [1, 2, 0], "of the better one; of equals the first"
    assert len(orders) == 16
    assert calm.asked == [(1.0, 3)] * 16
    assert (plan_delay_cost(waits(facts), result.start_s), result.start_s.tolist()) == (90.0, [90, 0, 0])


@pytest.mark.parametrize(("count", "sigma"), [(1, 1.0), (8, 1.0), (12, 1.5), (24, 3.0)])
def test_shakes_many_jobs_by_eighth_of_their_number(monkeypatch: pytest.MonkeyPatch, count: int, sigma: float) -> None:
    facts = considered(*(a_job(id) for id in range(1, count + 1)))
    dives(monkeypatch, (0,) * count)
    calm = Calm()
    improve_by_perturbed_dives(facts, planned(facts, *range(count)), waits(facts), calm)  # type: ignore[arg-type]
    assert set(calm.asked) == {(sigma, count)}


# ------------------------------------------------------------------------------------------------------- pools


def a_problem(facts: CpInstance, rest: int = 0, objective: WeightedDelayObjective | None = None) -> CpProblem:
    """The last `rest` of the considered jobs are in the model but not searched."""
    jobs = facts.jobs[: len(facts.jobs) - rest]
    narrow = facts.with_considered_jobs(jobs)
    return CpProblem(narrow, objective or waits(narrow), facts.jobs[len(jobs) :], overdue=False)


@pytest.mark.parametrize(("count", "path"), [(1, "single"), (2, "all-fit")])
def test_all_start_now_if_no_pool_is_short(count: int, path: str) -> None:
    facts = considered(*(a_job(id, per_unit=2) for id in range(1, count + 1)), now_s=9)
    answer = solve_pool_tree(a_problem(facts))
    assert (answer.path, answer.certain, answer.status) == (path, True, "")
    assert answer.plan is not None
    assert answer.plan.start_s.tolist() == [9] * count


def test_exhausted_pool_tree_gives_optimal_plan() -> None:
    facts = considered(a_job(1, per_unit=4, walltime_s=100), a_job(2, per_unit=4, walltime_s=10))
    answer = solve_pool_tree(a_problem(facts))
    assert (answer.path, answer.certain, answer.status, answer.bound) == ("bound-met", True, "optimal", 10.0)
    assert answer.plan is not None
    assert answer.plan.start_s.tolist() == [10, 0]


@pytest.mark.parametrize(("jobs", "nodes"), [(1, 1000), (2, 1000), (600, 1200)])
def test_pool_tree_has_at_least_two_nodes_per_job(monkeypatch: pytest.MonkeyPatch, jobs: int, nodes: int) -> None:
    asked: list[Any] = []

    def branch(*given: Any) -> tuple[int, bool, float]:
        asked.append(given[-2:])
        return 0, False, 5.0

    monkeypatch.setattr(presolve, "branch_and_bound", branch)
    running = [a_running(a_job(9999, per_unit=1), ((0, 1),))]
    facts = considered(*(a_job(id, per_unit=4) for id in range(1, jobs + 1)), running=running)
    answer = solve_pool_tree(a_problem(facts))
    solve_pool_tree(a_problem(facts), left_shifted=True)
    assert asked == [(nodes, NO_PLACES), (nodes, LEFT_SHIFTED)]
    assert (answer.certain, answer.status, answer.bound) == (False, "", 5.0)


def test_pools_serve_considered_jobs_first() -> None:
    facts = considered(a_job(1, per_unit=3), a_job(2, per_unit=2), a_job(3, per_unit=4))
    found = pool_relaxation(a_problem(facts, rest=1))
    assert found.demand[:, 0].tolist() == [3, 2, 4]


def overdue(by_s: int) -> list[Any]:
    """A job on one of four cores that should have ended this many seconds before second 100."""
    return [a_running(a_job(9, walltime_s=100 - by_s), ((0, 1),))]


@pytest.mark.parametrize(("by_s", "no_solution"), [(0, False), (9, False), (10, False), (11, True), (50, True)])
def test_job_longer_than_horizon_has_no_start(by_s: int, no_solution: bool) -> None:
    """Two jobs of 10 and 40 s: the horizon of 50 s, less what the running job is overdue, must hold the longer one."""
    jobs = (a_job(1, walltime_s=10), a_job(2, walltime_s=40))
    facts = considered(*jobs, running=overdue(by_s), now_s=100, how="remaining")
    assert is_infeasible(a_problem(facts)) is no_solution


@pytest.mark.parametrize(
    ("amounts", "rest", "no_solution"),
    [((4, 2, 2), 2, False), ((4, 3, 2), 2, True), ((4, 3, 2), 1, False), ((4, 3, 2), 0, False), ((1, 4), 1, False)],
)
def test_unsearched_jobs_must_fit_together(amounts: tuple[int, ...], rest: int, no_solution: bool) -> None:
    facts = considered(*(a_job(id, per_unit=amount) for id, amount in enumerate(amounts, 1)))
    assert is_infeasible(a_problem(facts, rest)) is no_solution
