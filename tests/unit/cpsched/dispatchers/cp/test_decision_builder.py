"""The next job in the guided search, on instances that can be checked by hand."""

from __future__ import annotations

import numpy as np

from cpsched.dispatchers.cp import cp_problem
from cpsched.kernels.cp.cp_state import CpInstance, CpPlan, empty_plan
from cpsched.kernels.cp.next_decision import find_next_startable_job, new_search_state
from cpsched.kernels.fit_rules import UNBOUNDED
from cpsched.model import IntArray
from tests.builders import a_cluster, a_job, a_running, a_snapshot, considered


def next_of(
    facts: CpInstance, plan: CpPlan, placed: list[int], earliest_s: list[int], order: list[int]
) -> tuple[int, IntArray]:
    step = new_search_state(facts, np.array(order, np.int64))
    step.placed[placed], step.earliest_s[:] = True, earliest_s
    return find_next_startable_job(facts, plan, step), step.postponed_to_s


def a_round() -> CpInstance:
    """Four cores, two of them in use until 50 s: jobs of 4, of 2 and of 3 cores, and again of 2."""
    running = [a_running(a_job(9, per_unit=2, walltime_s=50), ((0, 1),))]
    queue = [a_job(i, per_unit=cores, walltime_s=20) for i, cores in enumerate((4, 2, 3, 2), start=1)]
    return considered(a_snapshot(a_cluster(nodes=1, cores=4), queue, running))


def test_places_first_fitting_job_in_order() -> None:
    facts = a_round()
    plan = empty_plan(facts)
    job, postponed_to_s = next_of(facts, plan, [], [0, 0, 0, 0], [3, 2, 1, 0])
    assert (job, postponed_to_s.tolist()) == (3, [-1, -1, -1, -1])
    assert (int(plan.start_s[3]), int(plan.node[plan.first[3]]), int(plan.y[plan.first[3], 0])) == (0, 0, 2)


def test_postpones_first_job_until_next_end() -> None:
    """The jobs of 4 and of 3 cores wait for the running job; that the job of 2 may end at 20 s helps neither."""
    facts = a_round()
    assert next_of(facts, empty_plan(facts), [], [0, 0, 0, 0], [0, 2, 1, 3])[1].tolist() == [50, -1, 50, -1]


def test_placed_jobs_hold_resources_until_end() -> None:
    facts = a_round()
    plan = empty_plan(facts)
    job, _ = next_of(facts, plan, [], [0, 0, 0, 0], [1, 0, 2, 3])
    job, postponed_to_s = next_of(facts, plan, [job], [0, 0, 0, 0], [3, 0, 1, 2])
    assert (job, int(plan.start_s[job]), postponed_to_s.tolist()) == (3, 20, [20, -1, 20, 20])


def test_no_job_starts_before_its_earliest_time() -> None:
    facts = a_round()
    plan = empty_plan(facts)
    job, postponed_to_s = next_of(facts, plan, [], [60, 55, 70, 55], [0, 1, 2, 3])
    assert (job, int(plan.start_s[job]), postponed_to_s.tolist()) == (1, 55, [-1, -1, -1, -1])


def test_postpones_job_that_never_fits_forever() -> None:
    facts = considered(a_snapshot(a_cluster(nodes=1, cores=4), [a_job(1, per_unit=5)]))
    job, postponed_to_s = next_of(facts, empty_plan(facts), [], [0], [0])
    assert (job, postponed_to_s.tolist()) == (-1, [UNBOUNDED])


def test_has_no_next_job_if_all_are_placed() -> None:
    facts = a_round()
    plan = cp_problem.build_first_leaf_plan(facts)
    job, postponed_to_s = next_of(facts, plan, [0, 1, 2, 3], [0, 0, 0, 0], [0, 1, 2, 3])
    assert (job, postponed_to_s.tolist()) == (-1, [-1, -1, -1, -1])
