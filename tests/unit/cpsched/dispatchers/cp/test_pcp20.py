"""PCP'20 on instances small enough to check by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.errors import InvalidValue
from cpsched.feasibility import verify
from cpsched.model import Cluster, Decision, PendingCode, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot

PLENTY = 20_000
"""Branches, more than the small instances need."""


def decided(snapshot: Snapshot, effort: int = PLENTY) -> Decision:
    decision = ConstraintDispatcher(effort=effort).decide(snapshot)
    assert verify(decision, snapshot) == []
    return decision


def started(snapshot: Snapshot, effort: int = PLENTY) -> set[int]:
    return set(decided(snapshot, effort).starts_by_job(snapshot))


def test_considers_no_job_if_nothing_fits() -> None:
    cluster = a_cluster(nodes=1, cores=4)
    snapshot = a_snapshot(cluster, [a_job(2, per_unit=3)], [a_running(a_job(1, per_unit=2), ((0, 1),))])
    decision = decided(snapshot)
    assert decision.effort.path == "nothing-fits"
    assert decision.plan_by_job(snapshot) == {}
    assert decision.waits[2].reason.code is PendingCode.RESOURCES


def test_starts_all_jobs_if_all_fit() -> None:
    snapshot = a_snapshot(a_cluster(nodes=2, cores=4), [a_job(i, per_unit=2) for i in range(1, 5)])
    decision = decided(snapshot)
    assert decision.effort.path == "all-fit"
    assert set(decision.starts_by_job(snapshot)) == {1, 2, 3, 4}


def test_first_dive_uses_highest_priority_and_node() -> None:
    """Job 2 has waited longest for its length; each unit goes to the highest node with room (best fit of pcp20)."""
    cluster = a_cluster(nodes=3, cores=4)
    queue = [a_job(1, units=2, per_unit=3, walltime_s=100, submit_s=0), a_job(2, units=2, per_unit=2, walltime_s=10)]
    decision = decided(snapshot := a_snapshot(cluster, queue, now_s=50))
    assert decision.starts_by_job(snapshot) == {2: ((2, 2),), 1: ((0, 1), (1, 1))}


def test_finds_better_leaf_than_first_dive() -> None:
    """First by priority is the long job 1; but starting the three short ones first costs far less slowdown."""
    cluster = a_cluster(nodes=1, cores=4)
    long = a_job(1, per_unit=4, walltime_s=1000, submit_s=0)
    short = [a_job(i, per_unit=1, walltime_s=10, submit_s=995) for i in (2, 3, 4)]
    snapshot = a_snapshot(cluster, [long, *short], now_s=1000)
    decision = decided(snapshot)
    assert set(decision.starts_by_job(snapshot)) == {2, 3, 4}
    assert decision.plan_by_job(snapshot)[1] == 1010
    assert decision.effort.status == "optimal"
    assert decision.effort.objective == pytest.approx(2010 / 1000 + 3 * 15 / 10)
    assert decision.effort.bound == pytest.approx(decision.effort.objective)


def test_bound_avoids_solver_if_places_do_not_matter() -> None:
    snapshot = a_snapshot(
        a_cluster(nodes=2, cores=4), [a_job(1, units=2, per_unit=4), a_job(2, units=2, per_unit=4, walltime_s=50)]
    )
    decision = decided(snapshot)
    assert (decision.effort.path, decision.effort.status, decision.effort.branches) == ("bound-met", "optimal", 0)
    assert set(decision.starts_by_job(snapshot)) == {2}


def test_solver_resolves_contention_for_places() -> None:
    """Job 1 leaves 2 cores on each node, job 2 wants 3 on one; in sum there is room for both."""
    cluster = a_cluster(nodes=2, cores=4)
    queue = [a_job(1, units=2, per_unit=2, walltime_s=50, distinct=True), a_job(2, per_unit=3, walltime_s=40)]
    decision = decided(snapshot := a_snapshot(cluster, queue))
    assert decision.effort.path == "solver"
    assert decision.effort.status == "optimal"
    assert decision.effort.branches > 0
    assert set(decision.starts_by_job(snapshot)) == {2}
    assert decision.plan_by_job(snapshot) == {2: 0, 1: 40}


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
    snapshot = a_snapshot(cluster, queue, now_s=10)
    assert {2, 5} <= started(snapshot, effort=400)


def test_restacking_lets_jobs_fit_by_amounts() -> None:
    """Two jobs of 1 run beside a hole of 2; they are stacked again, so that a unit of 2 fits."""
    cluster = a_cluster(nodes=1, cores=4)
    running = [a_running(a_job(8 + i, walltime_s=100 + i), ((0, 1),)) for i in range(2)]
    assert started(a_snapshot(cluster, [a_job(1, per_unit=2), a_job(2, per_unit=2, walltime_s=50)], running)) == {2}


def test_running_job_ends_at_estimate_of_snapshot() -> None:
    """The policy's overrun rule moved its end: an estimate of 10 s, doubled until it covers the 100 s so far."""
    cluster = a_cluster(nodes=1, cores=4)
    running = [a_running(a_job(9, per_unit=2, walltime_s=10), ((0, 1),))]
    queue = [a_job(1, per_unit=2, walltime_s=500, submit_s=90), a_job(2, per_unit=2, walltime_s=1000, submit_s=90)]
    decision = decided(snapshot := a_snapshot(cluster, queue, running, now_s=100, estimates={9: 160}))
    assert decision.plan_by_job(snapshot) == {1: 100, 2: 160}


