"""Running jobs as a staircase: equivalent to their boxes in a 2D no-overlap constraint, and much smaller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ortools.constraint_solver import pywrapcp

from cpsched.dispatchers.cp import cp_problem, position_model, position_variables
from cpsched.dispatchers.cp.cp_objective import sort_by_slowdown
from cpsched.dispatchers.cp.position_variables import PositionModelVariables, RunningJobRectangles
from cpsched.feasibility import verify
from cpsched.kernels.cp.startable_jobs import startable_slots
from cpsched.model import Cluster, Decision, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import Asking


def a_mix(seed: int) -> Snapshot:
    """Three nodes with one or two running jobs each, and jobs of all kinds that contend for the rest."""
    cluster = a_cluster(nodes=3, cores=4, memory=16)
    running = [
        a_running(a_job(90 + n, per_unit=(1 + n % 2, 4), walltime_s=20 + 9 * n + seed), ((n % 3, 1),)) for n in range(4)
    ]
    queue = [
        a_job(
            i, units=(seed + i) % 2 + 1, per_unit=((seed + i) % 3 + 1, 4 * (i % 3)), walltime_s=10 + 7 * i,
            distinct=i % 2 == 0, exclusive=i == 4,
        )
        for i in range(1, 6)
    ]  # fmt: skip
    return a_snapshot(cluster, queue, running)


def model_of(snapshot: Snapshot) -> PositionModelVariables:
    facts = cp_problem.build_cp_instance(snapshot)
    facts = facts.with_considered_jobs(sort_by_slowdown(snapshot, startable_slots(facts, snapshot.queue, 100)))
    return position_variables.create_position_variables(
        pywrapcp.Solver("test"), facts, 1000, cp_problem.build_first_leaf_plan(facts)
    )


def boxes(*rows: tuple[int, int, int]) -> RunningJobRectangles:
    return RunningJobRectangles(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def test_position_is_free_after_end_of_running_job() -> None:
    """Two nodes of four positions: on the first 2 until 50 s and 1 above them until 9 s; the second is free."""
    model = model_of(a_snapshot(a_cluster(nodes=2, cores=4), [a_job(1), a_job(2, per_unit=4)]))
    found = position_variables.to_running_job_staircase(model, 0, boxes((0, 2, 50), (2, 1, 9)))
    assert found.free_from[found.kind_of].tolist() == [[50, 50, 9, 0], [0, 0, 0, 0]]


def test_nodes_with_equal_stairs_are_one_kind() -> None:
    model = model_of(a_snapshot(a_cluster(nodes=4, cores=4), [a_job(1), a_job(2, per_unit=4)]))
    found = position_variables.to_running_job_staircase(model, 0, boxes((0, 12, 50)))
    assert (found.kind_of.tolist(), found.free_from.tolist()) == ([1, 1, 1, 0], [[0] * 4, [50] * 4])


def test_position_size_is_greatest_common_divisor() -> None:
    """16 GiB nodes, jobs that ask for 4 and 8 GiB: four positions of 4 GiB, not 16,384 of one MiB."""
    cluster = Cluster.of([[4, 16384]] * 2, ["cores", "memory_mib"])
    model = model_of(a_snapshot(cluster, [a_job(1, per_unit=(1, 4096)), a_job(2, per_unit=(2, 8192))]))
    assert (model.grain.tolist(), model.stride.tolist()) == ([1, 4096], [4, 4])


@pytest.mark.parametrize("seed", range(8))
def test_stairs_and_boxes_prove_same_objective(seed: int, mocker) -> None:
    def decided(share: float) -> Decision:
        mocker.patch.object(position_model, "_BOX_PAIR_COST_S", share)
        decision = Asking(effort=8000).decide(snapshot)
        assert verify(decision, snapshot) == []
        return decision

    snapshot = a_mix(seed)
    by_stairs, by_boxes = decided(1e-3), decided(0.0)  # boxes cost much, or nothing: the cheaper form is built
    assert by_stairs.effort.path == by_boxes.effort.path == "solver"
    if by_stairs.effort.status == by_boxes.effort.status == "optimal":
        assert by_stairs.effort.objective == pytest.approx(by_boxes.effort.objective)


def accepted(per_unit: int, node: int, place: int, start_s: int) -> bool:
    """Whether the model takes job 1 there: on node 0 two positions are in use until 50 s and one until 20 s."""
    running = [
        a_running(a_job(8, per_unit=2, walltime_s=50), ((0, 1),)),
        a_running(a_job(9, per_unit=1, walltime_s=20), ((0, 1),)),
    ]
    queue = [a_job(1, per_unit=per_unit, walltime_s=10), a_job(2, per_unit=1, walltime_s=10)]
    model = model_of(a_snapshot(a_cluster(nodes=2, cores=4), queue, running))
    held = {0: position_variables.fixed_running_job_rectangles(model, 0)}
    position_model.post_position_constraints(
        model, held, {0: position_variables.to_running_job_staircase(model, 0, held[0])}
    )
    j = [model.facts.table.per_unit[slot, 0] for slot in model.facts.jobs.tolist()].index(per_unit)
    unit, solver = model.units[j][0], model.solver
    solver.Add(model.start[j] == start_s)
    solver.Add(unit.node == node)
    solver.Add(unit.position[0] == 4 * node + place)
    solver.NewSearch(solver.Phase([model.start[j], unit.node], solver.CHOOSE_FIRST_UNBOUND, solver.ASSIGN_MIN_VALUE))
    return bool(solver.NextSolution())


@pytest.mark.parametrize(
    ("per_unit", "node", "place", "start_s", "right"),
    [
        (4, 0, 0, 49, False),  # whole nodes: an Element over the nodes
        (4, 0, 0, 50, True),
        (4, 1, 0, 0, True),
        (2, 0, 2, 19, False),  # parts of nodes: an Element over the positions
        (2, 0, 2, 20, True),
        (2, 0, 1, 20, False),
        (2, 0, 1, 50, True),
        (2, 1, 0, 0, True),
    ],
)
def test_unit_starts_only_when_positions_are_free(
    per_unit: int, node: int, place: int, start_s: int, right: bool
) -> None:
    """The pool has room for all of these: only the staircase can refuse."""
    assert accepted(per_unit, node, place, start_s) is right


def places(snapshot: Snapshot) -> list[list[tuple[int, int]]]:
    """Of the first unit of each job, the range of its position on the node by resource."""
    model = model_of(snapshot)  # it holds the solver, which holds the places
    return [[(place.Min(), place.Max()) for place in units[0].place.values()] for units in model.units]


def test_unit_that_fills_node_has_fixed_position() -> None:
    """It takes all cores, of which everybody takes some: its memory is at the top. The other chooses in both."""
    snapshot = a_snapshot(a_cluster(2, 4, 16), [a_job(1, per_unit=(4, 5)), a_job(2, per_unit=(3, 6))])
    assert places(snapshot) == [[(0, 0), (11, 11)], [(0, 1), (0, 10)]]


@pytest.mark.parametrize("running", [True, False])
def test_unit_has_position_choice_with_memory_only_job(running: bool) -> None:
    jobs, beside = [a_job(1, per_unit=(4, 5))], a_job(2, per_unit=(0, 1))
    queue, runs = (jobs, [a_running(beside, ((0, 1),))]) if running else ([*jobs, beside], [])
    assert places(a_snapshot(a_cluster(nodes=2, cores=4, memory=16), queue, runs))[0] == [(0, 0), (0, 11)]


@pytest.mark.parametrize("share", [1e-3, 0.0])
def test_unit_alone_on_node_fits_above_unavailable_positions(share: float, mocker) -> None:
    """Of the one node's memory 10 of 16 are out of service: a job of all cores and 6 fits, beside a longer queue."""
    mocker.patch.object(position_model, "_BOX_PAIR_COST_S", share)  # as stairs, then as boxes
    cluster = a_cluster(nodes=1, cores=4, memory=16)
    jobs = [a_job(1, per_unit=(4, 6), walltime_s=50), a_job(2, per_unit=(4, 3), walltime_s=20)]
    snapshot = replace(a_snapshot(cluster, jobs), free=np.array([[4, 6]]))
    decision = Asking(effort=5000).decide(snapshot)
    assert (decision.effort.path, decision.effort.status) == ("solver", "optimal")
    assert decision.plan_by_job(snapshot) == {1: 20, 2: 0}
