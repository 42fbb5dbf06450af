"""What a model is made of: ends of running jobs, the horizon, the order in which nodes are tried, empty plans."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.dispatchers.cp import window
from cpsched.dispatchers.cp.objective import Objective
from cpsched.dispatchers.cp.positions import Facts
from cpsched.dispatchers.cp.window import Problem, Running
from cpsched.model import Cluster, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def overdue() -> Snapshot:
    """At second 50: jobs that should have ended at 30, at 90, and right now; two wait."""
    running = [
        a_running(a_job(7, walltime_s=30), ((0, 1),)),
        a_running(a_job(8, walltime_s=90), ((1, 1),)),
        a_running(a_job(9, walltime_s=50), ((2, 1),)),
    ]
    return a_snapshot(a_cluster(), [a_job(1, walltime_s=20), a_job(2, units=3, walltime_s=40)], running, now_s=50)


def ids(snapshot: Snapshot, slots: np.ndarray) -> list[int]:
    return [snapshot.table.jobs[slot].id for slot in slots.tolist()]


@pytest.mark.parametrize(("how", "ends"), [("at-least-1s", [51, 51, 90]), ("remaining", [30, 50, 90])])
def test_a_running_job_that_is_overdue_has_ended_or_has_a_second_left(how: Running, ends: list[int]) -> None:
    snapshot = overdue()
    before = snapshot.table.end_s.copy()
    facts = window.facts_of(snapshot, how)
    assert facts.end_s[facts.running].tolist() == ends
    if how == "remaining":
        assert ids(snapshot, facts.running) == [7, 9, 8]
    assert snapshot.table.end_s.tolist() == before.tolist(), "the snapshot stays as it is"
    assert (
        window.facts_of(snapshot).end_s[facts.running].tolist()
        == window.facts_of(snapshot, "at-least-1s").end_s[facts.running].tolist()
    )


def test_facts_are_those_of_the_snapshot_and_cannot_be_written() -> None:
    snapshot = overdue()
    facts = window.facts_of(snapshot)
    assert (facts.now_s, len(facts.jobs), len(facts.walk_of)) == (50, 0, 0)
    assert facts.walks.tolist() == [[3, 2, 1, 0]], "from the highest node down"
    assert facts.free.tolist() == snapshot.free.tolist()
    for column in facts[1:]:
        assert isinstance(column, np.ndarray)
        assert not column.flags.writeable


def a_problem(snapshot: Snapshot, considered: int = 1, running: Running = "at-least-1s") -> Problem:
    facts = window.facts_of(snapshot, running)
    jobs, rest = snapshot.queue[:considered], snapshot.queue[considered:]
    nothing = Objective(np.ones(considered), np.zeros(considered, np.int64), 0.0)
    return Problem(window.consider(facts, jobs), nothing, rest, overdue=False)


@pytest.mark.parametrize(("considered", "running", "horizon_s"), [
    (1, "at-least-1s", 20 + 40 + 1 + 1 + 40),
    (2, "at-least-1s", 60 + 1 + 1 + 40),
    (1, "remaining", 20 + 40 - 20 + 0 + 40),
    (2, "remaining", 60 - 20 + 0 + 40),
])  # fmt: skip
def test_the_horizon_is_all_there_is_to_run_one_after_the_other(
    considered: int, running: Running, horizon_s: int
) -> None:
    assert a_problem(overdue(), considered, running).horizon_s == horizon_s


@pytest.mark.parametrize(
    ("start_s", "holds"), [((50, 50), True), ((112, 92), True), ((113, 92), True), ((132, 112), True),
                           ((133, 112), False), ((132, 113), False), ((500, 500), False)]
)  # fmt: skip
def test_a_plan_holds_if_every_job_ends_within_the_horizon(start_s: tuple[int, int], holds: bool) -> None:
    """The horizon is second 152; the jobs run 20 and 40 s."""
    problem = a_problem(overdue(), 2)
    assert problem.horizon_s == 102
    assert problem.holds(np.array(start_s)) is holds


def test_considered_jobs_try_nodes_in_the_one_order_there_is() -> None:
    snapshot = overdue()
    facts = window.consider(window.facts_of(snapshot), snapshot.queue[::-1].copy())
    assert ids(snapshot, facts.jobs) == [2, 1]
    assert facts.walk_of.tolist() == [0, 0]
    assert not facts.jobs.flags.writeable


def tried(facts: Facts, j: int) -> list[int]:
    """The nodes in the order in which a considered job tries them."""
    return facts.walks[facts.walk_of[j]].tolist()


CLUSTER = Cluster.of([[4, 0, 0], [4, 2, 0], [4, 0, 0], [4, 2, 2]], ["cores", "gpus", "fpgas"])


def test_nodes_with_what_a_job_does_not_ask_for_are_tried_last_and_the_scarcest_of_all() -> None:
    queue = [
        a_job(1, per_unit=(1, 0, 0)),
        a_job(2, per_unit=(1, 1, 0)),
        a_job(3, per_unit=(1, 0, 1), units=2),
        a_job(4, per_unit=(2, 0, 0)),
    ]
    snapshot = a_snapshot(CLUSTER, queue)
    facts = window.consider(window.facts_of(snapshot), snapshot.queue)
    facts = window.spare_the_scarce(facts, snapshot.queue)
    assert [tried(facts, j) for j in range(4)] == [[2, 0, 1, 3], [2, 1, 0, 3], [2, 0, 3, 1], [2, 0, 1, 3]]
    assert len(facts.walks) == 3, "jobs that ask for the same kinds share an order"
    assert not facts.walks.flags.writeable


@pytest.mark.parametrize(
    ("gpus", "fpgas", "order"), [(0, 0, [3, 2, 1, 0]), (1, 0, [2, 0, 3, 1]), (0, 1, [2, 1, 0, 3]), (1, 9, [2, 0, 1, 3])]
)
def test_what_nobody_asks_for_is_not_scarce(gpus: int, fpgas: int, order: list[int]) -> None:
    """A job of one core; others ask for so many GPUs and FPGAs. Equal nodes from the highest down."""
    others = [a_job(2, units=max(1, gpus), per_unit=(1, min(1, gpus), 0))]
    others.append(a_job(3, units=max(1, fpgas), per_unit=(1, 0, min(1, fpgas))))
    snapshot = a_snapshot(CLUSTER, [a_job(1, per_unit=(1, 0, 0)), *others])
    facts = window.consider(window.facts_of(snapshot), snapshot.queue[:1])
    assert tried(window.spare_the_scarce(facts, snapshot.queue), 0) == order


def test_an_empty_plan_has_room_for_every_unit() -> None:
    snapshot = a_snapshot(a_cluster(memory=8), [a_job(1, units=3, per_unit=(1, 1)), a_job(2, units=2, per_unit=(1, 1))])
    plan = window.empty_plan(window.consider(window.facts_of(snapshot), snapshot.queue))
    assert (plan.start_s.tolist(), plan.first.tolist(), plan.parts.tolist()) == ([-1, -1], [0, 3, 5], [0, 0])
    assert (len(plan.node), len(plan.units), plan.y.shape, plan.dy.shape) == (5, 5, (5, 2), (5, 2))
    assert not any(column.any() for column in (plan.node, plan.units, plan.y, plan.dy))


def test_a_copy_of_a_plan_is_another_plan() -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(1, units=3)])
    plan = window.first_leaf(window.consider(window.facts_of(snapshot), snapshot.queue))
    other = window.copy_of(plan)
    other.start_s[0] = 77
    assert plan.start_s.tolist() == [0]
    assert [a.tolist() for a in plan[1:]] == [b.tolist() for b in other[1:]]


def test_the_first_leaf_starts_what_fits_now_and_the_rest_when_there_is_room() -> None:
    queue = [a_job(1, units=4, per_unit=4, walltime_s=30), a_job(2, units=4, per_unit=4), a_job(3)]
    snapshot = a_snapshot(a_cluster(), queue)
    plan = window.first_leaf(window.consider(window.facts_of(snapshot), snapshot.queue))
    assert plan.start_s.tolist() == [0, 30, 130]
    assert plan.parts.tolist() == [4, 4, 1]


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_no_more_jobs_are_considered_than_are_asked_for(most: int) -> None:
    snapshot = a_snapshot(a_cluster(), [a_job(1), a_job(2, per_unit=9), a_job(3), a_job(4)])
    found = window.startable(window.facts_of(snapshot), snapshot.queue, most)
    assert ids(snapshot, found) == [1, 3, 4][:most]


@pytest.mark.parametrize(("gpus", "order"), [(3, [0, 1]), (4, [1, 0]), (5, [1, 0])])
def test_scarce_is_what_is_asked_for_beside_what_is_free(gpus: int, order: list[int]) -> None:
    """One node has four GPUs, another an FPGA that one job asks for: so many GPUs are scarcer, fewer are not."""
    cluster = Cluster.of([[4, 4, 0], [4, 0, 1]], ["cores", "gpus", "fpgas"])
    queue = [a_job(1, per_unit=(1, 0, 0)), a_job(2, units=gpus, per_unit=(1, 1, 0)), a_job(3, per_unit=(1, 0, 1))]
    snapshot = a_snapshot(cluster, queue)
    facts = window.consider(window.facts_of(snapshot), snapshot.queue[:1])
    assert tried(window.spare_the_scarce(facts, snapshot.queue), 0) == order
