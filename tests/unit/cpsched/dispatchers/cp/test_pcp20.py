"""PCP'20 on instances small enough to check by hand."""

from __future__ import annotations

import pytest

from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.feasibility import verify
from cpsched.model import Cluster, Decision, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot

PLENTY = 20_000
"""Branches, more than the small instances need."""


def decided(snapshot: Snapshot, effort: int = PLENTY) -> Decision:
    decision = ConstraintDispatcher(effort=effort).decide(snapshot)
    assert verify(decision, snapshot) == []
    return decision


def started(snapshot: Snapshot, effort: int = PLENTY) -> set[int]:
    return set(decided(snapshot, effort).starts_by_job(snapshot))


@pytest.mark.parametrize(
    ("snapshot", "path", "plan"),
    [
        (a_snapshot(a_cluster(1), [a_job(2, per_unit=3)], [a_running(a_job(1, per_unit=2), ((0, 1),))]),
         "nothing-fits", {}),
        (a_snapshot(a_cluster(2), [a_job(i, per_unit=2) for i in range(1, 5)]), "all-fit", {1: 0, 2: 0, 3: 0, 4: 0}),
        # The bound avoids the solver if places do not matter.
        (a_snapshot(a_cluster(2), [a_job(1, units=2, per_unit=4), a_job(2, units=2, per_unit=4, walltime_s=50)]),
         "bound-met", {2: 0, 1: 50}),
        # Job 1 leaves 2 cores on each node, job 2 wants 3 on one; in sum there is room for both.
        (a_snapshot(a_cluster(2), [a_job(1, units=2, per_unit=2, walltime_s=50, distinct=True),
                                   a_job(2, per_unit=3, walltime_s=40)]), "solver", {2: 0, 1: 40}),
        # Two jobs of 1 run beside a hole of 2; they are stacked again, so that a unit of 2 fits.
        (a_snapshot(a_cluster(1), [a_job(1, per_unit=2), a_job(2, per_unit=2, walltime_s=50)],
                    [a_running(a_job(8 + i, walltime_s=100 + i), ((0, 1),)) for i in range(2)]),
         "bound-met", {2: 0, 1: 50}),
        # The policy's overrun rule moved the end: an estimate of 10 s, doubled until it covers the 100 s so far.
        (a_snapshot(a_cluster(1), [a_job(1, per_unit=2, walltime_s=500, submit_s=90),
                                   a_job(2, per_unit=2, walltime_s=1000, submit_s=90)],
                    [a_running(a_job(9, per_unit=2, walltime_s=10), ((0, 1),))], 100, {9: 160}),
         "bound-met", {1: 100, 2: 160}),
    ],
)  # fmt: skip
def test_plans_best_starts_by_cheapest_path(snapshot: Snapshot, path: str, plan: dict[int, int]) -> None:
    decision = decided(snapshot)
    assert (decision.effort.path, decision.plan_by_job(snapshot)) == (path, plan)
    assert (decision.effort.branches > 0) is (path == "solver")


def test_first_dive_uses_highest_priority_and_node() -> None:
    """Job 2 has waited longest for its length; each unit goes to the highest node with room (best fit of pcp20)."""
    cluster = a_cluster(nodes=3, cores=4)
    queue = [a_job(1, units=2, per_unit=3, walltime_s=100, submit_s=0), a_job(2, units=2, per_unit=2, walltime_s=10)]
    decision = decided(snapshot := a_snapshot(cluster, queue, now_s=50))
    assert decision.starts_by_job(snapshot) == {2: ((2, 2),), 1: ((0, 1), (1, 1))}


def test_whole_node_plan_uses_each_of_different_nodes() -> None:
    """The search may swap a small node for one that holds all units: the other nodes keep one unit each."""
    cluster = Cluster.of([[3, 2], [3, 2], [2, 2]], ["cores", "memory"], node_sets={"front": [0, 1]})
    queue = [
        a_job(1, units=2, per_unit=(1, 0), node_set=1, walltime_s=2),
        a_job(2, units=1, per_unit=(1, 0), exclusive=True, walltime_s=2),
        a_job(3, units=3, per_unit=(1, 2), walltime_s=2),
        a_job(4, units=2, per_unit=(1, 0), walltime_s=3),
        a_job(5, units=3, per_unit=(1, 0), exclusive=True, walltime_s=1),
    ]
    assert {2, 5} <= started(a_snapshot(cluster, queue, now_s=10), effort=400)


def test_considers_only_first_fitting_jobs() -> None:
    queue = [a_job(i, per_unit=4) for i in range(1, 6)]
    snapshot = a_snapshot(a_cluster(nodes=1), queue)
    decision = ConstraintDispatcher(effort=PLENTY, considered=2).decide(snapshot)
    assert (decision.effort.considered, set(decision.plan_by_job(snapshot))) == (2, {1, 2})


def test_counts_variables_like_the_paper() -> None:
    """|Q| + sum of rn_i * |R|, whatever the number of nodes."""
    for nodes in (2, 50):
        cluster = a_cluster(nodes=nodes, cores=4, memory=8)
        queue = [a_job(1, units=2 * nodes, per_unit=(2, 1)), a_job(2, units=3, per_unit=(2, 1))]
        assert decided(a_snapshot(cluster, queue)).effort.variables == 2 + (2 * nodes + 3) * 2


def test_effort_limits_search() -> None:
    queue = [
        a_job(i, units=i % 3 + 1, per_unit=i % 2 + 2, walltime_s=10 * i, distinct=i % 2 == 0) for i in range(1, 12)
    ]
    snapshot = a_snapshot(a_cluster(nodes=3), queue)
    few, many = decided(snapshot, 16).effort, decided(snapshot, 2000).effort
    assert few.path == many.path == "solver"
    assert few.branches <= 20 < many.branches
    assert many.objective <= few.objective


def test_falls_back_to_dive_if_limit_is_too_short() -> None:
    queue = [a_job(i, units=2, per_unit=i, walltime_s=50, distinct=True) for i in (2, 3)]
    snapshot = a_snapshot(a_cluster(nodes=2), [*queue, a_job(1, per_unit=3, walltime_s=40)])
    decision = ConstraintDispatcher(limit_s=0.0005).decide(snapshot)
    assert verify(decision, snapshot) == []
    assert (decision.effort.path, decision.effort.status) == ("dive", "unverified")
    assert len(decision.starts) > 0
