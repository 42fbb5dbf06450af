"""The parts of a model: ends of running jobs, the horizon, the order of nodes, and empty plans."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.cp_problem import CpProblem, Running
from cpsched.dispatchers.cp.presolve import is_infeasible
from cpsched.kernels.cp.cp_state import PLACEMENT_COLUMNS, WeightedDelayObjective, empty_plan
from cpsched.kernels.cp.startable_jobs import startable_slots
from cpsched.model import Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot, considered


def overdue() -> Snapshot:
    """At second 50: jobs that should have ended at 30, at 90, and right now; two wait."""
    running = [a_running(a_job(7 + n, walltime_s=s), ((n, 1),)) for n, s in enumerate((30, 90, 50))]
    return a_snapshot(a_cluster(), [a_job(1, walltime_s=20), a_job(2, units=3, walltime_s=40)], running, now_s=50)


def ids(snapshot: Snapshot, slots: np.ndarray) -> list[int]:
    return [snapshot.table.jobs[slot].id for slot in slots.tolist()]


@pytest.mark.parametrize(
    ("how", "ends", "order"),
    [
        ((), [51, 51, 90], [7, 9, 8]),
        (("at-least-1s",), [51, 51, 90], [7, 9, 8]),
        (("remaining",), [30, 50, 90], [7, 9, 8]),
    ],
)
def test_overdue_running_job_has_ended_or_has_1_second(
    how: tuple[Running, ...], ends: list[int], order: list[int]
) -> None:
    snapshot = overdue()
    before = snapshot.table.end_s.copy()
    facts = cp_problem.build_cp_instance(snapshot, *how)
    assert (facts.end_s[facts.running].tolist(), ids(snapshot, facts.running)) == (ends, order)
    assert snapshot.table.end_s.tolist() == before.tolist(), "the snapshot stays as it is"


def test_sorts_assumed_ends_by_time_not_by_remaining_seconds() -> None:
    """With a second left at least, both overdue jobs end at 51."""
    running = [a_running(a_job(id, walltime_s=s), ((node, 1),)) for node, (id, s) in enumerate(((7, 40), (8, 30)))]
    snapshot = a_snapshot(a_cluster(), [a_job(1)], running, now_s=50)
    assert ids(snapshot, cp_problem.build_cp_instance(snapshot, "at-least-1s").running) == [7, 8]
    facts = cp_problem.build_cp_instance(snapshot, "remaining")
    assert (ids(snapshot, facts.running), facts.end_s[facts.running].tolist()) == ([8, 7], [30, 40])


def test_considered_jobs_keep_given_order() -> None:
    snapshot = overdue()
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue[::-1].copy())
    assert ids(snapshot, facts.jobs) == [2, 1]


def a_problem(snapshot: Snapshot, considered: int = 1, running: Running = "at-least-1s") -> CpProblem:
    facts = cp_problem.build_cp_instance(snapshot, running)
    jobs, rest = snapshot.queue[:considered], snapshot.queue[considered:]
    nothing = WeightedDelayObjective(np.ones(considered), np.zeros(considered, np.int64), 0.0)
    return CpProblem(facts.with_considered_jobs(jobs), nothing, rest, overdue=False)


@pytest.mark.parametrize(("considered", "running", "horizon_s"), [
    (1, "at-least-1s", 20 + 40 + 1 + 1 + 40),
    (2, "at-least-1s", 60 + 1 + 1 + 40),
    (1, "remaining", 20 + 40 - 20 + 0 + 40),
    (2, "remaining", 60 - 20 + 0 + 40),
])  # fmt: skip
def test_horizon_is_sum_of_all_run_times(considered: int, running: Running, horizon_s: int) -> None:
    assert a_problem(overdue(), considered, running).horizon_s == horizon_s


@pytest.mark.parametrize(
    ("start_s", "holds"), [((50, 50), True), ((112, 92), True), ((113, 92), True), ((132, 112), True),
                           ((133, 112), False), ((132, 113), False), ((500, 500), False)]
)  # fmt: skip
def test_plan_is_valid_if_all_jobs_end_within_horizon(start_s: tuple[int, int], holds: bool) -> None:
    """The horizon is second 152; the jobs run 20 and 40 s."""
    problem = a_problem(overdue(), 2)
    assert problem.horizon_s == 102
    assert problem.fits_horizon(np.array(start_s)) is holds


@pytest.mark.parametrize(("by_s", "no_solution"), [(0, False), (9, False), (10, False), (11, True), (50, True)])
def test_job_longer_than_horizon_has_no_start(by_s: int, no_solution: bool) -> None:
    """Two jobs of 10 and 40 s: the horizon of 50 s, less what the running job is overdue, must hold the longer one."""
    running = [a_running(a_job(9, walltime_s=100 - by_s), ((0, 1),))]
    queue = [a_job(1, walltime_s=10), a_job(2, walltime_s=40)]
    snapshot = a_snapshot(a_cluster(nodes=1), queue, running, now_s=100)
    assert is_infeasible(a_problem(snapshot, 2, "remaining")) is no_solution


@pytest.mark.parametrize(
    ("amounts", "rest", "no_solution"),
    [((4, 2, 2), 2, False), ((4, 3, 2), 2, True), ((4, 3, 2), 1, False), ((4, 3, 2), 0, False), ((1, 4), 1, False)],
)
def test_unsearched_jobs_must_fit_together(amounts: tuple[int, ...], rest: int, no_solution: bool) -> None:
    queue = [a_job(id, per_unit=amount) for id, amount in enumerate(amounts, 1)]
    assert is_infeasible(a_problem(a_snapshot(a_cluster(nodes=1), queue), len(queue) - rest)) is no_solution


def test_empty_plan_has_space_for_every_unit() -> None:
    snapshot = a_snapshot(a_cluster(memory=8), [a_job(1, units=3, per_unit=(1, 1)), a_job(2, units=2, per_unit=(1, 1))])
    plan = empty_plan(considered(snapshot))
    assert (plan.start_s.tolist(), plan.first.tolist(), plan.parts.tolist()) == ([-1, -1], [0, 3, 5], [0, 0])
    assert (len(plan.node), len(plan.units), plan.y.shape, plan.dy.shape) == (5, 5, (5, 2), (5, 2))
    assert not any(column.any() for column in (plan.node, plan.units, plan.y, plan.dy))


def test_copied_plan_is_independent() -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(1, units=3)])
    plan = cp_problem.build_first_leaf_plan(considered(snapshot))
    other = plan.copy()
    other.start_s[0] = 77
    assert plan.start_s.tolist() == [0]
    for name in ("first", *PLACEMENT_COLUMNS[1:]):
        assert getattr(plan, name).tolist() == getattr(other, name).tolist(), name


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_bounds_number_of_considered_jobs(most: int) -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(1), a_job(2, per_unit=9), a_job(3), a_job(4)])
    found = startable_slots(cp_problem.build_cp_instance(snapshot), snapshot.queue, most)
    assert ids(snapshot, found) == [1, 3, 4][:most]