def test_considers_only_first_fitting_jobs() -> None:
    queue = [a_job(i, per_unit=4) for i in range(1, 6)]
    snapshot = a_snapshot(a_cluster(nodes=1), queue)
    decision = ConstraintDispatcher(effort=PLENTY, considered=2).decide(snapshot)
    assert decision.effort.considered == 2
    assert set(decision.plan_by_job(snapshot)) == {1, 2}


def test_counts_variables_like_the_paper() -> None:
    """|Q| + sum of rn_i * |R|, whatever the number of nodes."""
    for nodes in (2, 50):
        cluster = a_cluster(nodes=nodes, cores=4, memory=8)
        queue = [a_job(1, units=2 * nodes, per_unit=(2, 1)), a_job(2, units=3, per_unit=(2, 1))]
        assert decided(a_snapshot(cluster, queue)).effort.variables == 2 + (2 * nodes + 3) * 2


def test_pending_job_names_reason_and_blocking_job() -> None:
    snapshot = a_snapshot(a_cluster(nodes=1), [a_job(1, per_unit=3, walltime_s=10), a_job(2, per_unit=3)])
    waits = decided(snapshot).waits
    assert set(waits) == {2}
    assert waits[2].waits_for == (1,)
    assert waits[2].reason.code is PendingCode.RESOURCES


def test_effort_limits_search() -> None:
    queue = [
        a_job(i, units=i % 3 + 1, per_unit=i % 2 + 2, walltime_s=10 * i, distinct=i % 2 == 0) for i in range(1, 12)
    ]
    snapshot = a_snapshot(a_cluster(nodes=3), queue)
    few, many = decided(snapshot, 16).effort, decided(snapshot, 2000).effort
    assert few.path == many.path == "solver"
    assert few.branches <= 20 < many.branches
    assert many.objective is not None
    assert few.objective is not None
    assert many.objective <= few.objective


def test_falls_back_to_dive_if_limit_is_too_short() -> None:
    queue = [a_job(i, units=2, per_unit=i, walltime_s=50, distinct=True) for i in (2, 3)]
    snapshot = a_snapshot(a_cluster(nodes=2), [*queue, a_job(1, per_unit=3, walltime_s=40)])
    decision = ConstraintDispatcher(limit_s=0.0005).decide(snapshot)
    assert verify(decision, snapshot) == []
    assert (decision.effort.path, decision.effort.status) == ("dive", "unverified")
    assert len(decision.starts) > 0


@pytest.mark.parametrize("name", ["limit_s", "first_limit_s", "effort", "considered", "restarts"])
def test_rejects_non_positive_parameters(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"{name}=0"):
        ConstraintDispatcher(**{name: 0})


def test_listing_catalogue_does_not_import_solver() -> None:
    code = (
        "import sys; from cpsched.registry import DISPATCHERS; [each.parameters() for each in DISPATCHERS.builtins()]; "
        "sys.exit('ortools' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
