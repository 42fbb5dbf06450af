"""Rounds in which all units are equal: slots instead of positions give the same proof without places."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem, search_control
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.cp_objective import slowdown_objective
from cpsched.dispatchers.cp.slot_model import are_all_units_identical
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.feasibility import verify
from cpsched.kernels.cp.branch_and_bound import NO_PLACES, branch_and_bound, interchangeable_bound
from cpsched.kernels.cp.cp_state import BranchAndBoundState, empty_plan
from cpsched.kernels.cp.relaxation import build_relaxation
from cpsched.model import Cluster, Decision, Job, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import Asking


def a_round(seed: int, **sharing: bool) -> Snapshot:
    """Nodes of 5 and 8 positions, of which others hold some; jobs of several units of 2 contend for the rest."""
    random = np.random.default_rng(seed)
    cluster = Cluster.of([[5], [8], [5]], ["cores"])
    running = [
        a_running(a_job(90 + n, per_unit=int(random.integers(1, 4)), walltime_s=int(random.integers(5, 60))), ((n, 1),))
        for n in range(3)
    ]
    queue = [
        a_job(
            i, units=int(random.integers(1, 4)), per_unit=2, walltime_s=int(random.integers(5, 60)), **sharing
        )
        for i in range(1, 5)
    ]  # fmt: skip
    return a_snapshot(cluster, queue, running)


def considered(*jobs: Job, cluster: Cluster | None = None) -> bool:
    snapshot = a_snapshot(cluster or Cluster.of([[4], [8]], ["cores"]), list(jobs))
    return are_all_units_identical(cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue))


def test_equal_units_of_any_count_and_time_use_slots() -> None:
    assert considered(a_job(1, per_unit=2), a_job(2, units=3, per_unit=2, walltime_s=7))


def test_units_of_different_amounts_use_no_slots() -> None:
    assert not considered(a_job(1, per_unit=2), a_job(2, per_unit=1))


def test_distinct_units_use_slots_only_if_node_holds_one() -> None:
    assert not considered(a_job(1, per_unit=4, distinct=True))
    assert considered(a_job(1, per_unit=5, distinct=True))


def test_exclusive_units_use_slots_only_with_equal_nodes() -> None:
    assert not considered(a_job(1, per_unit=2, exclusive=True))
    assert considered(a_job(1, per_unit=2, exclusive=True), cluster=a_cluster(nodes=2, cores=4))


@pytest.mark.parametrize("seed", range(12))
def test_slots_and_positions_prove_same_objective(seed: int, mocker) -> None:
    def decided(by_slots: bool) -> Decision:
        mocker.patch.object(
            search_control, "are_all_units_identical", are_all_units_identical if by_slots else lambda facts: False
        )
        decision = Asking(effort=20_000).decide(snapshot)
        assert verify(decision, snapshot) == []
        return decision

    snapshot = a_round(seed)
    slots, positions = decided(by_slots=True), decided(by_slots=False)
    assert (slots.effort.path, slots.effort.status) == ("solver", "optimal")
    assert positions.effort.status == "optimal"
    assert slots.effort.objective == pytest.approx(positions.effort.objective)


@pytest.mark.parametrize("seed", range(12))
def test_knows_best_plan_of_interchangeable_jobs(seed: int) -> None:
    """One after the other: what the tree without places proves, where it is small enough to be exhausted."""
    random = np.random.default_rng(seed)
    running = [
        a_running(a_job(90 + n, per_unit=int(random.integers(1, 4)), walltime_s=int(random.integers(5, 60))), ((n, 1),))
        for n in range(3)
    ]
    queue = [a_job(i, units=2, per_unit=2, walltime_s=20) for i in range(1, 6)]
    snapshot = a_snapshot(a_cluster(nodes=3, cores=5), queue, running)
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
    relaxed = build_relaxation(facts, True)
    objective = slowdown_objective(snapshot, facts.jobs, ExpectedQueueWaits(None))
    plan, trial = cp_problem.build_first_leaf_plan(facts), empty_plan(facts)
    _, exhausted, bound = branch_and_bound(
        facts, BranchAndBoundState(relaxed, objective, plan, trial), 1_000_000, NO_PLACES
    )
    assert exhausted
    assert interchangeable_bound(facts, relaxed, objective) == pytest.approx(bound)


def test_knows_no_bound_for_different_jobs() -> None:
    snapshot = a_snapshot(a_cluster(nodes=1, cores=2), [a_job(1, per_unit=2), a_job(2, per_unit=2, walltime_s=3)])
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
    objective = slowdown_objective(snapshot, facts.jobs, ExpectedQueueWaits(None))
    assert interchangeable_bound(facts, build_relaxation(facts, True), objective) == 0.0


def test_many_equal_jobs_have_certain_answer() -> None:
    """Thirty jobs of 2 nodes on 5: the tree over them has no end in sight, and what they cost is known at once."""
    queue = [a_job(i, units=2, per_unit=4, walltime_s=50) for i in range(1, 31)]
    running = [a_running(a_job(90, per_unit=4, walltime_s=70), ((0, 1),))]
    decision = ConstraintDispatcher().decide(a_snapshot(a_cluster(nodes=5, cores=4), queue, running))
    assert (decision.effort.path, decision.effort.status) == ("bound-met", "optimal")
