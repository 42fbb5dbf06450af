"""Objectives computed by hand: weights, the start of delays, constants, orders, and the solver's integers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from ortools.constraint_solver import pywrapcp

from cpsched.dispatchers.cp.cp_objective import (
    OBJECTIVES,
    IntegerDelayCosts,
    WeightedDelayObjective,
    expected_wait_by_job_s,
    job_areas,
    sort_by_priority_rule,
)
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.model import Snapshot
from tests.builders import a_cluster, a_job, a_snapshot

WAITS = ExpectedQueueWaits({"short": 10, "long": 40})
"""Of a queue without a name, nothing is known: one second."""


def a_round(now_s: int = 100) -> Snapshot:
    """Two jobs: of 4 s and 3 x 2 cores, which waits for 60 s; of 50 s and one core, which waits for 20 s."""
    queue = [
        a_job(1, units=3, per_unit=2, walltime_s=4, submit_s=40, queue="short"),
        a_job(2, units=1, per_unit=1, walltime_s=50, submit_s=80, queue="long"),
    ]
    return a_snapshot(a_cluster(), queue, now_s=now_s)


BY_HAND = {
    "slowdown": ([1 / 4, 1 / 50], [100, 100], 60 / 4 + 20 / 50 + 2),
    "late": ([1 / 10, 1 / 40], [100, 120], 50 / 10),
    "weighted-wait": ([4.0, 1.0], [100, 100], 4 * 60 + 20),
    "wait": ([1.0, 1.0], [100, 100], 80),
    "af": ([1 / 2, 1 / 2], [100, 100], 40 + 27),
    "awf": ([24 / 74, 50 / 74], [100, 100], (24 * 64 + 50 * 70) / 74),
    "bsld": ([1 / 20, 1 / 100], [100, 100], (64 / 10 + 70 / 50) / 2),
}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_computes_each_objective(name: str) -> None:
    snapshot = a_round()
    weight, since_s, constant = BY_HAND[name]
    found = OBJECTIVES[name](snapshot, snapshot.queue, WAITS)
    assert (found.weight.tolist(), found.since_s.tolist()) == (pytest.approx(weight), since_s)
    assert found.constant == pytest.approx(constant)


@pytest.mark.parametrize(
    ("estimate_s", "since_s", "weight", "constant"),
    [
        (9, 101, 1 / 10, 1.0),
        (10, 100, 1 / 10, 1.0),
        (11, 100, 1 / 11, 1.0),
        (1, 109, 1 / 10, 1.0),
        (20, 100, 1 / 20, 1.0),
    ],
)
def test_bounded_slowdown_counts_after_10_seconds(
    estimate_s: int, since_s: int, weight: float, constant: float
) -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(walltime_s=estimate_s, submit_s=100)], now_s=100)
    found = OBJECTIVES["bsld"](snapshot, snapshot.queue, WAITS)
    assert (found.since_s.tolist(), found.constant) == ([since_s], pytest.approx(constant))
    assert found.weight.tolist() == [pytest.approx(weight)]


@pytest.mark.parametrize(
    ("submit_s", "since_s", "constant"), [(85, 100, 0.5), (90, 100, 0.0), (91, 101, 0.0), (100, 110, 0.0)]
)
def test_job_is_late_after_expected_wait_of_queue(submit_s: int, since_s: int, constant: float) -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(submit_s=submit_s, queue="short")], now_s=100)
    found = OBJECTIVES["late"](snapshot, snapshot.queue, WAITS)
    assert (found.since_s.tolist(), found.constant) == ([since_s], pytest.approx(constant))


def test_delay_costs_weight_per_second_once_it_counts() -> None:
    objective = WeightedDelayObjective(np.array([2.0, 0.5]), np.array([10, 20]), 7.0)
    starts = {(0, 0): 0.0, (10, 20): 0.0, (11, 20): 2.0, (10, 21): 0.5, (9, 22): 1.0, (13, 24): 8.0, (0, 30): 5.0}
    for start_s, cost in starts.items():
        assert plan_delay_cost(objective, np.array(start_s)) == cost


def test_area_is_positive_cores_times_estimate() -> None:
    queue = [a_job(1, units=3, per_unit=(2, 5), walltime_s=7), a_job(2, units=2, per_unit=(0, 5), walltime_s=7)]
    snapshot = a_snapshot(a_cluster(memory=20), queue)
    assert job_areas(snapshot, snapshot.queue).tolist() == [42.0, 1.0]


def test_expected_wait_depends_on_queue() -> None:
    queue = [a_job(id, queue=name) for id, name in enumerate(("long", "short", "", "long"), 1)]
    snapshot = a_snapshot(a_cluster(), queue)
    assert expected_wait_by_job_s(snapshot, snapshot.queue, WAITS).tolist() == [40.0, 10.0, 1.0, 40.0]
    assert expected_wait_by_job_s(snapshot, snapshot.queue[[1, 3]], WAITS).tolist() == [10.0, 40.0]


@pytest.mark.parametrize(
    ("name", "ids"), [("none", [1, 2, 3, 4, 5]), ("slowdown", [4, 1, 5, 2, 3]), ("urgency", [1, 3, 5, 2, 4])]
)
def test_sorts_by_each_priority(name: str, ids: list[int]) -> None:
    """Waits of 60, 60, 20, 10 and 60 s; by slowdown jobs 1 and 5 are equal.

    Urgencies are 6.0, 1.5, 2.0, 0.25 and 1.5. Of equal ones, the job with the smaller area comes first.
    """
    queue = [
        a_job(1, walltime_s=60, submit_s=40, queue="short"),
        a_job(2, walltime_s=100, submit_s=40, queue="long", per_unit=2),
        a_job(3, walltime_s=100, submit_s=80, queue="short"),
        a_job(4, walltime_s=5, submit_s=90, queue="long"),
        a_job(5, walltime_s=60, submit_s=40, queue="long"),
    ]
    snapshot = a_snapshot(a_cluster(), queue, now_s=100)
    order = sort_by_priority_rule(name, snapshot, snapshot.queue, WAITS)
    assert [snapshot.table.jobs[slot].id for slot in order.tolist()] == ids


@pytest.mark.parametrize(
    ("weight", "horizon_s", "whole"),
    [
        ([1.0, 1.0], 2**59, (1, 1)),
        ([1.0, 3.0], 2**56, (4, 12)),
        ([1.0, 1000.0], 2**58, (1, 4)),
        ([1.0, 2.0], 10, (10**7, 2 * 10**7)),
        ([0.25, 1.0], 1, (10**7, 4 * 10**7)),
        ([1.0, 2.0], 0, (10**7, 2 * 10**7)),
    ],
)
def test_scales_weights_to_integers_within_60_bits(weight: list[float], horizon_s: int, whole: tuple[int, ...]) -> None:
    scaled = IntegerDelayCosts.from_objective(
        WeightedDelayObjective(np.array(weight), np.array([5, 9]), 0.0), 3, horizon_s
    )
    assert (scaled.weights, scaled.since_s, scaled.now_s) == (whole, (5, 9), 3)
    assert sum(whole) * horizon_s <= 2**61


def test_scaled_value_is_weighted_delay() -> None:
    scaled = IntegerDelayCosts((3, 5), (10, 20), 8)
    assert [scaled.cost_of_plan(np.array(start_s)) for start_s in ((10, 20), (9, 0), (11, 20), (12, 23))] == [
        0,
        0,
        3,
        21,
    ]


@pytest.mark.parametrize(("starts", "cost"), [((0, 0, 0), 0), ((2, 3, 4), 6), ((2, 4, 4), 11), ((1, 9, 7), 3 + 30 + 7)])
def test_solver_counts_delay_once_it_matters(starts: tuple[int, ...], cost: int) -> None:
    """Starts are seconds from now; the second job's delay counts after three seconds, the third one's after six."""
    solver = pywrapcp.Solver("by hand")
    fixed = [solver.IntVar(start, start) for start in starts]
    scaled = IntegerDelayCosts((3, 5, 7), (100, 103, 106), 100)
    found = scaled.build_cost_variable(SimpleNamespace(solver=solver, start=fixed))  # type: ignore[arg-type]
    assert (found.Min(), found.Max()) == (cost, cost)
    assert scaled.cost_of_plan(np.array(starts) + 100) == cost


@pytest.mark.parametrize(("after_s", "start", "cost"), [(0, 1, 2), (1, 0, 0), (1, 1, 0), (1, 2, 2), (2, 1, 0)])
def test_solver_counts_delay_from_first_second(after_s: int, start: int, cost: int) -> None:
    solver = pywrapcp.Solver("by hand")
    found = IntegerDelayCosts((2,), (100 + after_s,), 100).build_cost_variable(
        SimpleNamespace(solver=solver, start=[solver.IntVar(start, start)])  # type: ignore[arg-type]
    )
    assert (found.Min(), found.Max()) == (cost, cost)
