"""Interchangeable jobs: which jobs they are, and that their order does not affect the cost."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.dispatchers.cp import cp_problem
from cpsched.dispatchers.cp.cp_objective import slowdown_objective
from cpsched.dispatchers.cp.search_control import find_symmetric_jobs, sort_symmetric_starts
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.feasibility import verify
from cpsched.kernels.cp.cp_state import PLACEMENT_COLUMNS, CpInstance
from cpsched.model import IntArray, Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import studied


def a_queue() -> Snapshot:
    """Jobs 1, 3 and 5 are of a kind; 2 is longer, 4 asks for more, 6 may not share nodes."""
    kinds = {1: {}, 2: {"walltime_s": 30}, 3: {}, 4: {"per_unit": 2}, 5: {}, 6: {"exclusive": True}}
    queue = [a_job(i, **({"units": 2, "per_unit": 1, "walltime_s": 20} | kind)) for i, kind in kinds.items()]
    running = [a_running(a_job(9, per_unit=3, walltime_s=15), ((0, 1),))]
    return a_snapshot(a_cluster(nodes=2, cores=4), queue, running, now_s=10)


def considered(snapshot: Snapshot) -> tuple[CpInstance, list[IntArray]]:
    facts = cp_problem.build_cp_instance(snapshot).with_considered_jobs(snapshot.queue)
    return facts, find_symmetric_jobs(facts, slowdown_objective(snapshot, snapshot.queue, ExpectedQueueWaits({})))


def test_groups_jobs_of_equal_request_estimate_and_cost() -> None:
    _, groups = considered(a_queue())
    assert [group.tolist() for group in groups] == [[0, 2, 4]]


def test_exchanged_jobs_swap_starts_and_nodes() -> None:
    facts, groups = considered(a_queue())
    plan = cp_problem.build_first_leaf_plan(facts)
    plan.start_s[[0, 2, 4]] = 50, 10, 30
    plan.node[:2], plan.node[4:6], plan.node[8:10] = 0, 1, (0, 1)
    found = sort_symmetric_starts(plan, groups)
    assert found.start_s[[0, 2, 4]].tolist() == [10, 30, 50]
    assert [found.node[at : at + 2].tolist() for at in (0, 4, 8)] == [[1, 1], [0, 1], [0, 0]]
    for name in PLACEMENT_COLUMNS:
        others = [1, 3, 5] if len(getattr(plan, name)) == 6 else [2, 3, 6, 7, 10, 11]
        assert np.array_equal(getattr(found, name)[others], getattr(plan, name)[others]), name


@pytest.mark.parametrize("name", ["pcp", "pcp2", "pcp19", "pcp20", "hcp19"])
def test_ordered_equal_jobs_have_same_proved_objective(name: str) -> None:
    snapshot = a_queue()
    by_mode = {}
    for mode in ("any-order", "in-order"):
        settings = {"effort": "200000", "certain": "no", "equal_jobs": mode}
        by_mode[mode] = decision = studied(name, settings).decide(snapshot)
        assert verify(decision, snapshot) == []
        assert (decision.effort.path, decision.effort.status) == ("solver", "optimal")
    assert by_mode["in-order"].effort.objective == pytest.approx(by_mode["any-order"].effort.objective)
    assert by_mode["in-order"].effort.branches <= by_mode["any-order"].effort.branches
    plan = by_mode["in-order"].plan_by_job(snapshot)
    assert plan[1] <= plan[3] <= plan[5]
