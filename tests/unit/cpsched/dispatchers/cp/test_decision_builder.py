"""Who goes next in the guided search, on instances that can be checked by hand."""

from __future__ import annotations

import numpy as np

from cpsched.dispatchers.cp import cp_problem
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, empty_plan
from cpsched.kernels.cp.next_decision import new_step, next_to_start
from cpsched.kernels.fit_rules import UNBOUNDED
from cpsched.model import IntArray, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def facts_of(snapshot: Snapshot) -> CpInstance:
    return cp_problem.cp_instance_of(snapshot).with_considered_jobs(snapshot.queue)


def next_of(
    facts: CpInstance, plan: CpPlan, placed: list[int], earliest_s: list[int], order: list[int]
) -> tuple[int, IntArray]:
    flags = np.zeros(len(facts.jobs), np.bool_)
    flags[placed] = True
    earliest, order_of = np.array(earliest_s, np.int64), np.array(order, np.int64)
    step = new_step(facts, order_of)
    step.placed[:], step.earliest_s[:] = flags, earliest
    return next_to_start(facts, plan, step), step.put_off_s


def a_round() -> CpInstance:
    """Four cores, two of them in use until 50 s: jobs of 4, of 2 and of 3 cores, and again of 2."""
    running = [a_running(a_job(9, per_unit=2, walltime_s=50), ((0, 1),))]
    queue = [a_job(i, per_unit=cores, walltime_s=20) for i, cores in enumerate((4, 2, 3, 2), start=1)]
    return facts_of(a_snapshot(a_cluster(nodes=1, cores=4), queue, running))


def test_of_those_that_fit_the_first_in_order_starts_and_is_placed() -> None:
    facts = a_round()
    plan = empty_plan(facts)
    job, put_off_s = next_of(facts, plan, [], [0, 0, 0, 0], [3, 2, 1, 0])
    assert (job, put_off_s.tolist()) == (3, [-1, -1, -1, -1])
    assert (int(plan.start_s[3]), int(plan.node[plan.first[3]]), int(plan.y[plan.first[3], 0])) == (0, 0, 2)


def test_who_goes_first_and_has_no_room_is_put_off_until_something_ends() -> None:
    """The jobs of 4 and of 3 cores wait for the running job; that the job of 2 may end at 20 s helps neither."""
    facts = a_round()
    plan = empty_plan(facts)
    assert next_of(facts, plan, [], [0, 0, 0, 0], [0, 2, 1, 3])[1].tolist() == [50, -1, 50, -1]


def test_jobs_that_are_placed_hold_their_room_until_they_end() -> None:
    facts = a_round()
    plan = empty_plan(facts)
    job, _ = next_of(facts, plan, [], [0, 0, 0, 0], [1, 0, 2, 3])
    job, put_off_s = next_of(facts, plan, [job], [0, 0, 0, 0], [3, 0, 1, 2])
    assert (job, int(plan.start_s[job]), put_off_s.tolist()) == (3, 20, [20, -1, 20, 20])


def test_nobody_goes_before_the_earliest_that_it_is_given() -> None:
    facts = a_round()
    plan = empty_plan(facts)
    job, put_off_s = next_of(facts, plan, [], [60, 55, 70, 55], [0, 1, 2, 3])
    assert (job, int(plan.start_s[job]), put_off_s.tolist()) == (1, 55, [-1, -1, -1, -1])


def test_who_never_has_room_is_put_off_for_ever() -> None:
    facts = facts_of(a_snapshot(a_cluster(nodes=1, cores=4), [a_job(1, per_unit=5)]))
    job, put_off_s = next_of(facts, empty_plan(facts), [], [0], [0])
    assert (job, put_off_s.tolist()) == (-1, [UNBOUNDED])


def test_where_all_are_placed_nobody_is_next() -> None:
    facts = a_round()
    plan = cp_problem.first_leaf(facts)
    job, put_off_s = next_of(facts, plan, [0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 3])
    assert (job, put_off_s.tolist()) == (-1, [-1, -1, -1, -1])
