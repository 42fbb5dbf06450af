"""Start times on pools: the solver's plans, compared with list schedules in every order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ortools.sat.python import cp_model

from cpsched.dispatchers.cp import cp_sat
from cpsched.kernels.cp.cp_state import WeightedDelayObjective
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.metrics import ScheduleData

PLENTY = cp_sat.CpSatBudget(seconds=60.0, effort=10_000, seed=0)


def a_problem(**fields) -> cp_sat.PoolSchedulingProblem:
    """Two pools, of which more is free at 12 and 30 s; the last job is released late, and asks for one pool alone."""
    given = {
        "now_s": 100,
        "release_s": [0, 0, 0, 8],
        "duration_s": [20, 5, 9, 30],
        "demand": [[3, 0], [1, 2], [2, 1], [0, 2]],
        "moment_s": [0, 12, 20, 30],
        "capacity": [[2, 1], [3, 3], [3, 3], [4, 3]],
    } | fields
    return cp_sat.PoolSchedulingProblem(
        given.pop("now_s"), **{name: np.array(values) for name, values in given.items()}
    )


def in_order(problem: cp_sat.PoolSchedulingProblem, order: tuple[int, ...]) -> np.ndarray:
    """Each job of `order` at its earliest second beside those before it, looked for second by second."""
    used = np.zeros((problem.horizon_s + 1, problem.demand.shape[1]), np.int64)
    there = problem.capacity[np.searchsorted(problem.moment_s, np.arange(len(used)), side="right") - 1]
    start_s = np.empty(len(order), np.int64)
    for j in order:
        d, demand = int(problem.duration_s[j]), problem.demand[j]
        at_s = int(problem.release_s[j])
        while (used[at_s : at_s + d] + demand > there[at_s : at_s + d]).any():
            at_s += 1
        used[at_s : at_s + d] += demand
        start_s[j] = at_s + problem.now_s
    return start_s


def least(problem: cp_sat.PoolSchedulingProblem, cost) -> float:
    """The least cost of all orders; no plan costs less where costs grow with starts."""
    return min(cost(in_order(problem, order)) for order in itertools.permutations(range(len(problem.duration_s))))


def an_objective(*since_s: int) -> WeightedDelayObjective:
    return WeightedDelayObjective(np.array([1.0, 0.25, 0.7, 3.0]), np.array(since_s), 0.0)


def test_horizon_covers_all_jobs_in_sequence():
    assert a_problem().horizon_s == 30 + 64
    assert a_problem(release_s=[0, 50, 0, 0]).horizon_s == 50 + 64


@pytest.mark.parametrize("hinted", [False, True])
@pytest.mark.parametrize("since_s", [(100, 100, 100, 100), (40, 100, 112, 130), (125, 150, 100, 108)])
def test_plan_is_best_of_all_orders(since_s: tuple[int, ...], hinted: bool):
    """Delays that count from now, from before, or from later on."""
    problem, objective = a_problem(), an_objective(*since_s)
    hint_s = in_order(problem, (3, 2, 1, 0)) if hinted else None
    found = cp_sat.solve_pool_problem(problem, objective, PLENTY, hint_s)
    assert (found.status, found.bound) == ("optimal", found.cost)
    costs = plan_delay_cost(objective, found.start_s), least(problem, lambda s: plan_delay_cost(objective, s))
    assert costs == pytest.approx([found.cost] * 2)


def test_job_starting_when_due_costs_nothing():
    """The long job first, then the short one just in time; the other way round the long one would be late."""
    one = {"release_s": [0, 0], "moment_s": [0], "capacity": [[1]], "demand": [[1], [1]]}
    problem = a_problem(duration_s=[1, 10], **one)
    found = cp_sat.solve_pool_problem(
        problem, WeightedDelayObjective(np.array([1.0, 0.5]), np.array([110, 100]), 0.0), PLENTY
    )
    assert (found.start_s.tolist(), found.cost) == ([110, 100], 0.0)


@pytest.mark.parametrize("jobs", [1, 2, 3, 4])
def test_never_exceeds_pool_capacity(jobs: int):
    """Whatever jobs there are, starts are those of an order: no capacity is overlooked, none is held back."""
    whole = a_problem()
    fields = {name: getattr(whole, name)[:jobs] for name in ("release_s", "duration_s", "demand")}
    problem = a_problem(**fields)
    objective = WeightedDelayObjective(np.ones(jobs), np.full(jobs, 100), 0.0)
    found = cp_sat.solve_pool_problem(problem, objective, PLENTY)
    orders = itertools.permutations(range(jobs))
    assert found.start_s.tolist() in [in_order(problem, order).tolist() for order in orders]


def test_uses_hint_as_plan_without_search_time():
    jobs = 60
    choose = np.random.default_rng(1)
    problem = a_problem(
        release_s=np.zeros(jobs, np.int64),
        duration_s=choose.integers(5, 90, jobs),
        demand=choose.integers(1, 3, (jobs, 2)),
    )
    objective = WeightedDelayObjective(choose.random(jobs) + 0.1, choose.integers(20, 300, jobs), 0.0)
    hint_s = in_order(problem, tuple(range(jobs)))
    little = cp_sat.CpSatBudget(seconds=60.0, effort=60, seed=0)
    found = cp_sat.solve_pool_problem(problem, objective, little, hint_s)
    assert found.status == "feasible"
    at_once = plan_delay_cost(objective, np.full(jobs, problem.now_s))
    assert 0 < at_once * (1 - 1e-6) <= found.bound < found.cost <= plan_delay_cost(objective, hint_s)
    none = cp_sat.solve_pool_problem(problem, objective, cp_sat.CpSatBudget(60.0, 0, 0))
    assert (none.start_s, none.cost, none.bound, none.status) == (None, np.inf, None, "unknown")


@pytest.mark.parametrize(
    "problem",
    [
        a_problem(),
        # The last job runs beside the first two, the second of which begins when the first ends.
        a_problem(
            release_s=[0, 5, 0], duration_s=[5, 5, 10], demand=[[1, 0]] * 3, moment_s=[0, 30], capacity=[[2, 0], [2, 1]]
        ),
    ],
)
def test_left_shift_keeps_order_of_starts(problem):
    J = len(problem.duration_s)
    for order in itertools.permutations(range(J)):
        late_s = np.empty(J, np.int64)
        late_s[list(order)] = 1000 + 200 * np.arange(J)
        assert cp_sat.left_shift(problem, late_s).tolist() == in_order(problem, order).tolist()


def test_trace_cost_equals_its_metric():
    submit_s, run_s, processors = np.array([0, 30, 35]), np.array([4, 50, 100]), np.array([8, 1, 3])
    start_s = np.array([60, 31, 35])
    schedule = ScheduleData(submit_s, start_s, start_s + run_s, processors)
    wanted = {"bsld": schedule.bsld, "af": schedule.af, "awf": schedule.awf}
    objectives = {name: cp_sat.trace_metric_objective(name, submit_s, run_s, processors) for name in wanted}
    costs = {name: each.constant + plan_delay_cost(each, start_s) for name, each in objectives.items()}
    assert costs == pytest.approx(wanted)


def p2sf(
    problem: cp_sat.PoolSchedulingProblem, submit_s: np.ndarray, processors: np.ndarray, start_s: np.ndarray
) -> float:
    return ScheduleData(submit_s, start_s, start_s + problem.duration_s, processors).p2sf


SUBMIT_S, PROCESSORS = np.array([0, 90, 40, 100]), np.array([3, 1, 2, 4])


def test_p2sf_is_no_worse_than_best_order():
    """It may be better: a ratio can gain from a job that waits."""
    problem, submit_s, processors = a_problem(), SUBMIT_S, PROCESSORS
    hint_s = in_order(problem, (0, 1, 2, 3))
    assert cp_sat.compute_p2sf(problem, submit_s, processors, hint_s) == pytest.approx(
        p2sf(problem, submit_s, processors, hint_s)
    )
    found = cp_sat.solve_p2sf(problem, submit_s, processors, PLENTY, hint_s)
    assert found.cost == pytest.approx(p2sf(problem, submit_s, processors, found.start_s))
    assert found.cost <= least(problem, lambda start_s: p2sf(problem, submit_s, processors, start_s))
    assert found.cost < 0.99 * cp_sat.compute_p2sf(problem, submit_s, processors, hint_s)
    assert found.bound is None


def test_p2sf_without_time_is_that_of_hint():
    problem, budget = a_problem(), cp_sat.CpSatBudget(60.0, 0, 0)
    hint_s = in_order(problem, (0, 1, 2, 3))
    found = cp_sat.solve_p2sf(problem, SUBMIT_S, PROCESSORS, budget, hint_s)
    assert found.start_s is hint_s
    assert (found.cost, found.branches) == (cp_sat.compute_p2sf(problem, SUBMIT_S, PROCESSORS, hint_s), 0)


def test_rejects_plan_worse_than_hint(mocker):
    problem, submit_s, processors = a_problem(), np.array([0, 90, 40, 100]), np.array([3, 1, 2, 4])
    hint_s = in_order(problem, (3, 2, 1, 0))
    solver = mocker.Mock(wall_time=1.0, num_branches=5)
    solver.value.side_effect = [60, 61, 62, 63]
    mocker.patch.object(cp_sat, "_solve_model", return_value=(solver, "feasible"))
    assert cp_sat.solve_p2sf(problem, submit_s, processors, PLENTY, hint_s).start_s is hint_s


def hinted(model: cp_model.CpModel) -> cp_model.CpSolver:
    """What a model's hint comes to, which must name every variable, each once, and break no constraint."""
    assert sorted(model.proto.solution_hint.vars) == list(range(len(model.proto.variables)))
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver


