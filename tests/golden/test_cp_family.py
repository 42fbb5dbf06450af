"""The CP family on random contended snapshots: the plan, the status and the branches of each search are unchanged."""

from hashlib import md5

import numpy as np
import pytest

from cpsched.feasibility import verify
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.searches import studied

DIGESTS = {
    "pcp": "d3a706fb6ad1",
    "pcp1": "d54fb03682b2",
    "pcp2": "65d50ff91c2d",
    "pcp19": "1f6f127b18a9",
    "pcp20": "8d4599538b9d",
    "pcp20 certain=no": "0caba35d54c4",
    "pcp20 equal_jobs=any-order restarts=3 seed=5": "e42cf73fd335",
    "pcp20 effort=3": "0eea9fb915b6",
    "hcp considered=4": "62bd83079e5f",
    "hcp1 certain=no": "75831aa99325",
    "hcp2": "2a64392c2be5",
    "hcp19": "3ee49941151b",
    "cph": "692b45f7e0db",
}
"""By dispatcher and settings."""


def a_contended_snapshot(seed, jobs):
    """Return jobs of which some are alike, beside two running jobs, of which one is overdue if `seed` is odd."""
    random = np.random.default_rng(seed)
    queue = []
    for i in range(jobs):
        units, cores, memory, minutes, queue_at = (int(random.integers(1, end)) for end in (4, 4, 3, 5, 3))
        facts = {"distinct": bool(random.integers(0, 2)), "queue": ("debug", "batch")[queue_at - 1]}
        queue.append(a_job(i, units, (cores, memory), 60 * minutes, int(random.integers(0, 400)), **facts))
    running = [a_running(a_job(900 + node, per_unit=(2, 1)), ((node, 1),), 310) for node in (0, 2)]
    return a_snapshot(a_cluster(4, 4, 6), queue, running, 400, {900: 150 - 65 * (seed % 2), 902: 170})


SNAPSHOTS = [a_contended_snapshot(seed, jobs) for seed, jobs in enumerate((3, 4, 5, 6, 7, 8, 10, 24))]


@pytest.mark.parametrize("member", DIGESTS)
def test_searches_are_unchanged(member):
    name, *words = member.split()
    found = []
    for snapshot in SNAPSHOTS:
        dispatcher = studied(name, {"effort": "300"} | dict(word.split("=") for word in words))
        dispatcher.recall({"debug": [10, 1], "batch": [1000, 1]})
        decision = dispatcher.decide(snapshot)
        assert verify(decision, snapshot) == []
        effort = decision.effort
        found.append(
            (effort.path, effort.status, effort.branches, effort.unplaced, effort.bound and round(effort.bound, 6))
        )
        found.append((sorted(decision.starts_by_job(snapshot).items()), decision.plan_by_job(snapshot)))
    assert md5(str(found).encode()).hexdigest()[:12] == DIGESTS[member], found
