"""Interchangeable jobs: that their order does not affect the cost. tests/golden compares the searches of such jobs."""

from __future__ import annotations

import pytest

from cpsched.feasibility import verify
from cpsched.model import Snapshot
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import studied


def a_queue() -> Snapshot:
    """Jobs 1, 3 and 5 are of a kind; 2 is longer, 4 asks for more, 6 may not share nodes."""
    kinds = {1: {}, 2: {"walltime_s": 30}, 3: {}, 4: {"per_unit": 2}, 5: {}, 6: {"exclusive": True}}
    queue = [a_job(i, **({"units": 2, "per_unit": 1, "walltime_s": 20} | kind)) for i, kind in kinds.items()]
    running = [a_running(a_job(9, per_unit=3, walltime_s=15), ((0, 1),))]
    return a_snapshot(a_cluster(nodes=2, cores=4), queue, running, now_s=10)


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
