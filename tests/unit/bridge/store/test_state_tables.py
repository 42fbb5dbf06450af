"""The boost ledger and the preemption ledger: their contents, and the handling of a damaged or missing file."""

from __future__ import annotations

import sqlite3
from collections import Counter

import pytest

from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_tables import MAX_STORED_BOOSTS, BoostedJob, BoostLedger, PreemptionLedger

WHAT = PreemptionUnderWay(7, (("n1", 1), ("n2", 3)), (Victim(1, 50, "requeue"), Victim(2, 60, "cancel")))
OTHER = PreemptionUnderWay(8, (("n1", 1),), (Victim(2, 60, "cancel"),))


def test_keeps_last_8_values_of_each_job(tmp_path):
    """With the ninth value the oldest is forgotten, never the one that is about to be sent."""
    book = BoostLedger(StateFile(tmp_path / "state.sqlite"))
    for points in (5, 9, 5):
        book.record_intended({7: points, 8: 1}, now_s=points)
    assert dict(book.by_id) == {7: BoostedJob((9, 5), 5), 8: BoostedJob((1,), 5)}
    for points in range(20, 20 + MAX_STORED_BOOSTS + 1):
        book.record_intended({7: points}, now_s=points)
        assert book.list_possible_boosts(7)[-1] == points
    assert book.list_possible_boosts(7) == tuple(range(21, 29))
    again = BoostLedger(StateFile(tmp_path / "state.sqlite"))  # the first is killed: nothing is closed
    assert again.by_id == book.by_id


def test_array_task_includes_points_of_its_array(tmp_path):
    book = BoostLedger(StateFile(tmp_path / "state.sqlite"))
    book.record_intended({5: 70}, now_s=1)
    assert (book.list_possible_boosts(12, 5), book.list_possible_boosts(12, 0)) == ((70,), ())
    book.record_intended({12: 3}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70, 3)


def test_unwritable_disk_leaves_memory_unchanged(tmp_path):
    file = StateFile(tmp_path / "state.sqlite")
    book = BoostLedger(file)
    file.db.execute("pragma query_only=on")
    with pytest.raises(sqlite3.Error):
        book.record_intended({1: 5}, 0)
    assert book.by_id == {}


def test_prunes_old_missing_jobs_on_disk(tmp_path):
    """An entry of just the bound's second stays."""
    path = tmp_path / "state.sqlite"
    book = BoostLedger(StateFile(path))
    book.record_intended({1: 5, 2: 6, 4: 8, 5: 9}, 49)
    book.record_intended({3: 7}, 50)
    book.prune(iter([2]), before_s=50)
    assert set(book.by_id) == {2, 3} == set(BoostLedger(StateFile(path)).by_id)


def test_entries_survive_a_restart(tmp_path):
    path = tmp_path / "state.sqlite"
    book = PreemptionLedger(StateFile(path))
    book.record_intended([(WHAT, "eve\udcff"), (OTHER, "bob")], 100)
    book.close_entry(book.open_by_job_id[8], "ineffective", 160)
    again = PreemptionLedger(StateFile(path))
    assert again.entries == book.entries
    assert [each.what for each in again.open_by_job_id.values()] == [WHAT]
    assert again.count_victim_choices_by_job() == {1: 1, 2: 2}
    assert again.count_by_user_since(100) == {"eve\udcff": 1, "bob": 1}
    assert again.count_by_user_since(101) == Counter()
    assert again.find_last_end_s_by_job("ineffective") == {8: 160}
    assert again.find_last_end_s_by_job("dropped") == {}
    again.record_intended([(OTHER, "bob")], 200)
    assert [each.number for each in again.entries] == [1, 2, 3]


def test_only_closed_entries_are_pruned(tmp_path):
    book = PreemptionLedger(StateFile(tmp_path / "state.sqlite"))
    book.record_intended([(WHAT, "eve"), (OTHER, "bob")], 100)
    book.close_entry(book.open_by_job_id[8], "started", 160)
    book.prune(160)
    assert len(book.entries) == 2
    book.prune(161)
    assert [each.what for each in PreemptionLedger(StateFile(tmp_path / "state.sqlite")).entries] == [WHAT]
