"""Test PCP'20 on random instances: feasible, never worse than its first dive, and optimal on small instances."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.cp_objective import slowdown_objective, sort_by_slowdown
from cpsched.dispatchers.cp.search_control import improve_plan
from cpsched.dispatchers.cp.search_limit import RestartSearchLimits
from cpsched.dispatchers.cp.solve_result import CpSolveResult
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.feasibility import verify
from cpsched.kernels.cp.delay_costs import plan_delay_cost
from cpsched.kernels.cp.startable_jobs import startable_slots
from cpsched.model import Cluster, Decision, Job, Request, RunningJob, Snapshot
from cpsched_sim.testing.hypothesis_example_counts import scaled_example_settings
from tests.builders import a_snapshot


@st.composite
def snapshots(draw: Any, nodes: int, jobs: int, longest_s: int, plain: bool) -> Snapshot:
    """Draw a snapshot; if `plain`, with one resource, equal nodes and no sharing rules, as `exhaustive` requires."""
    resources = 1 if plain else 2
    N = draw(st.integers(1, nodes))
    rows = [[3] for _ in range(N)] if plain else [[draw(st.integers(2, 5)) for _ in range(resources)] for _ in range(N)]
    cluster = Cluster.of(rows, ["cores", "memory"][:resources], node_sets={"some": list(range((N + 1) // 2))})

    def job(id: int) -> Job:
        amounts = (draw(st.integers(1, 3)), *(draw(st.integers(0, 3)) for _ in range(resources - 1)))
        units = draw(st.integers(1, 2 if plain else 4))
        kind = draw(st.sampled_from(["shared", "distinct", "exclusive"])) if not plain else "shared"
        node_set = 0 if plain else draw(st.integers(0, 1))
        request = Request(units, amounts, kind == "distinct", kind == "exclusive", node_set)
        return Job(id, draw(st.integers(0, 10)), draw(st.integers(1, longest_s)), request)

    running, free = [], cluster.capacity.copy()
    for id in range(100, 100 + draw(st.integers(0, 2))):
        amount, node = draw(st.integers(1, 2)), draw(st.integers(0, N - 1))
        if free[node, 0] >= amount:
            free[node, 0] -= amount
            request = Request(1, (amount, *[0] * (resources - 1)))
            running.append(RunningJob(Job(id, 0, draw(st.integers(1, longest_s + 10)), request), 10, ((node, 1),)))
    return a_snapshot(cluster, [job(id) for id in range(1, 1 + draw(st.integers(2, jobs)))], running, now_s=10)


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
    return sum((s - jobs[id].submit_s + jobs[id].walltime_s) / jobs[id].walltime_s for id, s in plan.items())


@given(snapshots(nodes=4, jobs=7, longest_s=50, plain=False))
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
        assert decision.effort.bound is not None
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


@given(snapshots(nodes=2, jobs=3, longest_s=4, plain=True))
@scaled_example_settings(80)
def test_decision_is_optimal_by_exhaustive_search(snapshot: Snapshot) -> None:
    decision = ConstraintDispatcher(effort=80_000, restarts=100).decide(snapshot)
    assert verify(decision, snapshot) == []
    considered = set(decision.plan_by_job(snapshot))
    jobs = [job for job in snapshot.queued_jobs() if job.id in considered]
    if jobs:
        assert planned_slowdown(decision, snapshot) == pytest.approx(exhaustive(snapshot, jobs))
        assert decision.effort.path in ("single", "all-fit") or decision.effort.status == "optimal"


@given(snapshots(nodes=2, jobs=3, longest_s=4, plain=True))
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
    assert solved.plan is not None
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
    assert len(lines) == 4
    assert len(set(lines)) == 1
    assert "solver" in lines[0]


def test_priority_is_slowdown_then_arrival() -> None:
    jobs = [Job(1, 0, 100, Request(1, (1,))), Job(2, 0, 10, Request(1, (1,))), Job(3, 0, 100, Request(1, (1,)))]
    snapshot = a_snapshot(Cluster.of([[2]], ["cores"]), jobs, now_s=50)
    assert sort_by_slowdown(snapshot, np.arange(3)).tolist() == [1, 0, 2]
