"""The relaxation compared with plain references: demands, capacities, and the best plan.

All kernels are called as plain Python, so that nothing is compiled here.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem
from cpsched.feasibility import units_fitting_by_node
from cpsched.kernels.cp import branch_and_bound, relaxation
from cpsched.kernels.cp.branch_and_bound import LEFT_SHIFTED, NO_PLACES
from cpsched.kernels.cp.cp_state import (
    PLACEMENT_COLUMNS,
    BranchAndBoundState,
    CpInstance,
    CpPlan,
    CumulativeRelaxation,
    WeightedDelayObjective,
    empty_plan,
    empty_plan_instant,
)
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.kernels.cp.plan_instant import unit_kinds
from cpsched.kernels.fit_rules import UNBOUNDED
from cpsched.kernels.scheduling_state import build_node_resource_state
from cpsched.model import Cluster, Job, RunningJob, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot, considered, free_beside

branch = branch_and_bound.branch_and_bound.py_func  # type: ignore[attr-defined]
one_by_one = branch_and_bound.interchangeable_bound.py_func  # type: ignore[attr-defined]


def relax(facts: CpInstance, rooms: bool) -> CumulativeRelaxation:
    without_places = relaxation.build_relaxation_columns.py_func  # type: ignore[attr-defined]
    return CumulativeRelaxation(*without_places(facts, empty_plan_instant(facts.machine.capacity), rooms))


def capacities(facts: CpInstance, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return relaxation.capacities_over_time(facts, empty_plan_instant(facts.machine.capacity), shapes, len(shapes))


def tree(
    facts: CpInstance,
    relaxed: CumulativeRelaxation,
    objective: WeightedDelayObjective,
    plan: CpPlan | None = None,
    most: int = 10**6,
    dives: int = NO_PLACES,
) -> tuple[int, bool, float, CpPlan]:
    """Visit the tree; return visited nodes, whether it is exhausted, the bound, and the best plan, first `plan`."""
    best = plan or empty_plan(facts)
    spent, exhausted, bound = branch(
        facts, BranchAndBoundState(relaxed, objective, best, empty_plan(facts)), most, dives
    )
    return int(spent), bool(exhausted), float(bound), best


def a_round(seed: int, jobs: int = 4) -> Snapshot:
    """Three nodes of two sizes, on which others run, and a queue in which every way to share is met."""
    choose = np.random.default_rng(seed)
    cluster = a_cluster(nodes=4, cores=4, memory=8, gpus=[0, 0, 1, 2])

    def one(id: int) -> Job:
        sharing = choose.choice(["", "", "distinct", "exclusive"])
        per_unit = [int(choose.integers(1, 4)), int(choose.integers(0, 5)), int(choose.random() < 0.2)]
        walltime_s = int(choose.integers(5, 60))
        units = 1 if per_unit[2] else int(choose.integers(1, 4))
        return a_job(id, units, per_unit, walltime_s, distinct=sharing == "distinct", exclusive=sharing == "exclusive")

    running = [
        a_running(a_job(90 + n, 1, [int(choose.integers(1, 4)), 2, 0], int(choose.integers(9, 60))), ((n, 1),), 0)
        for n in choose.permutation(4)[: int(choose.integers(1, 4))].tolist()
    ]
    return a_snapshot(cluster, [one(id) for id in range(1, jobs + 1)], running, now_s=7)


def ends(snapshot: Snapshot) -> list[int]:
    return [snapshot.now_s, *sorted({int(snapshot.table.end_s[slot]) for slot in snapshot.running.tolist()})]


def free_at(snapshot: Snapshot, moment_s: int, running: list[RunningJob]) -> np.ndarray:
    """What is free once those have ended that end by then."""
    left = [each for each in running if max(each.start_s + each.job.walltime_s, snapshot.now_s + 1) > moment_s]
    return free_beside(snapshot.cluster, left)


def running_of(snapshot: Snapshot) -> list[RunningJob]:
    table = snapshot.table
    return [
        RunningJob(table.jobs[slot], int(table.start_s[slot]), snapshot.placement_of(slot))
        for slot in snapshot.running.tolist()
    ]


@pytest.mark.parametrize("seed", range(8))
def test_capacities_are_units_per_shape_and_resource_sums(seed: int) -> None:
    snapshot = a_round(seed)
    facts, cluster = considered(snapshot), snapshot.cluster
    shapes, _ = unit_kinds(facts)
    moment_s, capacity = capacities(facts, shapes)
    assert moment_s.tolist() == ends(snapshot)
    requests = [snapshot.table.jobs[slot].request for slot in shapes.tolist()]
    useful = sum(units_fitting_by_node(request, cluster, cluster.capacity) for request in requests) > 0
    for e, at_s in enumerate(moment_s.tolist()):
        free = free_at(snapshot, at_s, running_of(snapshot))
        shared = [
            # As if they could share a node; whole nodes count as one, however many units they take.
            int(np.minimum(units_fitting_by_node(r, cluster, free), 1).sum())
            if r.exclusive
            else int(
                sum(
                    held(r.per_unit, free[n])
                    for n in np.flatnonzero(units_fitting_by_node(r, cluster, cluster.capacity))
                )
            )
            for r in requests
        ]
        assert capacity[e].tolist() == [*shared, *free[useful].sum(axis=0).tolist()]


def held(per_unit: tuple[int, ...], amounts: np.ndarray) -> int:
    return min(int(amounts[r]) // each for r, each in enumerate(per_unit) if each > 0)


def least_drop(snapshot: Snapshot, job: Job, facts: CpInstance, shapes: np.ndarray) -> np.ndarray:
    """Over all places of a job on the empty cluster: by how much each capacity falls, at least."""
    cluster = snapshot.cluster
    most = units_fitting_by_node(job.request, cluster, cluster.capacity)

    def capacity_of(free: np.ndarray) -> np.ndarray:
        nobody = np.empty(0, np.int64)
        machine = build_node_resource_state(cluster, free)
        emptied = CpInstance(facts.now_s, machine, facts.table, facts.jobs, nobody, facts.end_s, nobody, nobody)
        return capacities(emptied, shapes)[1][0]

    whole, drops = capacity_of(cluster.capacity.copy()), []
    for units in itertools.product(*(range(int(each) + 1) for each in most)):
        if sum(units) != job.request.units:
            continue
        placement = tuple((node, count) for node, count in enumerate(units) if count)
        drops.append(whole - capacity_of(free_beside(cluster, [a_running(job, placement)])))
    return np.min(drops, axis=0)


@pytest.mark.parametrize("seed", range(8))
def test_demand_is_lower_bound_for_every_placement(seed: int) -> None:
    snapshot = a_round(seed)
    facts = considered(snapshot)
    shapes, kind_of = unit_kinds(facts)
    demand = relaxation.minimum_demands(facts, shapes, kind_of)
    for j, job in enumerate(snapshot.queued_jobs()):
        assert (demand[j] <= least_drop(snapshot, job, facts, shapes)).all(), j
        if not job.request.exclusive:
            amounts = [job.request.units * each for each in job.request.per_unit]
            assert (demand[j, len(shapes) :].tolist(), demand[j, kind_of[j]]) == (amounts, job.request.units)


@pytest.mark.parametrize(
    ("cluster", "queue", "demands"),
    [
        # Nodes of 4 cores and 8 of memory: what units, and whole nodes, take of the room for each other.
        (a_cluster(nodes=4, cores=4, memory=8),
         [a_job(1, units=3, per_unit=(2, 1)), a_job(2, units=2, per_unit=(1, 4)),
          a_job(3, units=5, per_unit=(2, 2), exclusive=True)],
         # A unit of (2, 1) holds none of (1, 4); two share a node of 4 cores, so three need two nodes of the last.
         # Five units take three whole nodes, each with room for two of either.
         [[3, 0, 0, 6, 3], [0, 2, 0, 2, 8], [6, 6, 3, 12, 24]]),
        # A whole node that is useless to a shape takes nothing of it.
        (a_cluster(nodes=3, cores=4, gpus=[1, 0, 0]),
         [a_job(1, per_unit=(1, 0), exclusive=True), a_job(2, per_unit=(1, 1)), a_job(3, per_unit=(4, 0))],
         [[1, 0, 1, 4, 0], [0, 1, 0, 1, 1], [0, 0, 1, 4, 0]]),
        # A job of whole nodes takes one node per unit here.
        (a_cluster(nodes=3, cores=4), [a_job(1, units=2, per_unit=3, exclusive=True), a_job(2, per_unit=1)],
         [[2, 8, 8], [0, 1, 1]]),
    ],
)  # fmt: skip
def test_computes_demand_of_shape_on_other_shapes(cluster: Cluster, queue: list[Job], demands: list[list[int]]) -> None:
    facts = considered(a_snapshot(cluster, queue))
    assert relaxation.minimum_demands(facts, *unit_kinds(facts)).tolist() == demands


@pytest.mark.parametrize("rooms", [True, False])
def test_keeps_only_resources_that_may_run_short(rooms: bool) -> None:
    queue = [a_job(i, units=2, per_unit=(3, 1)) for i in (1, 2)]
    running = [a_running(a_job(90, per_unit=(1, 1), walltime_s=30), ((0, 1),))]
    found = relax(considered(a_snapshot(a_cluster(nodes=3, cores=4, memory=8), queue, running)), rooms)
    assert found.moment_s.tolist() == [0, 30]
    # Room for 3 units, 4 are wanted; 12 cores are wanted of 11; memory is plenty.
    assert found.demand.tolist() == ([[2, 6], [2, 6]] if rooms else [[6], [6]])
    assert found.capacity.tolist() == ([[3, 11], [3, 12]] if rooms else [[11], [12]])


def test_exactly_sufficient_resources_delay_no_job() -> None:
    queue = [a_job(i, units=2, per_unit=2) for i in (1, 2)]
    assert relax(considered(a_snapshot(a_cluster(nodes=2, cores=4), queue)), True).demand.shape == (2, 0)


def by_hand(relaxed: CumulativeRelaxation, facts: CpInstance, order: tuple[int, ...]) -> np.ndarray:
    """Starts without places of jobs taken in `order`, each as early as it can be: second by second."""
    d, last_s = facts.table.estimate_s[facts.jobs], 2000
    there = relaxed.capacity[np.searchsorted(relaxed.moment_s, np.arange(last_s), side="right") - 1]
    used, start_s = np.zeros_like(there), np.empty(len(order), np.int64)
    for j in order:
        at_s = int(facts.now_s)
        while (used[at_s : at_s + d[j]] + relaxed.demand[j] > there[at_s : at_s + d[j]])[
            :, relaxed.demand[j] > 0
        ].any():
            at_s += 1
        used[at_s : at_s + d[j]] += relaxed.demand[j]
        start_s[j] = at_s
    return start_s


def an_objective(facts: CpInstance, seed: int = 0) -> WeightedDelayObjective:
    choose = np.random.default_rng(seed)
    J = len(facts.jobs)
    return WeightedDelayObjective(choose.random(J) + 0.1, facts.now_s + choose.integers(0, 30, J) * (seed % 2), 0.0)


@pytest.mark.parametrize("dives", [NO_PLACES, LEFT_SHIFTED])
@pytest.mark.parametrize("seed", range(12))
def test_best_relaxed_plan_equals_best_order(seed: int, dives: int) -> None:
    facts = considered(a_round(seed, jobs=5))
    relaxed, objective = relax(facts, True), an_objective(facts, seed)
    spent, exhausted, bound, best = tree(facts, relaxed, objective, most=100_000, dives=dives)
    orders = itertools.permutations(range(len(facts.jobs)))
    least = min(plan_delay_cost(objective, by_hand(relaxed, facts, order)) for order in orders)
    assert (exhausted, bound, plan_delay_cost(objective, best.start_s)) == (True, *[pytest.approx(least)] * 2)
    assert 0 < spent < 100_000


def test_left_shifted_tree_is_smaller_and_equally_good() -> None:
    """Jobs of seconds, equal ones among them (the tree has one branch for their order), some due later."""
    spent = np.zeros(2, np.int64)
    for seed in range(6):
        snapshot = a_round(seed, jobs=5)
        jobs = [dataclasses.replace(job, walltime_s=1 + job.walltime_s % 4) for job in snapshot.queued_jobs()]
        queue = [*jobs, *(dataclasses.replace(jobs[0], id=id) for id in (6, 7))]
        facts = considered(a_snapshot(snapshot.cluster, queue, snapshot.running_jobs(), snapshot.now_s))
        relaxed, objective = relax(facts, True), an_objective(facts, seed)
        objective.weight[5:] = objective.weight[0]
        objective.since_s[5:] = objective.since_s[0]
        found = [tree(facts, relaxed, objective, dives=dives)[:3] for dives in (NO_PLACES, LEFT_SHIFTED)]
        assert [(exhausted, bound) for _, exhausted, bound in found] == [(True, pytest.approx(found[0][2]))] * 2
        spent += [nodes for nodes, *_ in found]
    assert 2 * spent[1] < spent[0]


def test_capacity_at_time_excludes_jobs_started_by_then() -> None:
    facts = considered(a_snapshot(a_cluster(nodes=1), [a_job(1, per_unit=3, walltime_s=10), a_job(2, per_unit=2)]))
    start_s = np.array([20, UNBOUNDED])
    told = [relaxation.fits_relaxation_at(relax(facts, True), facts, start_s, 1, tau) for tau in (19, 20, 29, 30)]
    assert told == [True, False, False, True]


@pytest.mark.parametrize("seed", range(6))
def test_bound_is_below_plan_of_dive(seed: int) -> None:
    facts = considered(a_round(seed, jobs=5))
    relaxed, objective = relax(facts, True), an_objective(facts, seed)
    best = cp_problem.build_first_leaf_plan(facts)
    before, kept = plan_delay_cost(objective, best.start_s), best.start_s.copy()
    without = tree(facts, relaxed, objective)[2]
    _, exhausted, bound, _ = tree(facts, relaxed, objective, best, dives=10**6)
    after = plan_delay_cost(objective, best.start_s)
    assert exhausted
    assert bound <= after <= before
    assert bound == pytest.approx(min(without, after))
    assert after < before or (best.start_s == kept).all()
    units = [int(best.units[best.first[j] : best.first[j] + best.parts[j]].sum()) for j in range(len(facts.jobs))]
    assert units == facts.table.units[facts.jobs].tolist()


def test_unexhausted_tree_proves_nothing() -> None:
    facts = considered(a_round(3, jobs=5))
    relaxed, objective = relax(facts, True), an_objective(facts)
    first_leaf = cp_problem.build_first_leaf_plan(facts)
    assert tree(facts, relaxed, objective, first_leaf)[0] > 5
    assert tree(facts, relaxed, objective, most=5)[:3] == (5, False, 0.0)
    assert tree(facts, relaxed, objective, dives=0)[:3] == (0, False, 0.0)
    assert tree(facts, relaxed, objective, dives=1)[:3] == (len(facts.jobs) + 1, False, 0.0), "then no dive is left"


def test_copied_plan_is_equal_and_independent() -> None:
    facts = considered(a_round(1))
    source, target = cp_problem.build_first_leaf_plan(facts), empty_plan(facts)
    branch_and_bound.copy_plan(target, source)
    for name in PLACEMENT_COLUMNS:
        assert (getattr(target, name) == getattr(source, name)).all(), name
    target.start_s[:] = -1
    assert (source.start_s >= 0).all()


def test_groups_indistinguishable_jobs() -> None:
    queue = [
        a_job(1, units=2, per_unit=1), a_job(2, units=1, per_unit=1), a_job(3, units=2, per_unit=1),
        a_job(4, units=2, per_unit=2), a_job(5, units=2, per_unit=1, walltime_s=7), a_job(6, units=2, per_unit=1),
        a_job(7, units=2, per_unit=1), a_job(8, units=2, per_unit=1),
    ]  # fmt: skip
    facts = considered(a_snapshot(a_cluster(), queue))
    weight, since_s = np.ones(8), np.zeros(8, np.int64)
    weight[5], since_s[6] = 2.0, 9
    objective = WeightedDelayObjective(weight, since_s, 0.0)
    assert branch_and_bound.first_identical_job_of_each(facts, objective).tolist() == [0, 1, 0, 3, 4, 5, 6, 0]


def test_postponed_job_postpones_equal_jobs() -> None:
    earliest = np.array([3, 8, 9, 2])
    branch_and_bound.break_symmetry(np.array([0, 1, 1, 1]), earliest, 1)
    assert earliest.tolist() == [3, 8, 9, 8]


@pytest.mark.parametrize("seed", range(12))
def test_sequence_is_best_plan_of_equal_jobs(seed: int) -> None:
    choose = np.random.default_rng(seed)
    running = [
        a_running(a_job(90 + n, per_unit=int(choose.integers(1, 4)), walltime_s=int(choose.integers(5, 60))), ((n, 1),))
        for n in range(3)
    ]
    queue = [a_job(i, units=2, per_unit=2, walltime_s=20) for i in range(1, 6)]
    facts = considered(a_snapshot(a_cluster(nodes=3, cores=5), queue, running, now_s=2))
    relaxed = relax(facts, True)
    objective = WeightedDelayObjective(np.full(5, 0.5), np.full(5, 2 + 7 * (seed % 3)), 0.0)
    assert one_by_one(facts, relaxed, objective) == pytest.approx(
        plan_delay_cost(objective, by_hand(relaxed, facts, (0, 1, 2, 3, 4)))
    )


def test_sequence_bounds_nothing_for_different_jobs() -> None:
    queue = [a_job(1, per_unit=2), a_job(2, per_unit=2, walltime_s=3)]
    facts = considered(a_snapshot(a_cluster(nodes=1, cores=2), queue))
    assert one_by_one(facts, relax(facts, True), an_objective(facts)) == 0.0


def test_impossible_jobs_have_no_bound() -> None:
    facts = considered(a_snapshot(a_cluster(nodes=1, cores=2), [a_job(1, units=2, per_unit=2)]))
    facts = facts.with_considered_jobs(np.array([0]))
    objective = WeightedDelayObjective(np.ones(1), np.zeros(1, np.int64), 0.0)
    assert one_by_one(facts, CumulativeRelaxation(np.array([0]), np.array([[1]]), np.array([[2]])), objective) == 0.0
