"""The search control without a solver: the sequence of searches, their limits, and the final result."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem, search_control
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.search_control import RestartSearch, improve_plan
from cpsched.dispatchers.cp.search_limit import Control, RestartSearchLimits
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.kernels.cp.cp_state import CpPlan, WeightedDelayObjective
from tests.builders import a_cluster, a_job, a_snapshot


@dataclass
class Ends:
    """How one search ends: `whole` if it has seen everything within its budget; with a better plan, of some cost."""

    whole: bool = False
    best: int | None = None


@dataclass
class Played(RestartSearch):
    """A run whose searches end as the test says; `asked` are (turn, complete, own, times doubled) of each.

    The solver's clock shows 7.5 ms when the model is built, and 20.25 ms when its plan is verified.
    """

    ends: list[Ends]
    shown: Any = None
    proves: bool = True
    asked: list[tuple[int, bool, bool, int]] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    least: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan, self.status = self.shown, "unverified"
        self._guided, self._best = self.shown is not None, None if self.shown is None else 100
        clock = SimpleNamespace(WallTime=lambda: 20.25 if self.verified else 7.5)
        self._model = SimpleNamespace(own_search_proves=self.proves, solver=clock)
        self._built_ms = self._least_ms = self._doubled = 0

    def next_search_budget(self, limit: RestartSearchLimits, doubled: int = 0) -> Any:
        self._doubled = doubled
        return SimpleNamespace(crossed=not self.ends)

    def _verify_plan(self, budget: Any, plan: CpPlan) -> None:
        self.verified.append(self._least_ms)

    def _build_search(self, turn: int, random: np.random.Generator, complete: bool, own: bool) -> Any:
        self.asked.append((turn, complete, own, self._doubled))
        self.least.append(self._least_ms)

    def _run_search(self, search: Any, budget: Any) -> bool:
        end = self.ends.pop(0)
        budget.crossed = not end.whole
        if end.best is None:
            return False
        self._best, self.plan, self.status = end.best, "better", "feasible"
        return True


def played(run: Played, control: Control = "stops", restarts: int = 2, effort: int | None = 1) -> Played:
    run.run_restarts(RestartSearchLimits(1.0, 1.0, restarts, effort, control=control), np.random.default_rng(0))
    return run


NOTHING, BETTER = Ends(), Ends(best=50)


@pytest.mark.parametrize(
    ("ends", "asked", "status"),
    [
        ([], [], "unverified"),
        ([NOTHING] * 9, [(0, True, 0), (1, False, 1)], "unverified"),
        ([BETTER, NOTHING, NOTHING, NOTHING], [(0, True, 0), (1, False, 0), (2, True, 1)], "feasible"),
        ([NOTHING, BETTER, NOTHING, BETTER], [(0, True, 0), (1, False, 1), (2, True, 0), (3, False, 1)], "feasible"),
        ([Ends(whole=True)], [(0, True, 0)], "optimal"),
        ([Ends(whole=True, best=50)], [(0, True, 0)], "optimal"),
        ([NOTHING, Ends(whole=True)], [(0, True, 0), (1, False, 1)], "unverified"),
        ([BETTER, Ends(whole=True), Ends(whole=True)], [(0, True, 0), (1, False, 0), (2, True, 1)], "optimal"),
        ([Ends(best=0), NOTHING], [(0, True, 0)], "optimal"),
    ],
)
def test_search_ends_after_failures_or_proof(ends: list[Ends], asked: list[tuple[int, bool, int]], status: str) -> None:
    """Searches that may prove and others take turns; each after one that brought nothing gets twice as much."""
    run = played(Played(list(ends), "a plan"))
    assert [(turn, complete, doubled) for turn, complete, _, doubled in run.asked] == asked
    assert not any(own for _, _, own, _ in run.asked)
    assert run.status == status
    assert len(run.verified) == 1


@pytest.mark.parametrize("restarts", [1, 2, 3])
def test_stops_after_configured_failed_searches(restarts: int) -> None:
    assert len(played(Played([NOTHING] * 9, "a plan"), restarts=restarts).asked) == restarts


def test_doubling_search_ends_with_first_plan() -> None:
    assert len(played(Played([NOTHING] * 9, "a plan"), "doubles").asked) == 1
    run = played(Played([NOTHING, NOTHING, BETTER, NOTHING]), "doubles")
    assert [doubled for *_, doubled in run.asked] == [0, 1, 2]
    assert run.plan == "better"


@pytest.mark.parametrize(
    ("ends", "proves", "asked", "status"),
    [
        ([NOTHING] * 4, True, [(True, True)] * 4, "unverified"),
        ([Ends(whole=True)], True, [(True, True)], "infeasible"),
        ([Ends(whole=True, best=50)], True, [(True, True)], "optimal"),
        ([Ends(whole=True), Ends(whole=True)], False, [(True, True), (True, False)], "infeasible"),
        ([Ends(whole=True, best=50), Ends(whole=True)], False, [(True, True), (True, False)], "optimal"),
        ([NOTHING, Ends(whole=True), NOTHING], False, [(True, True), (True, True), (True, False)], "unverified"),
    ],
)
def test_own_search_of_solver_runs_first_without_plan(
    ends: list[Ends], proves: bool, asked: list[tuple[bool, bool]], status: str
) -> None:
    """Where that search ends and proves nothing, the guided one goes on; every one of them may prove."""
    run = played(Played(list(ends), proves=proves))
    assert [(complete, own) for _, complete, own, _ in run.asked] == asked
    assert run.status == status
    assert run.verified == [], "there is nothing to verify"


@pytest.mark.parametrize(("effort", "built_ms", "verified_ms"), [(None, 7, 20), (5, 0, 0)])
def test_search_budget_is_at_least_build_and_verify_time(effort: int | None, built_ms: int, verified_ms: int) -> None:
    """No model is built without a branch of it being taken."""
    run = played(Played([NOTHING] * 2, "a plan"), effort=effort)
    assert (run._built_ms, run.verified, run.least) == (built_ms, [built_ms], [verified_ms] * 2)  # noqa: SLF001


# ------------------------------------------------------------------------------------------------- who goes first


class Drawn:
    """Draws what the test says, and notes with which deviation."""

    def __init__(self, *values: float) -> None:
        self.values, self.asked = np.array(values), []  # type: ignore[var-annotated]

    def normal(self, mean: float, sigma: float, count: int) -> np.ndarray:
        self.asked.append((mean, sigma, count))
        return self.values


def ranked(start_s: list[int], turn: int, drawn: Drawn, same: tuple[list[int], ...] = ()) -> list[int]:
    run = Played([])
    run._same = [np.array(group) for group in same]  # noqa: SLF001
    return run._rank_jobs(SimpleNamespace(start_s=np.array(start_s)), turn, drawn)  # type: ignore[arg-type]  # noqa: SLF001


@pytest.mark.parametrize(("turn", "ranks"), [(0, [2, 0, 3, 1]), (1, [3, 1, 0, 2]), (2, [3, 1, 0, 2])])
def test_first_ranks_follow_best_plan_then_are_shaken(turn: int, ranks: list[int]) -> None:
    """Starts 20, 0, 30, 0: the jobs have places 2, 0, 3, 1, of equals the first first; the third is drawn ahead."""
    drawn = Drawn(0.0, 0.0, -4.0, 0.0)
    assert ranked([20, 0, 30, 0], turn, drawn) == ranks
    assert drawn.asked == [(0.0, 2.0, 4)]


def test_shakes_many_jobs_by_eighth_of_their_number() -> None:
    drawn = Drawn(*[0.0] * 24)
    ranked(list(range(24)), 1, drawn)
    assert drawn.asked == [(0.0, 3.0, 24)]


def test_equal_jobs_keep_order_when_shaken() -> None:
    assert ranked([0, 10, 20], 1, Drawn(9.0, 0.0, 0.0)) == [2, 0, 1]
    assert ranked([0, 10, 20], 1, Drawn(9.0, 0.0, 0.0), ([0, 2],)) == [1, 0, 2]


# ------------------------------------------------------------------------------------------------- the whole


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
    found = improve_plan(problem, CpSolveResult(plan, "dive", False, 1.0), model, limit, 0, guided)
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
        problem, CpSolveResult(plan, "x", False), "positions", RestartSearchLimits(1.0, 1.0, 1, model_s=0.0), 0, guided
    )
    assert (found.path, found.status) == (path, status)
    assert (found.plan is plan) is guided


def test_expired_limit_leaves_plan_unverified() -> None:
    problem, plan = a_problem()
    limit = RestartSearchLimits(60.0, 1.0, 2, effort=1, model_s=60.0)
    found = improve_plan(problem, CpSolveResult(plan, "dive", False, 1.0), "positions", limit, 0)
    assert found.plan is not None
    assert found.status in ("unverified", "feasible")
    assert found.plan.start_s.tolist() == plan.start_s.tolist()
    assert found.bound == 1.0, "what was proved before stays"


@pytest.mark.parametrize(("guided", "own"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("found", [True, False])
def test_search_gets_best_plan_if_it_started_with_one(guided: bool, own: bool, found: bool) -> None:
    """Else it begins with an empty leaf, in the order of the jobs; the solver's own gets no order at all."""
    problem, plan = a_problem()
    asked: list[tuple[Any, Any, bool]] = []
    run = Played([])
    run.plan, run._guided, run._same = plan if found else None, guided, []  # noqa: SLF001
    run._model = SimpleNamespace(  # noqa: SLF001
        facts=problem.facts,
        start=[0, 0, 0],
        make_decision_builder=lambda leaf, rank, whole: asked.append((leaf, rank, whole)),
    )
    RestartSearch._build_search(run, 0, Drawn(0.0, 0.0, 0.0), False, own)  # type: ignore[arg-type]  # noqa: SLF001
    ((leaf, rank, whole),) = asked
    if own:
        assert (leaf, rank, whole) == (run.plan, None, True)
    elif guided and found:
        assert (leaf.start_s.tolist(), list(rank), whole) == ([100, 130, 150], [0, 1, 2], False)
        assert leaf is not plan, "what the search does to it is not done to the best plan"
    else:
        assert (leaf.start_s.tolist(), list(rank), whole) == ([-1, -1, -1], [0, 1, 2], True)


