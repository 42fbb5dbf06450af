"""Rounds in which all units are equal: slots instead of positions give the same proof without places."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.dispatchers.cp import search_control
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.pool_model import are_all_units_identical
from cpsched.feasibility import verify
from cpsched.model import Cluster, Decision, Job, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot, considered
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


@pytest.mark.parametrize(
    ("jobs", "cluster", "identical"),
    [
        ([a_job(1, per_unit=2), a_job(2, units=3, per_unit=2, walltime_s=7)], None, True),
        ([a_job(1, per_unit=2), a_job(2, per_unit=1)], None, False),
        # Distinct units use slots only if a node holds one, exclusive ones only with equal nodes.
        ([a_job(1, per_unit=4, distinct=True)], None, False),
        ([a_job(1, per_unit=5, distinct=True)], None, True),
        ([a_job(1, per_unit=2, exclusive=True)], None, False),
        ([a_job(1, per_unit=2, exclusive=True)], a_cluster(nodes=2, cores=4), True),
    ],
)
def test_equal_units_use_slots(jobs: list[Job], cluster: Cluster | None, identical: bool) -> None:
    snapshot = a_snapshot(cluster or Cluster.of([[4], [8]], ["cores"]), jobs)
    assert are_all_units_identical(considered(snapshot)) is identical


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


def test_many_equal_jobs_have_certain_answer() -> None:
    """Thirty jobs of 2 nodes on 5: the tree over them has no end in sight, and what they cost is known at once."""
    queue = [a_job(i, units=2, per_unit=4, walltime_s=50) for i in range(1, 31)]
    running = [a_running(a_job(90, per_unit=4, walltime_s=70), ((0, 1),))]
    decision = ConstraintDispatcher().decide(a_snapshot(a_cluster(nodes=5, cores=4), queue, running))
    assert (decision.effort.path, decision.effort.status) == ("bound-met", "optimal")
