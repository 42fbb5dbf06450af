"""The result of the search control. tests/golden/test_cp_family.py compares its searches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pytest_mock import MockerFixture

from cpsched.dispatchers.cp import cp_problem, search_control
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.search_control import improve_plan
from cpsched.dispatchers.cp.search_limit import RestartSearchLimits
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.kernels.cp.cp_state import CpPlan, WeightedDelayObjective
from tests.builders import a_cluster, a_job, a_snapshot


def a_problem() -> tuple[CpProblem, CpPlan]:
    """At second 100, one at a time: three jobs of 30, 20 and 10 s, planned in the order in which they came."""
    queue = [a_job(id, per_unit=4, walltime_s=10 * (4 - id)) for id in (1, 2, 3)]
    snapshot = a_snapshot(a_cluster(nodes=1), queue, now_s=100)
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
    objective = WeightedDelayObjective(np.ones(3), np.full(3, 100), 0.0)
    return CpProblem(facts, objective, snapshot.queue[:0], overdue=False), cp_problem.build_first_leaf_plan(facts)


@pytest.mark.parametrize("model", ["positions", "nodes", "pool"])
@pytest.mark.parametrize("guided", [True, False])
def test_finds_and_proves_best_plan_with_and_without_first_plan(model: str, guided: bool) -> None:
    problem, plan = a_problem()
    limit = RestartSearchLimits(60.0, 1.0, 2, effort=50_000, model_s=60.0)
    found = improve_plan(problem, CpSolveResult(plan, "dive", False, 1.0), model, limit, guided)
    assert (found.path, found.status, found.bound) == ("solver", "optimal", 40.0)
    assert found.plan is not None
    assert found.plan.start_s.tolist() == [130, 110, 100]
    assert 0 <= found.first_s <= found.best_s <= found.solver_s
    assert found.branches > 0


@pytest.mark.parametrize(("guided", "path", "status"), [(True, "dive", "unverified"), (False, "late", "")])
def test_does_not_build_too_large_model(monkeypatch: pytest.MonkeyPatch, guided: bool, path: str, status: str) -> None:
    problem, plan = a_problem()
    monkeypatch.setattr(search_control.pywrapcp, "Solver", lambda *_: pytest.fail("no solver is needed"))
    found = improve_plan(
        problem, CpSolveResult(plan, "x", False), "positions", RestartSearchLimits(1.0, 1.0, 1, model_s=0.0), guided
    )
    assert (found.path, found.status) == (path, status)
    assert (found.plan is plan) is guided


def test_expired_limit_leaves_plan_unverified() -> None:
    problem, plan = a_problem()
    limit = RestartSearchLimits(60.0, 1.0, 2, effort=1, model_s=60.0)
    found = improve_plan(problem, CpSolveResult(plan, "dive", False, 1.0), "positions", limit)
    assert found.plan is not None
    assert found.status in ("unverified", "feasible")
    assert found.plan.start_s.tolist() == plan.start_s.tolist()
    assert found.bound == 1.0, "what was proved before stays"


def test_timed_searches_get_time_to_build_and_verify(mocker: MockerFixture) -> None:
    """A search gets at least this time, and the time to build the model is reserved for its release."""
    problem, plan = a_problem()
    mocker.patch.object(search_control.pywrapcp.Solver, "WallTime", side_effect=itertools.count(0, 5))
    budget = mocker.patch.object(search_control, "RemainingSearchBudget", wraps=search_control.RemainingSearchBudget)
    limit = RestartSearchLimits(60.0, 1.0, 2, model_s=60.0)
    improve_plan(problem, CpSolveResult(plan, "dive", False, 1.0), "positions", limit)
    first, verifies, *searches = (call.args[3:] for call in budget.call_args_list)
    built_ms, least_ms = searches[0]
    assert (first, verifies) == ((0, 0), (built_ms, built_ms))
    assert 0 < built_ms < least_ms


@pytest.mark.parametrize(
    ("model", "off"),
    [
        ("positions", {"diffn_use_cumulative"}),
        ("pool", {"diffn_use_cumulative"}),
        (
            "nodes",
            {
                "diffn_use_cumulative",
                "use_cumulative_edge_finder",
                "use_all_possible_disjunctions",
                "use_sequence_high_demand_tasks",
            },
        ),
    ],
)
def test_disables_slow_presolve_steps_of_solver(model: str, off: set[str]) -> None:
    names = ("diffn_use_cumulative", "use_cumulative_edge_finder", "use_all_possible_disjunctions",
             "use_sequence_high_demand_tasks")  # fmt: skip
    found = search_control._solver_parameters(model)  # noqa: SLF001
    default = search_control.pywrapcp.Solver.DefaultSolverParameters()
    assert {name for name in names if not getattr(found, name)} == off
    assert all(getattr(default, name) for name in names), "or there would be nothing to switch off"