def a_run(plan: CpPlan | None, same: list[list[int]]) -> RestartSearch:
    problem, leaf = a_problem()
    solver = search_control.pywrapcp.Solver("by hand")
    model = search_control.MODELS["positions"](solver, problem, leaf)
    model.post_constraints()
    return RestartSearch(model, problem, plan, [np.array(group) for group in same])


@pytest.mark.parametrize(
    ("start_s", "status"),
    [((100, 130, 150), "feasible"), ((130, 110, 100), "feasible"), ((100, 105, 150), "unverified")],
)
def test_solver_verifies_whole_plan(start_s: tuple[int, ...], status: str) -> None:
    """Jobs of 30, 20 and 10 s, each of which takes the whole node: two at a time are no plan."""
    _, plan = a_problem()
    plan.start_s[:] = start_s
    run = a_run(plan, [])
    run._verify_plan(run.next_search_budget(RestartSearchLimits(60.0, 1.0, 2, effort=50_000)), plan)  # noqa: SLF001
    assert run.status == status


@pytest.mark.parametrize(
    ("same", "start_s", "holds"),
    [
        ([], (9, 5, 1), True),
        ([[0, 1, 2]], (1, 5, 9), True),
        ([[0, 1, 2]], (5, 5, 5), True),
        ([[0, 1, 2]], (1, 9, 5), False),
        ([[0, 2]], (9, 1, 5), False),
        ([[0, 2]], (5, 1, 9), True),
        ([[1, 2]], (9, 6, 5), False),
    ],
)
def test_model_orders_starts_of_equal_jobs(same: list[list[int]], start_s: tuple[int, ...], holds: bool) -> None:
    problem, _ = a_problem()
    solver = search_control.pywrapcp.Solver("by hand")
    start = [solver.IntVar(0, 60) for _ in range(3)]
    model = SimpleNamespace(solver=solver, start=start, facts=problem.facts, horizon_s=60)
    RestartSearch(model, problem, None, [np.array(group) for group in same])  # type: ignore[arg-type]
    leaf = solver.Assignment()
    for variable, value in zip(start, start_s, strict=True):
        leaf.Add(variable)
        leaf.SetValue(variable, value)
    assert bool(solver.CheckAssignment(leaf)) is holds


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
