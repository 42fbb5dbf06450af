"""The inputs of a constraint dispatcher's parts, and starts blocked by a running job."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher, postpone_infeasible_starts
from cpsched.dispatchers.cp.cp_dispatcher_config import VALUE_MEANINGS, CpDispatcherConfig
from cpsched.dispatchers.cp.cp_problem import CpProblem
from cpsched.dispatchers.cp.search_limit import RestartSearchLimits
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.errors import InvalidValue
from cpsched.kernels.cp.cp_state import empty_plan
from cpsched.model import Effort, EndedJob, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import Asking

POOLED: dict[str, Any] = {"allocation": "best-fit"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"site_weight": -0.1}, "site_weight=-0.1: must not be negative"),
        ({"considered": 0}, "considered=0: must be positive"),
        ({"priority": "none"}, "priority=none: requires allocation=nodes"),
        ({"priority": "none", "allocation": "best-fit"}, "priority=none: requires allocation=nodes"),
        ({"running": "remaining"}, "running=remaining: cannot be combined with allocation=positions"),
    ],
)
def test_rejects_conflicting_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Asking(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"site_weight": 0.0, "considered": 1},
        {"priority": "none", "allocation": "nodes"},
        {"running": "remaining", "allocation": "nodes"},
        {"running": "remaining", "allocation": "first-fit"},
    ],
)
def test_accepts_compatible_settings(settings: dict[str, Any]) -> None:
    Asking(**settings)


@pytest.mark.parametrize(
    ("settings", "learns"),
    [
        ({}, False),
        ({"objective": "late"}, True),
        ({"objective": "weighted-wait"}, True),
        ({"priority": "urgency"}, True),
        ({"objective": "late", "waits_s": {"q": 5.0}}, False),
        ({"priority": "urgency", "waits_s": {}}, False),
    ],
)
def test_learns_expected_waits_if_needed_and_not_given(settings: dict[str, Any], learns: bool) -> None:
    dispatcher = Asking(**settings)
    dispatcher.learn(EndedJob(a_job(1, queue="q"), 7, 9))
    assert dispatcher.learns is learns
    assert dispatcher.memory() == ({"q": [7, 1]} if learns else None)


def test_passes_default_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    queue = [a_job(id, per_unit=4, walltime_s=id) for id in range(1, 151)]
    ConstraintDispatcher().decide(a_snapshot(a_cluster(), queue, [a_running(a_job(999, walltime_s=50), ((0, 1),))]))
    assert asked.limits == [(RestartSearchLimits(16.0, 0.01, 2, None, 0.25, "stops"), 0)]
    assert len(asked.problems[0].facts.jobs) == 100


class Asked:
    """Stands for the solver: notes what it was asked, and answers with the plan at hand, or with none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: bool = True) -> None:
        from cpsched.dispatchers.cp import search_control

        self.problems: list[CpProblem] = []
        self.shown: list[bool] = []
        self.models: list[str] = []
        self.limits: list[tuple[RestartSearchLimits, int]] = []
        """Each with the seed."""
        self.answers = answers
        monkeypatch.setattr(search_control, "improve_plan", self.improve)

    def improve(
        self, problem: CpProblem, answer: CpSolveResult, model: str, limit: RestartSearchLimits, seed: int, shown: bool
    ) -> CpSolveResult:
        self.problems.append(problem)
        self.shown.append(shown)
        self.models.append(model)
        self.limits.append((limit, seed))
        if self.answers:
            return dataclasses.replace(answer, path="solver", status="feasible")
        return CpSolveResult(None, "late", False, 0.0, "unknown", 0.5, 77)


def considered(snapshot: Snapshot, problem: CpProblem) -> list[int]:
    return [snapshot.table.jobs[slot].id for slot in problem.facts.jobs.tolist()]


