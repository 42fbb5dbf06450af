"""The result of the search control, the budget of a search, and the reserve that lets a call end within its limit.

tests/golden/test_cp_family.py compares the searches.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pytest_mock import MockerFixture

from cpsched.dispatchers.cp import cp_problem, search_control
from cpsched.dispatchers.cp.cp_dispatcher_config import RestartSearchLimits
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.search_control import RemainingSearchBudget, improve_plan
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.errors import InvalidValue
from cpsched.kernels.cp.cp_state import CpPlan, WeightedDelayObjective
from tests.builders import a_cluster, a_job, a_snapshot, considered


def a_problem() -> tuple[CpProblem, CpPlan]:
    """At second 100, one at a time: three jobs of 30, 20 and 10 s, planned in the order in which they came."""
    queue = [a_job(id, per_unit=4, walltime_s=10 * (4 - id)) for id in (1, 2, 3)]
    snapshot = a_snapshot(a_cluster(nodes=1), queue, now_s=100)
    facts = considered(snapshot)
    objective = WeightedDelayObjective(np.ones(3), np.full(3, 100), 0.0)
    return CpProblem(facts, objective, snapshot.queue[:0], overdue=False), cp_problem.build_first_leaf_plan(facts)


@pytest.mark.parametrize("model", ["positions", "nodes", "pool"])
@pytest.mark.parametrize("guided", [True, False])
def test_finds_and_proves_best_plan_with_and_without_first_plan(model: str, guided: bool) -> None:
    problem, plan = a_problem()
    limit = RestartSearchLimits(60.0, 1.0, 2, effort=50_000, model_s=60.0)
    found = improve_plan(problem, CpSolveResult(plan, "dive", False, 1.0), model, limit, guided)
    assert (found.path, found.status, found.bound) == ("solver", "optimal", 40.0)
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


class Clock:
    """A solver that has searched for this time and number of branches."""

    def __init__(self) -> None:
        self.ms = self.branches = 0

    def WallTime(self) -> int:  # noqa: N802
        return self.ms

    def Branches(self) -> int:  # noqa: N802
        return self.branches


@pytest.mark.parametrize(
    ("first_s", "begun_ms", "options", "end_ms"),
    [
        # The last search leaves time for the release of the model.
        (100.0, 0, (0, 3000), 7000),
        (100.0, 0, (0, 0), 10_000),
        # A search gets its share of the time that is left.
        (1.0, 500, (1, 0), 2500),
        # Verification may take longer than a first search.
        (0.01, 0, (0, 200), 10),
        (0.01, 0, (0, 200, 200), 200),
    ],
)
def test_search_ends_with_its_budget(first_s: float, begun_ms: int, options: tuple[int, ...], end_ms: int) -> None:
    solver = Clock()
    solver.ms = begun_ms
    is_over = RemainingSearchBudget(solver, RestartSearchLimits(10.0, first_s, 2), *options)
    for solver.ms in (end_ms - 1, end_ms):
        assert is_over() is (solver.ms == end_ms)


@pytest.mark.parametrize(
    ("total_s", "model_s", "effort", "most_s"),
    [(10.0, 16.0, None, 5.0), (10.0, 16.0, 100, 16.0), (100.0, 16.0, None, 16.0), (2.0, 1.0, None, 1.0),
     (1.9, 1.0, None, 0.95), (9.0, 1.0, 5, 1.0), (1.0, 0.0, 1, 0.0)],
)  # fmt: skip
def test_limit_must_cover_build_and_teardown_of_model(
    total_s: float, model_s: float, effort: int | None, most_s: float
) -> None:
    """Releasing a model takes as long as building it, unless the limit is in branches."""
    limit = RestartSearchLimits(total_s, 1.0, 2, effort=effort, model_s=model_s)
    assert [limit.is_model_within_limit(build_s) for build_s in (most_s, most_s + 0.01)] == [True, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_s": 0.0}, "limit_s=0.0: must be positive"),
        ({"total_s": -1.0}, "limit_s=-1.0: must be positive"),
        ({"first_s": 0.0}, "first_limit_s=0.0: must be positive"),
        ({"restarts": 0}, "restarts=0: must be positive"),
        ({"model_s": -0.1}, "model_s=-0.1: must not be negative"),
        ({"effort": 0}, "effort=0: must be positive"),
    ],
)
def test_rejects_invalid_limits(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        RestartSearchLimits(**{"total_s": 1.0, "first_s": 1.0, "restarts": 1, **changes})  # type: ignore[arg-type]


def test_limits_have_defaults() -> None:
    assert RestartSearchLimits(0.001, 0.0001, 1) == RestartSearchLimits(0.001, 0.0001, 1, None, 0.1, "stops", 0)


@pytest.mark.parametrize(
    ("total_s", "first_s", "effort", "total", "first"),
    [
        (16.0, 0.01, None, 16_000, 10),
        (0.5, 2.0, None, 500, 2000),
        (1.0, 0.0001, None, 1000, 1),
        (16.0, 0.01, 800, 800, 100),
        (16.0, 0.01, 15, 15, 1),
        (16.0, 0.01, 16, 16, 2),
        (16.0, 0.01, 7, 7, 1),
        (0.001, 0.0001, 1, 1, 1),
    ],
)
def test_computes_total_and_first_budget(
    total_s: float, first_s: float, effort: int | None, total: int, first: int
) -> None:
    limit = RestartSearchLimits(total_s, first_s, 1, effort)
    assert (limit.total_budget, limit.first_budget) == (total, first)
