"""SiteFactor: the ranks derived from sprio's output, and the commands sent to scontrol."""

from __future__ import annotations

from typing import Any

import pytest

from cpsched.site.multifactor_priority import PriorityPolicy, PriorityWeights
from cpsched.site.site_policy import PartitionPolicy, SitePolicy
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmPartition
from cpsched_bridge.adapters.slurm.background_queries import BackgroundCommandOutput, PeriodicSitePolicyReader
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_boosts import SiteFactorBoostAccess, compute_start_boosts
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import ControllerCallError, make_not_sent_error
from cpsched_bridge.errors import BackendUnavailable
from cpsched_bridge.ports import BoostCommand, QueueRank, StartOrder
from tests.builders import a_slurm_job
from tests.slurm_replies import ALL
from tests.unit.bridge.adapters.slurm.policy.test_priority_ranking import state
from tests.unit.bridge.adapters.slurm.scenes import Scene
from tests.unit.bridge.adapters.slurm.test_background_queries import Clock
from tests.unit.bridge.adapters.slurm.test_background_queries import Played as PlayedAsking
from tests.unit.bridge.adapters.slurm.test_slurm_backend import Played, order


def record(number: int, **fields):
    return a_slurm_job(number, **{"priority": 1, "partition": "main", **fields})


def line(number: int, priority: int, site: int = 0, age: int = 0, nice: int = 0, tres: str = "") -> str:
    """As sprio 26.05 prints it: number, priority, age, association, fair share, size, partition, QOS, nice, site."""
    return f"  {number} {priority} {age} 0 0 0 0 0 {nice} {site} {tres}"


class Scontrol:
    """A stand-in for a session: records its input and gives prepared answers."""

    def __init__(self, within_s: float) -> None:
        self.told: list[str] = []
        self.says: dict[str, str | Exception] = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def send_command(self, command: str) -> str:
        self.told.append(command)
        said = self.says.get(command.split()[1], "")
        if isinstance(said, Exception):
            raise said
        return said


class Slurm:
    def __init__(self, *lines: str) -> None:
        self.lines: list[str] | None = list(lines)
        self.scontrol = Scontrol(1)
        self.looks = 0
        self.advising = SiteFactorBoostAccess(3.0, self.ask, lambda within_s: self.scontrol)  # type: ignore[arg-type,return-value]

    def ask(self, command, timeout_s):
        self.looks += 1
        assert command[0] == "sprio"
        return None if self.lines is None else "\n".join(self.lines)


def rank(slurm: Slurm, *records, tiers=None):
    (found,) = slurm.advising.read_ranks(records, tiers or {})
    return found


def test_rank_separates_slurm_priority_and_points():
    found = rank(Slurm(line(7, 700, site=500, age=200)), record(7), tiers={"main": 3})
    assert found == QueueRank(7, (7,), 200, 500, 3, "7")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        # A priority shown as 1 is computed from its factors, of which TRES is one.
        (line(7, 1, age=10, nice=300), (-290, 0, False)),
        (line(7, 1, site=-20), (0, -20, False)),
        (line(7, 1, nice=300, tres="cpu=10.00,mem=5.50"), (-284, 0, False)),
        # An administrator set the priority.
        (line(7, 5000, age=3), (5000, 0, True)),
        # Backfill up to 26.05.2 restores the old priority. sprio shows no site factor if `Priority` itself is set.
        (line(7, 200, site=500, age=200), (200, 0, False)),
        # Rounded factors are no fixed priority.
        (line(7, 206, age=200), (206, 0, False)),
        (line(7, 194, age=200), (194, 0, False)),
    ],
)
def test_rank_of_priority_and_factors(shown, expected):
    found = rank(Slurm(shown), record(7))
    assert (found.own, found.points, found.fixed) == expected


@pytest.mark.parametrize(("lines", "fields"), [((), {"priority": 0}), ((line(7, 5), line(7, 9)), {"partition": "a,b"})])
def test_job_missing_in_sprio_or_in_several_partitions_is_hidden(lines, fields):
    assert rank(Slurm(*lines), record(7, **fields)).hidden


def test_array_tasks_share_rank_and_split_task_keeps_array():
    slurm = Slurm(line(5, 9), line(8, 3))
    together = record(5, array_id=5, array_tasks_waiting="1-3")
    apart = record(8, array_id=5, array_task_id=4)
    both = slurm.advising.read_ranks([together, apart], {})
    assert both[0].jobs == tuple(slurm_job_ids.make_task_id(5, task) for task in (1, 2, 3))
    assert (both[0].label, both[0].array_id) == ("5", 0)
    assert (both[1].jobs, both[1].label, both[1].array_id) == ((slurm_job_ids.make_task_id(5, 4),), "5_4", 5)
    slurm.advising.set_job_boosts([BoostCommand(5, 10), BoostCommand(8, 20)])
    assert slurm.scontrol.told == ["update JobId=5_[1-3] SiteFactor=10", "update JobId=5_4 SiteFactor=20"]


def test_running_jobs_have_no_rank():
    assert Slurm(line(7, 1)).advising.read_ranks([record(7, state="RUNNING")], {}) == []


