"""The amount by which a start's priority is raised above unmanaged jobs, and its reset."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.site.multifactor_priority import PriorityPolicy, PriorityWeights
from cpsched.site.site_policy import PartitionPolicy, SitePolicy
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmPartition
from cpsched_bridge.adapters.slurm.policy.required_boosts import compute_start_boosts
from cpsched_bridge.adapters.slurm.policy.site_policy_commands import BackgroundCommandOutput
from cpsched_bridge.adapters.slurm.policy.site_policy_reader import PeriodicSitePolicyReader
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.ports import StartOrder
from tests.builders import a_slurm_job
from tests.slurm_replies import ALL
from tests.unit.bridge.adapters.slurm.policy.test_priority_ranking import state
from tests.unit.bridge.adapters.slurm.policy.test_site_policy_reader import Clock
from tests.unit.bridge.adapters.slurm.policy.test_site_policy_reader import Played as PlayedAsking
from tests.unit.bridge.adapters.slurm.scenes import Scene
from tests.unit.bridge.adapters.slurm.test_slurm_backend import Played, order

STEADY = PriorityPolicy(weights=PriorityWeights(age=100), always_accrues=True)
TIERS = {
    "main": PartitionPolicy(tier=1),
    "fast": PartitionPolicy(tier=5),
    "late": PartitionPolicy(tier=0),
}
MINE = a_slurm_job(partition="main")


def free(**facts: Any) -> SlurmJob:
    """A pending job of priority 500 without a hold."""
    return a_slurm_job(**{"partition": "main", "priority": 500, "state_reason": "Resources", **facts})


def raised(
    *jobs: SlurmJob, priority: int = 300, most: int = 1000, rules: PriorityPolicy = STEADY, mine: SlurmJob = MINE
) -> int:
    partitions = [
        SlurmPartition(name=name, nodes=nodes)
        for name, nodes in [
            ("main", "n[1-4]"),
            ("fast", "n[1-2]"),
            ("late", "n1"),
            ("part", "n[2-3]"),
            ("other", "m[1-4]"),
        ]
    ]
    seen = SlurmRecords(now_s=0, nodes=[], partitions=partitions, reservations=[], jobs=list(jobs))
    return compute_start_boosts({7: (mine, priority)}, seen, SitePolicy(priority=rules, partitions=TIERS), most).get(
        7, 0
    )


def test_raises_start_just_above_highest_unmanaged_job() -> None:
    assert raised(free(), free(priority=420)) == 201
    assert raised(free(partition="part")) == 201
    assert raised(free(partition="other,part")) == 201
    assert raised(free(state_reason="Nodes required for job are DOWN, DRAINED or reserved for jobs")) == 201
    assert raised(free(), priority=500) == 1
    assert raised(free(), priority=501) == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"state": "RUNNING"},
        {"priority": 0},
        {"required_nodes": "n1"},
        {"state_reason": "Dependency"},
        {"state_reason": "AssocMaxJobsLimit"},
        {"partition": "other"},
        {"partition": "late"},
    ],
)
def test_ignores_jobs_that_block_no_start(facts: dict[str, Any]) -> None:
    assert raised(free(**facts)) == 0


def test_raises_no_start_against_higher_tier() -> None:
    assert raised(free(), free(partition="fast")) == 0


def test_raises_no_start_above_allowed_maximum() -> None:
    assert raised(free(), most=201) == 201
    assert raised(free(), most=200) == 0
    assert raised(free(), most=0) == 0


def test_compensates_age_lost_at_release() -> None:
    assert raised(free(), rules=PriorityPolicy(weights=PriorityWeights(age=100))) == 301
    assert raised(free(), priority=50, rules=PriorityPolicy(weights=PriorityWeights(age=100))) == 551


def test_raise_starts_from_nice_of_job_sent_to_bottom() -> None:
    assert raised(free(priority=1), priority=1, mine=MINE._replace(nice=7)) == 9


@pytest.mark.parametrize("most", [0, 10**6])
def test_restores_nice_value_when_pin_is_cleared(most: int) -> None:
    scene = Scene().only("six", "first")
    scene.tables["jobs"]["fields"] = list(dict.fromkeys([*scene.tables["jobs"]["fields"], "nice", "accrue_time"]))
    for record in scene.rows["jobs"]:
        record |= {"account": "lab", "qos": "normal", "nice": 40, "accrue_time": None}
    scene.job("first").update(priority=200_000, state_reason="Resources", partition=scene.job("six")["partition"])
    asking, child, number = PlayedAsking(), Played(scene), scene.job("six")["id"]
    asking.ready = [BackgroundCommandOutput(ALL | {"state": state(), "shares": "ID|FairShare\n3|0.500000\n"}, {})]
    backend = SlurmBackend(child, policy=PeriodicSitePolicyReader(asking, Clock()), most_boost=most)
    seen = backend.observe()
    (start,) = backend.resolve_layout([order(seen, number, "n2")])
    assert isinstance(start, StartOrder)
    settings = start.settings
    if not most:
        assert settings.nice is None
        assert "Nice" not in settings.restore
    else:
        priority = next(p.job.priority for p in seen.pending if p.job.id == number)
        assert settings.nice == 40 - (200_001 - (priority - 1000))
        assert settings.restore.endswith(" Nice=40")
