"""The file of ended jobs: what was written is read again, each job once; damaged lines cost themselves alone."""

from dataclasses import replace

import pytest

from cpsched.model import EndedJob
from cpsched_bridge.store import weeks
from cpsched_bridge.store.weeks import WeeksFile
from tests.builders import a_cluster, a_job


def ended(id, submit_s=0, **facts):
    return EndedJob(a_job(id, submit_s=submit_s, user="ann", **facts), submit_s + 5, submit_s + 105), "all"


def test_jobs_come_back_each_once_by_submission(tmp_path):
    file = WeeksFile(tmp_path / "weeks.jsonl")
    file.add([ended(2, 50), ended(1, 10)])
    file.add([])
    file.add([ended(2, 50), ended(3, 60)])
    assert file.read(a_cluster()) == [ended(1, 10)[0], ended(2, 50)[0], ended(3, 60)[0]]
    assert [each.job.id for each in file.read(a_cluster(), from_s=50)] == [2, 3]
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_no_file_is_no_job(tmp_path):
    assert WeeksFile(tmp_path / "weeks.jsonl").read(a_cluster()) == []


@pytest.mark.parametrize("damage", ["\n[1, 2", "\n{}", "\n\x00\x00", "\n[[1]]", "\n" + "[" * 9000, "\n" * 9])
def test_a_damaged_line_costs_itself_alone(tmp_path, damage):
    file = WeeksFile(tmp_path / "weeks.jsonl")
    file.add([ended(1, 10)])
    with file.path.open("a") as opened:
        opened.write(damage)
    file.add([ended(2, 50)])
    assert [each.job.id for each in file.read(a_cluster())] == [1, 2]


def test_node_sets_are_found_by_name_and_what_made_a_job_wait_is_forgotten(tmp_path):
    file, cluster = WeeksFile(tmp_path / "weeks.jsonl"), a_cluster()
    file.add([(replace(ended(1, node_set=4)[0]), "gone"), (ended(2, node_set=0)[0], "all")])
    assert [each.job.request.node_set for each in file.read(cluster)] == [0, 0]


def test_jobs_of_a_machine_with_other_resources_are_left_out(tmp_path):
    file = WeeksFile(tmp_path / "weeks.jsonl")
    file.add([ended(1), ended(2, per_unit=(1, 8))])
    assert [each.job.id for each in file.read(a_cluster())] == [1]


def test_a_file_that_is_too_long_loses_its_older_half(tmp_path, monkeypatch):
    monkeypatch.setattr(weeks, "MOST_BYTES", 2000)
    file = WeeksFile(tmp_path / "weeks.jsonl")
    for id in range(1, 100):
        file.add([ended(id, id)])
    found = [each.job.id for each in file.read(a_cluster())]
    assert found[-1] == 99
    assert found[0] > 50
    assert file.path.stat().st_size < 2500
