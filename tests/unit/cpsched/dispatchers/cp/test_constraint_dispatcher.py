"""The inputs of a constraint dispatcher's parts, and starts blocked by a running job."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from pytest_mock import MockerFixture

from cpsched.dispatchers.cp import search_control
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher, postpone_infeasible_starts
from cpsched.dispatchers.cp.cp_dispatcher_config import VALUE_MEANINGS, CpDispatcherConfig, RestartSearchLimits
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.errors import InvalidValue
from cpsched.kernels.cp.cp_state import empty_plan
from cpsched.model import Effort, EndedJob
from tests.builders import a_cluster, a_job, a_running, a_snapshot, considered
from tests.searches import Asking


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
    mocker: MockerFixture, queue: list[Any], running: list[Any], path: str, jobs: str
) -> None:
    improve = mocker.patch.object(search_control, "improve_plan")
    settings = {"jobs": jobs, **({"allocation": "best-fit"} if jobs != "startable" else {})}
    decision = Asking(certain=True, **settings).decide(a_snapshot(a_cluster(), queue, running))
    assert (decision.effort.path, len(decision.starts), improve.called) == (path, 0, False)


LATE = CpSolveResult(None, "late", False, 0.0, "unknown", 0.5, 77)


def test_passes_default_limits(mocker: MockerFixture) -> None:
    improve = mocker.patch.object(search_control, "improve_plan", return_value=LATE)
    queue = [a_job(id, per_unit=4, walltime_s=id) for id in range(1, 151)]
    ConstraintDispatcher().decide(a_snapshot(a_cluster(), queue, [a_running(a_job(999, walltime_s=50), ((0, 1),))]))
    problem, _, _, limit, _ = improve.call_args.args
    assert limit == RestartSearchLimits(16.0, 0.01, 2, None, 0.25, "stops", seed=0)
    assert len(problem.facts.jobs) == 100


def test_solver_without_plan_reports_cost_and_starts_one_job(mocker: MockerFixture) -> None:
    mocker.patch.object(search_control, "improve_plan", return_value=LATE)
    snapshot = a_snapshot(a_cluster(), [a_job(1), a_job(2)])
    effort = (decision := Asking().decide(snapshot)).effort
    assert (effort.path, effort.status, effort.considered, effort.branches) == ("late-alone", "unknown", 2, 77)
    assert (effort.solver_s, effort.variables > 0) == (0.5, True)
    assert set(decision.starts_by_job(snapshot)) == {1}


# ------------------------------------------------------------------------------------- what overdue jobs still hold


def test_counts_starts_blocked_by_overdue_job() -> None:
    """Two cores of each of two nodes are held. The plan starts a job of two cores, one of three, one of two units."""
    running = [a_running(a_job(90 + n, per_unit=2), ((n, 1),)) for n in range(2)]
    queue = [a_job(1, per_unit=2), a_job(2, per_unit=3), a_job(3, units=2, per_unit=1), a_job(4, per_unit=1)]
    snapshot = a_snapshot(a_cluster(nodes=2), queue, running, now_s=100)
    facts = considered(snapshot)
    plan = empty_plan(facts)
    plan.start_s[:] = (100, 100, 100, 130)
    plan.parts[:] = (1, 1, 2, 1)
    plan.node[:] = (1, 0, 0, 0, 1)
    plan.units[:] = 1
    plan.dy[:, 0] = (2, 3, 1, 1, 1)
    found, effort = postpone_infeasible_starts(snapshot, facts, plan, Effort("solver"))
    assert found.start_s.tolist() == [100, 101, 100, 130]
    assert (effort.unplaced, effort.path) == (1, "solver")


@pytest.mark.parametrize(("units", "start_s", "unplaced"), [(2, 100, 0), (3, 101, 1)])
def test_rejects_one_unit_more_than_node_holds(units: int, start_s: int, unplaced: int) -> None:
    running = [a_running(a_job(9, per_unit=2), ((0, 1),))]
    snapshot = a_snapshot(a_cluster(nodes=2), [a_job(1, units=units)], running, now_s=100)
    facts = considered(snapshot)
    plan = empty_plan(facts)
    plan.start_s[:], plan.parts[:], plan.units[:], plan.dy[:] = 100, units, 1, 1
    found, effort = postpone_infeasible_starts(snapshot, facts, plan, Effort("solver"))
    assert (found.start_s.tolist(), effort.unplaced) == ([start_s], unplaced)


def test_every_recipe_value_is_documented() -> None:
    hints = get_type_hints(CpDispatcherConfig)
    assert {part: set(words) for part, words in VALUE_MEANINGS.items()} == {
        part: set(get_args(hints[part])) for part in VALUE_MEANINGS
    }


@pytest.mark.parametrize(("overdue_s", "shown"), [(0, True), (40, False)])
def test_does_not_show_plan_beyond_shortened_horizon(mocker: MockerFixture, overdue_s: int, shown: bool) -> None:
    """Two jobs of 50 s one after the other end at second 100; the horizon is that, less what is overdue."""
    improve = mocker.patch.object(search_control, "improve_plan", return_value=LATE)
    running = [a_running(a_job(9, walltime_s=100 - overdue_s), ((1, 1),))]
    queue = [a_job(id, units=4, per_unit=3, walltime_s=50) for id in (1, 2)]
    snapshot = a_snapshot(a_cluster(nodes=4), queue, running, now_s=100)
    Asking(allocation="nodes", running="remaining").decide(snapshot)
    problem, *_, was_shown = improve.call_args.args
    assert (problem.horizon_s, was_shown) == (100 - overdue_s, shown)
