"""Test PCP'20 on random instances: feasible, never worse than its first dive, and optimal on small instances."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.cp_dispatcher_config import RestartSearchLimits
from cpsched.dispatchers.cp.cp_objective import slowdown_objective, sort_by_slowdown
from cpsched.dispatchers.cp.search_control import improve_plan
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.feasibility import verify
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.kernels.cp.startable_jobs import startable_slots
from cpsched.model import Decision, Job, Snapshot
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings, snapshots
from tests.builders import a_cluster, a_job, a_running, a_snapshot

NOW_S = 10


@st.composite
def small_snapshots(draw: Any) -> Snapshot:
    """Draw a snapshot of equal nodes with one resource, and few short jobs, as `exhaustive` requires."""
    size, running = draw(st.integers(1, 2)), []
    free = [3] * size
    for id in range(100, 100 + draw(st.integers(0, 2))):
        cores, node = draw(st.integers(1, 2)), draw(st.integers(0, size - 1))
        if free[node] >= cores:
            free[node] -= cores
            running.append(a_running(a_job(id, 1, cores, draw(st.integers(1, 14))), ((node, 1),), NOW_S))
    sizes = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(0, NOW_S))
    queue = [a_job(id, *facts) for id, facts in enumerate(draw(st.lists(sizes, min_size=2, max_size=3)), start=1)]
    return a_snapshot(a_cluster(size, 3), queue, running, NOW_S)


def first_dive(snapshot: Snapshot) -> float | None:
    """Return the slowdown of the first leaf, or None if no job is considered."""
    facts = cp_problem.build_cp_instance(snapshot)
    slots = startable_slots(facts, snapshot.queue, 100)
    if len(slots) == 0:
        return None
    facts = facts.with_considered_jobs(sort_by_slowdown(snapshot, slots))
    estimate_s = facts.table.estimate_s[facts.jobs]
    starts = cp_problem.build_first_leaf_plan(facts).start_s
    return float(((starts - snapshot.table.submit_s[facts.jobs] + estimate_s) / estimate_s).sum())


def planned_slowdown(decision: Decision, snapshot: Snapshot) -> float:
    """Return the sum of (s - q + d) / d over the jobs that the decision plans."""
    jobs = {job.id: job for job in snapshot.queued_jobs()}
    plan = decision.plan_by_job(snapshot)
    return sum(1 + (s - jobs[id].submit_s) / snapshot.estimate_of(jobs[id]) for id, s in plan.items())


@given(snapshots())
@scaled_example_settings(150)
def test_decision_is_feasible_and_no_worse_than_first_dive(snapshot: Snapshot) -> None:
    decision = ConstraintDispatcher(effort=400).decide(snapshot)
    assert verify(decision, snapshot) == []
    first = first_dive(snapshot)
    if first is not None:
        assert len(decision.starts) > 0
        assert planned_slowdown(decision, snapshot) <= first * (1 + 1e-9)
        assert decision.effort.status != "unverified"
    if decision.effort.objective is not None:
        assert decision.effort.objective == pytest.approx(planned_slowdown(decision, snapshot))
        assert decision.effort.bound <= decision.effort.objective * (1 + 1e-9)


Box = tuple[int, int, int, int, int]
"""Node, first position, position after the last, start and end."""


def running_boxes(snapshot: Snapshot) -> list[Box]:
    """Return the running jobs as boxes stacked on their nodes, with the job that ends last at the bottom."""
    boxes: list[Box] = []
    height: dict[int, int] = {}
    for job in sorted(snapshot.running_jobs(), key=lambda job: -(job.start_s + job.job.walltime_s)):
        for node, units in job.placement:
            low = height.get(node, 0)
            height[node] = low + units * job.job.request.per_unit[0]
            boxes.append(
                (node, low, height[node], snapshot.now_s, max(job.start_s + job.job.walltime_s, snapshot.now_s + 1))
            )
    return boxes


def placeable(snapshot: Snapshot, units: Sequence[tuple[Job, int]], boxes: list[Box]) -> bool:
    """Return whether every unit (job, start) fits on a node, by trying all positions."""
    if not units:
        return True
    (job, start_s), rest = units[0], units[1:]
    amount = job.request.per_unit[0]
    for node, capacity in enumerate(snapshot.cluster.capacity[:, 0].tolist()):
        for low in range(capacity - amount + 1):
            box = (node, low, low + amount, start_s, start_s + job.walltime_s)
            if not any(overlap(box, other) for other in boxes) and placeable(snapshot, rest, [*boxes, box]):
                return True
    return False


def overlap(a: Box, b: Box) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2] and a[3] < b[4] and b[3] < a[4]


def exhaustive(snapshot: Snapshot, jobs: Sequence[Job]) -> float:
    """Return the minimum slowdown of any plan, by trying all starts, cheapest first, and all positions."""
    running = running_boxes(snapshot)
    horizon_s = sum(job.walltime_s for job in jobs) + max((box[4] for box in running), default=0) + 1

    def choices() -> Iterator[tuple[float, tuple[int, ...]]]:
        for starts in itertools.product(range(snapshot.now_s, snapshot.now_s + horizon_s), repeat=len(jobs)):
            yield sum((s - j.submit_s + j.walltime_s) / j.walltime_s for s, j in zip(starts, jobs, strict=True)), starts

    for cost, starts in sorted(choices()):
        units = [(job, s) for s, job in zip(starts, jobs, strict=True) for _ in range(job.request.units)]
        if placeable(snapshot, units, running):
            return cost
    raise AssertionError("no plan at all")


@given(small_snapshots())
@scaled_example_settings(80)
def test_decision_is_optimal_by_exhaustive_search(snapshot: Snapshot) -> None:
    decision = ConstraintDispatcher(effort=80_000, restarts=100).decide(snapshot)
    assert verify(decision, snapshot) == []
    considered = set(decision.plan_by_job(snapshot))
    jobs = [job for job in snapshot.queued_jobs() if job.id in considered]
    if jobs:
        assert planned_slowdown(decision, snapshot) == pytest.approx(exhaustive(snapshot, jobs))
        assert decision.effort.path in ("single", "all-fit") or decision.effort.status == "optimal"


@given(small_snapshots())
@scaled_example_settings(80)
def test_solver_alone_equals_certain_answers(snapshot: Snapshot) -> None:
    """From the first dive and without shortcuts, the solver proves the same objective."""
    facts = cp_problem.build_cp_instance(snapshot)
    slots = startable_slots(facts, snapshot.queue, 100)
    if len(slots) == 0:
        return
    facts = facts.with_considered_jobs(sort_by_slowdown(snapshot, slots))
    problem = cp_problem.CpProblem(
        facts, slowdown_objective(snapshot, facts.jobs, ExpectedQueueWaits()), slots[:0], False
    )
    from_dive = CpSolveResult(cp_problem.build_first_leaf_plan(facts), "", certain=False)
    solved = improve_plan(problem, from_dive, "positions", RestartSearchLimits(1.0, 1.0, 100, effort=80_000))
    assert solved.status == "optimal"
    decided = ConstraintDispatcher(effort=80_000, restarts=100).decide(snapshot)
    total = problem.objective.constant + plan_delay_cost(problem.objective, solved.plan.start_s)
    assert total == pytest.approx(planned_slowdown(decided, snapshot))


HARD = """
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from tests.builders import a_cluster, a_job, a_snapshot
jobs = [a_job(i, units=i % 4 + 1, per_unit=(i % 3 + 1, i % 5 + 1), walltime_s=7 * i, distinct=i % 2 == 0)
        for i in range(1, 16)]
snapshot = a_snapshot(a_cluster(nodes=4, cores=4, memory=8), jobs)
for _ in range(2):
    decision = ConstraintDispatcher(effort=600, seed=3).decide(snapshot)
    print(decision.starts_by_job(snapshot), decision.plan_by_job(snapshot), decision.effort.branches,
          decision.effort.path, decision.effort.objective)
"""


@pytest.mark.slow
def test_decides_same_in_another_process_with_effort_limit() -> None:
    command = [sys.executable, "-c", HARD]
    lines = [
        line
        for _ in range(2)
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    ]
    assert (len(lines), len(set(lines))) == (4, 1)
    assert "solver" in lines[0]