@pytest.mark.parametrize(
    ("settings", "chosen", "rest"),
    [
        ({}, [3, 4], 0),
        ({"considered": 1}, [3], 0),
        ({"jobs": "all", "considered": 1}, [1, 3, 4], 0),
        ({"jobs": "first", "considered": 2}, [1, 3], 1),
        ({"jobs": "first", "considered": 3}, [1, 3, 4], 0),
        ({"jobs": "first", "considered": 9}, [1, 3, 4], 0),
    ],
)
def test_selects_jobs_of_model(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], chosen: list[int], rest: int
) -> None:
    """Of four jobs the first does not fit beside what runs, and the second fits nowhere at any time."""
    asked = Asked(monkeypatch)
    running = [a_running(a_job(9, walltime_s=50), ((0, 1),))]
    queue = [a_job(1, units=4, per_unit=4), a_job(2, per_unit=5), a_job(3, per_unit=4), a_job(4)]
    snapshot = a_snapshot(a_cluster(), queue, running)
    Asking(priority="slowdown", **settings).decide(snapshot)
    (problem,) = asked.problems
    assert sorted(considered(snapshot, problem)) == chosen
    assert len(problem.rest) == rest


@pytest.mark.parametrize(
    ("queue", "running", "path"),
    [
        ([], [], "empty-queue"),
        ([a_job(1, per_unit=9)], [], "nothing-fits"),
        ([a_job(1, per_unit=4)], [a_running(a_job(9, units=4), tuple((n, 1) for n in range(4)))], "nothing-fits"),
    ],
)
@pytest.mark.parametrize("jobs", ["startable", "all", "first"])
def test_skips_solver_if_nothing_can_start(
    monkeypatch: pytest.MonkeyPatch, queue: list[Any], running: list[Any], path: str, jobs: str
) -> None:
    asked = Asked(monkeypatch)
    settings = {"jobs": jobs, **(POOLED if jobs != "startable" else {})}
    snapshot = a_snapshot(a_cluster(), queue, running)
    decision = Asking(certain=True, **settings).decide(snapshot)
    assert (decision.effort.path, len(decision.starts), asked.problems) == (path, 0, [])


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"allocation": "positions"}, "positions"),
        ({"allocation": "nodes"}, "nodes"),
        ({"allocation": "first-fit"}, "pool"),
        ({"allocation": "best-fit"}, "pool"),
    ],
)
def test_allocation_selects_model(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], model: str) -> None:
    asked = Asked(monkeypatch)
    Asking(**settings).decide(a_snapshot(a_cluster(), [a_job(1)]))
    assert asked.models == [model]


@pytest.mark.parametrize(
    ("settings", "ended", "overdue", "shown"),
    [
        ({"allocation": "nodes"}, False, False, True),
        ({"allocation": "nodes", "priority": "none"}, False, False, False),
        ({"allocation": "nodes", "running": "remaining"}, False, False, True),
        ({"allocation": "nodes", "running": "remaining"}, True, True, True),
        ({"allocation": "nodes", "running": "at-least-1s"}, True, False, True),
    ],
)
def test_passes_overdue_rule_and_current_plan_to_solver(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], ended: bool, overdue: bool, shown: bool
) -> None:
    asked = Asked(monkeypatch)
    running = [a_running(a_job(9, walltime_s=100 if ended else 101), ((0, 1),))]
    snapshot = a_snapshot(a_cluster(), [a_job(1, walltime_s=1000)], running, now_s=100)
    Asking(**settings).decide(snapshot)
    assert [problem.overdue for problem in asked.problems] == [overdue]
    assert asked.shown == [shown]


def test_solver_without_plan_reports_cost_and_starts_one_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Asked(monkeypatch, answers=False)
    snapshot = a_snapshot(a_cluster(), [a_job(1), a_job(2)])
    decision = Asking().decide(snapshot)
    effort = decision.effort
    assert (effort.path, effort.status, effort.considered) == ("late-alone", "unknown", 2)
    assert (effort.solver_s, effort.branches) == (0.5, 77)
    assert effort.variables > 0
    assert set(decision.starts_by_job(snapshot)) == {1}


@pytest.mark.parametrize("in_order", [False, True])
def test_passes_order_of_equal_jobs_to_solver(monkeypatch: pytest.MonkeyPatch, in_order: bool) -> None:
    asked = Asked(monkeypatch)
    Asking(in_order=in_order).decide(a_snapshot(a_cluster(), [a_job(1)]))
    assert [problem.in_order for problem in asked.problems] == [in_order]


