"""The site's priority in the objectives of constraint programming: a factor on each job's weight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cpsched import registry
from cpsched.dispatchers.cp.cp_objective import slowdown_objective, with_site_priority
from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.errors import InvalidValue
from cpsched.model import Snapshot
from tests.builders import a_cluster, a_job, a_snapshot

PER_ROUND = ["pcp", "pcp1", "pcp2", "pcp19", "pcp20", "hcp", "hcp1", "hcp2", "hcp19", "cph"]
PER_OBJECTIVE = ["cp-bsld", "cp-af", "cp-awf", "cp-p2sf", "cp-bsld+", "cp-p2sf+"]


def one_at_a_time(priorities: dict[int, int], walltimes_s: dict[int, int]) -> Snapshot:
    """Jobs that each fill the one node, by id."""
    jobs = [
        replace(a_job(i, per_unit=4, walltime_s=walltimes_s[i], submit_s=0), priority=priority)
        for i, priority in priorities.items()
    ]
    return a_snapshot(a_cluster(nodes=1, cores=4), jobs, now_s=60)


def first_of(name: str, snapshot: Snapshot, site_weight: float) -> int:
    dispatcher = registry.DISPATCHERS.build(name, {"effort": "20000", "site_weight": str(site_weight)})
    (found,) = dispatcher.decide(snapshot).starts_by_job(snapshot)
    return found


@pytest.mark.parametrize("preferred", [1, 2, 3])
@pytest.mark.parametrize("name", PER_ROUND + PER_OBJECTIVE)
def test_site_preference_orders_equal_jobs(name: str, preferred: int) -> None:
    priorities = {i: 10 if i == preferred else 5 for i in (1, 2, 3)}
    assert first_of(name, one_at_a_time(priorities, dict.fromkeys(priorities, 90)), 1.0) == preferred


@pytest.mark.parametrize("name", ["pcp19", "pcp20", "hcp19", "cp-bsld", "cp-af"])
def test_small_site_weight_does_not_override_objective(name: str) -> None:
    """A job of a minute goes before one of a day, though the site prefers that; a heavy weight turns it round."""
    snapshot = one_at_a_time({1: 1, 2: 2}, {1: 60, 2: 86_400})
    assert [first_of(name, snapshot, weight) for weight in (0.0, 0.1, 6.0)] == [1, 1, 2]


def test_site_weight_keeps_constant_of_objective() -> None:
    snapshot = one_at_a_time({1: 1, 2: 2}, {1: 60, 2: 120})
    plain = slowdown_objective(snapshot, snapshot.queue, ExpectedQueueWaits({}))
    weighed = with_site_priority(plain, snapshot, snapshot.queue, 1.0)
    assert weighed.constant == plain.constant
    assert weighed.weight[1] / weighed.weight[0] > plain.weight[1] / plain.weight[0]


@pytest.mark.parametrize("name", ["pcp20", "cp-af"])
def test_rejects_negative_site_weight(name: str) -> None:
    with pytest.raises(InvalidValue, match="site_weight=-1"):
        registry.DISPATCHERS.build(name, {"site_weight": "-1"})
