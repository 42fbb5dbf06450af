"""SiteFactor: the ranks derived from sprio's output, and the commands sent to scontrol."""

from __future__ import annotations

import pytest

from cpsched_bridge.adapters.slurm.site_factor import SiteFactorBoostAccess
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import ControllerCallError, make_not_sent_error
from cpsched_bridge.errors import BackendUnavailable
from cpsched_bridge.ports import BoostCommand
from tests.builders import a_slurm_job


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
    assert (found.id, found.jobs, found.own, found.points, found.tier) == (7, (7,), 200, 500, 3)
    assert not found.fixed
    assert not found.hidden


def test_computes_priority_shown_as_1_from_factors():
    assert rank(Slurm(line(7, 1, age=10, nice=300)), record(7)).own == -290
    assert rank(Slurm(line(7, 1, site=-20)), record(7)).own == 0


def test_tres_is_one_of_the_factors():
    assert rank(Slurm(line(7, 1, nice=300, tres="cpu=10.00,mem=5.50")), record(7)).own == -284


def test_priority_set_by_administrator_is_fixed():
    assert rank(Slurm(line(7, 5000, age=3)), record(7)).fixed


def test_boost_undone_by_backfill_counts_as_not_set():
    """Backfill up to 26.05.2 restores the old priority. sprio shows no site factor if `Priority` itself is set."""
    found = rank(Slurm(line(7, 200, site=500, age=200)), record(7))
    assert (found.own, found.points, found.fixed) == (200, 0, False)


@pytest.mark.parametrize("priority", [206, 194])
def test_rounded_factors_are_no_fixed_priority(priority):
    assert not rank(Slurm(line(7, priority, age=200)), record(7)).fixed


def test_job_missing_in_sprio_is_hidden():
    assert rank(Slurm(), record(7, priority=0)).hidden


def test_job_in_several_partitions_is_hidden():
    assert rank(Slurm(line(7, 5), line(7, 9)), record(7, partition="a,b")).hidden


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


def test_boosts_never_replace_foreign_site_factor():
    slurm = Slurm(line(1, 9), line(2, 9, site=50), line(3, 9, site=51))
    slurm.advising.read_ranks([record(1), record(2), record(3)], {})
    found = slurm.advising.set_job_boosts(
        [BoostCommand(1, 5), BoostCommand(2, 6, (40, 50)), BoostCommand(3, 7, (40, 50))]
    )
    assert [each.result for each in found] == ["done", "done", "refused"]
    assert "SiteFactor=51 was set by another actor" in found[2].detail
    assert slurm.scontrol.told == ["update JobId=1 SiteFactor=5", "update JobId=2 SiteFactor=6"]


def test_held_job_accepts_only_zero_points():
    slurm = Slurm()
    slurm.advising.read_ranks([record(1, priority=0), record(2, priority=0)], {})
    found = slurm.advising.set_job_boosts([BoostCommand(1, 5), BoostCommand(2, 0, (9,))])
    assert [each.result for each in found] == ["refused", "done"]
    assert slurm.scontrol.told == ["update JobId=2 SiteFactor=0"]


def test_removal_succeeds_and_boost_fails_for_missing_job():
    slurm = Slurm(line(1, 9), line(2, 9))
    slurm.advising.read_ranks([record(1), record(2)], {})
    slurm.scontrol.says = dict.fromkeys(["JobId=1", "JobId=2"], "Invalid job id specified for job 1")
    found = slurm.advising.set_job_boosts([BoostCommand(1, 0), BoostCommand(2, 5), BoostCommand(3, 5)])
    assert [each.result for each in found] == ["done", "refused", "refused"]


def test_unanswered_command_has_unknown_outcome():
    slurm = Slurm(line(1, 9), line(2, 9), line(3, 9))
    slurm.advising.read_ranks([record(1), record(2), record(3)], {})
    slurm.scontrol.says = {
        "JobId=1": ControllerCallError("no answer", lost=True),
        "JobId=2": "Unable to contact slurm controller (connect failure)",
        "JobId=3": make_not_sent_error("scontrol has taken 3 s"),
    }
    found = slurm.advising.set_job_boosts([BoostCommand(id, 5) for id in (1, 2, 3)])
    assert [each.result for each in found] == ["unknown", "unknown", "refused"]
    assert found[2].code == "not_sent"


def test_reads_sprio_again_every_100_changes():
    slurm = Slurm(*(line(id, 9) for id in range(1, 251)))
    slurm.advising.read_ranks([record(id) for id in range(1, 251)], {})
    slurm.looks = 0
    assert {each.result for each in slurm.advising.set_job_boosts([BoostCommand(id, 5) for id in range(1, 251)])} == {
        "done"
    }
    assert slurm.looks == 3


def test_unanswered_sprio_fails_before_any_command():
    slurm = Slurm(line(1, 9))
    slurm.advising.read_ranks([record(1)], {})
    slurm.lines = None
    with pytest.raises(BackendUnavailable):
        slurm.advising.set_job_boosts([BoostCommand(1, 5)])
    with pytest.raises(BackendUnavailable):
        slurm.advising.read_ranks([record(1)], {})
    assert slurm.scontrol.told == []