def boosted(slurm: Slurm, *commands: BoostCommand, **fields) -> list[tuple[str, str]]:
    """Rank jobs 1, 2 and 3, and return the results and codes of the commands."""
    slurm.advising.read_ranks([record(number, **fields) for number in (1, 2, 3)], {})
    return [(each.result, each.code) for each in slurm.advising.set_job_boosts(commands)]


DONE, REFUSED = ("done", ""), ("refused", "")


def test_boosts_never_replace_foreign_site_factor():
    slurm = Slurm(line(1, 9), line(2, 9, site=50), line(3, 9, site=51))
    commands = BoostCommand(1, 5), BoostCommand(2, 6, (40, 50)), BoostCommand(3, 7, (40, 50))
    assert boosted(slurm, *commands) == [DONE, DONE, REFUSED]
    assert slurm.scontrol.told == ["update JobId=1 SiteFactor=5", "update JobId=2 SiteFactor=6"]
    (outcome,) = slurm.advising.set_job_boosts(commands[2:])
    assert outcome.detail == "SiteFactor=51 was set by another actor"


def test_held_job_accepts_only_zero_points():
    slurm = Slurm()
    assert boosted(slurm, BoostCommand(1, 5), BoostCommand(2, 0, (9,)), priority=0) == [REFUSED, DONE]
    assert slurm.scontrol.told == ["update JobId=2 SiteFactor=0"]


def test_removal_succeeds_and_boost_fails_for_missing_job():
    slurm = Slurm(line(1, 9), line(2, 9))
    slurm.scontrol.says = dict.fromkeys(["JobId=1", "JobId=2"], "Invalid job id specified for job 1")
    found = boosted(slurm, BoostCommand(1, 0), BoostCommand(2, 5), BoostCommand(4, 5))
    assert found == [DONE, REFUSED, REFUSED]


def test_unanswered_command_has_unknown_outcome():
    slurm = Slurm(line(1, 9), line(2, 9), line(3, 9))
    slurm.scontrol.says = {
        "JobId=1": ControllerCallError("no answer", lost=True),
        "JobId=2": "Unable to contact slurm controller (connect failure)",
        "JobId=3": make_not_sent_error("scontrol has taken 3 s"),
    }
    found = boosted(slurm, *(BoostCommand(id, 5) for id in (1, 2, 3)))
    assert found == [("unknown", ""), ("unknown", ""), ("refused", "not_sent")]


def test_reads_sprio_again_every_100_changes():
    slurm = Slurm(*(line(id, 9) for id in range(1, 251)))
    slurm.advising.read_ranks([record(id) for id in range(1, 251)], {})
    outcomes = slurm.advising.set_job_boosts([BoostCommand(id, 5) for id in range(1, 251)])
    assert ({each.result for each in outcomes}, slurm.looks) == ({"done"}, 1 + 3)


def test_unanswered_sprio_fails_before_any_command():
    slurm = Slurm(line(1, 9))
    slurm.advising.read_ranks([record(1)], {})
    slurm.lines = None
    with pytest.raises(BackendUnavailable):
        slurm.advising.set_job_boosts([BoostCommand(1, 5)])
    with pytest.raises(BackendUnavailable):
        slurm.advising.read_ranks([record(1)], {})
    assert slurm.scontrol.told == []


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


LOSES_AGE = PriorityPolicy(weights=PriorityWeights(age=100))


@pytest.mark.parametrize(
    ("jobs", "own", "points"),
    [
        # The start is raised just above the highest job that may block it.
        ([free(), free(priority=420)], {}, 201),
        ([free(partition="part")], {}, 201),
        ([free(partition="other,part")], {}, 201),
        ([free(state_reason="Nodes required for job are DOWN, DRAINED or reserved for jobs")], {}, 201),
        ([free()], {"priority": 500}, 1),
        ([free()], {"priority": 501}, 0),
        # These jobs block no start,
        ([free(state="RUNNING")], {}, 0),
        ([free(priority=0)], {}, 0),
        ([free(required_nodes="n1")], {}, 0),
        ([free(state_reason="Dependency")], {}, 0),
        ([free(state_reason="AssocMaxJobsLimit")], {}, 0),
        ([free(partition="other")], {}, 0),
        ([free(partition="late")], {}, 0),
        # and points have no effect against a higher tier.
        ([free(), free(partition="fast")], {}, 0),
        ([free()], {"most": 201}, 201),
        ([free()], {"most": 200}, 0),
        ([free()], {"most": 0}, 0),
        # A release resets the age. The job's nice value lowers a priority to 1.
        ([free()], {"rules": LOSES_AGE}, 301),
        ([free()], {"rules": LOSES_AGE, "priority": 50}, 551),
        ([free(priority=1)], {"priority": 1, "mine": MINE._replace(nice=7)}, 9),
    ],
)
def test_raises_start_just_above_highest_blocking_job(jobs: list[SlurmJob], own: dict[str, Any], points: int) -> None:
    assert raised(*jobs, **own) == points


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
    priority = next(p.job.priority for p in seen.pending if p.job.id == number)
    nice = 40 - (200_001 - (priority - 1000)) if most else None
    assert (start.settings.nice, start.settings.restore.endswith(" Nice=40")) == (nice, most > 0)