def test_hint_sets_every_variable_and_is_feasible(mocker):
    problem, found = a_problem(), []
    hint_s = in_order(problem, (3, 2, 1, 0))

    def keep(model, budget):
        found.append(hinted(model).objective_value)
        return mocker.Mock(wall_time=0.0), "unknown"

    mocker.patch.object(cp_sat, "_solve_model", keep)
    cp_sat.solve_pool_problem(problem, an_objective(125, 100, 100, 108), PLENTY, hint_s)
    assert len(found) == 1


@pytest.mark.parametrize("factor", [7.0, 1e18])
def test_table_of_linear_function_is_linear(factor: float):
    """At its entries and between them; what is too large for the solver is scaled."""
    problem = a_problem(release_s=[3], duration_s=[20], demand=[[1, 1]], moment_s=[0, 400], capacity=[[2, 1], [3, 3]])
    last_s = problem.horizon_s - 20
    costs = []
    for at_s in (*range(3, 12), 17, 60, 75, last_s):
        built = cp_sat.CpSatModel(problem)
        built.model.minimize(cp_sat.tabulated_cost_objective(built, lambda start_s: factor * start_s, np.array([at_s])))
        solver = hinted(built.model)
        assert solver.value(built.start[0]) == at_s
        costs.append(solver.objective_value / (at_s - 3) if at_s > 3 else solver.objective_value)
    assert (costs[0], costs[1:]) == (0, pytest.approx([costs[-1]] * 12, rel=1e-3))