@pytest.mark.parametrize(("site_weight", "doubled"), [(0.0, False), (1.0, True)])
def test_site_priority_has_configured_weight(
    monkeypatch: pytest.MonkeyPatch, site_weight: float, doubled: bool
) -> None:
    asked = Asked(monkeypatch)
    queue = [dataclasses.replace(a_job(id), priority=rank) for id, rank in ((1, 10), (2, 1000))]
    Asking(site_weight=site_weight).decide(a_snapshot(a_cluster(), queue))
    weight = asked.problems[0].objective.weight
    assert bool(weight[0] != weight[1]) is doubled


# ------------------------------------------------------------------------------------- what overdue jobs still hold


def test_counts_starts_blocked_by_overdue_job() -> None:
    """Two cores of each of two nodes are held. The plan starts a job of two cores, one of three, one of two units."""
    running = [a_running(a_job(90 + n, per_unit=2), ((n, 1),)) for n in range(2)]
    queue = [a_job(1, per_unit=2), a_job(2, per_unit=3), a_job(3, units=2, per_unit=1), a_job(4, per_unit=1)]
    snapshot = a_snapshot(a_cluster(nodes=2), queue, running, now_s=100)
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
    plan = empty_plan(facts)
    plan.start_s[:] = (100, 100, 100, 130)
    plan.parts[:] = (1, 1, 2, 1)
    plan.node[:] = (1, 0, 0, 0, 1)
    plan.units[:] = 1
    plan.dy[:, 0] = (2, 3, 1, 1, 1)
    found, effort = postpone_infeasible_starts(snapshot, facts, plan, Effort("solver"))
    assert found.start_s.tolist() == [100, 101, 100, 130]
    assert (effort.unplaced, effort.path) == (1, "solver")


def test_rejects_one_unit_more_than_node_holds() -> None:
    running = [a_running(a_job(9, per_unit=2), ((0, 1),))]
    for units, start_s, unplaced in ((2, 100, 0), (3, 101, 1)):
        snapshot = a_snapshot(a_cluster(nodes=2), [a_job(1, units=units)], running, now_s=100)
        facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
        plan = empty_plan(facts)
        plan.start_s[:], plan.parts[:], plan.units[:], plan.dy[:] = 100, units, 1, 1
        found, effort = postpone_infeasible_starts(snapshot, facts, plan, Effort("solver"))
        assert (found.start_s.tolist(), effort.unplaced) == ([start_s], unplaced)


def test_each_start_reduces_resources_of_later_ones() -> None:
    snapshot = a_snapshot(a_cluster(nodes=1), [a_job(1, per_unit=3), a_job(2, per_unit=3), a_job(3)], now_s=100)
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
    plan = empty_plan(facts)
    plan.start_s[:], plan.parts[:], plan.units[:] = 100, 1, 1
    plan.dy[:, 0] = (3, 3, 1)
    found, effort = postpone_infeasible_starts(snapshot, facts, plan, Effort("solver"))
    assert (found.start_s.tolist(), effort.unplaced) == ([100, 101, 100], 1)
    assert np.array_equal(snapshot.free, [[4]]), "the snapshot stays as it is"


def test_every_recipe_value_is_documented() -> None:
    for part, words in VALUE_MEANINGS.items():
        assert set(words) == set(get_args(get_type_hints(CpDispatcherConfig)[part])), part


@pytest.mark.parametrize(("overdue_s", "shown"), [(0, True), (40, False)])
def test_does_not_show_plan_beyond_shortened_horizon(
    monkeypatch: pytest.MonkeyPatch, overdue_s: int, shown: bool
) -> None:
    """Two jobs of 50 s one after the other end at second 100; the horizon is that, less what is overdue."""
    asked = Asked(monkeypatch)
    running = [a_running(a_job(9, walltime_s=100 - overdue_s), ((1, 1),))]
    queue = [a_job(id, units=4, per_unit=3, walltime_s=50) for id in (1, 2)]
    snapshot = a_snapshot(a_cluster(nodes=4), queue, running, now_s=100)
    Asking(allocation="nodes", running="remaining").decide(snapshot)
    (problem,) = asked.problems
    assert problem.horizon_s == 100 - overdue_s
    assert asked.shown == [shown]
