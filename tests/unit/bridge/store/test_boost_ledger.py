"""The boost ledger: its contents, and the handling of a damaged or missing file."""

from __future__ import annotations

import sqlite3

import pytest

from cpsched_bridge.store.boost_ledger import MAX_STORED_BOOSTS, BoostedJob, BoostLedger
from cpsched_bridge.store.state_file import StateFile


def test_next_bridge_knows_intended_boosts(tmp_path):
    book = BoostLedger(StateFile(tmp_path / "state.sqlite"))
    book.record_intended({7: 500, 8: 20}, now_s=100)
    again = BoostLedger(StateFile(tmp_path / "state.sqlite"))  # the first is killed: nothing is closed
    assert again.list_possible_boosts(7) == (500,)
    assert again.by_id[8].since_s == 100


def test_keeps_last_8_values_of_each_job(tmp_path):
    """With the ninth value the oldest is forgotten, never the one that is about to be sent."""
    book = BoostLedger(StateFile(tmp_path / "state.sqlite"))
    for points in (5, 9, 5):
        book.record_intended({7: points, 8: 1}, now_s=points)
    assert dict(book.by_id) == {7: BoostedJob((9, 5), 5), 8: BoostedJob((1,), 5)}
    for points in range(20, 20 + MAX_STORED_BOOSTS + 1):
        book.record_intended({7: points}, now_s=points)
        assert book.list_possible_boosts(7)[-1] == points
    assert (
        book.list_possible_boosts(7)
        == tuple(range(21, 29))
        == BoostLedger(StateFile(tmp_path / "state.sqlite")).list_possible_boosts(7)
    )


def test_array_task_includes_points_of_its_array(tmp_path):
    book = BoostLedger(StateFile(tmp_path / "state.sqlite"))
    book.record_intended({5: 70}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70,)
    assert book.list_possible_boosts(12, 0) == ()
    book.record_intended({12: 3}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70, 3)


def test_file_is_private_to_owner(tmp_path):
    BoostLedger(StateFile(tmp_path / "state.sqlite")).record_intended({1: 1}, 0)
    assert (tmp_path / "state.sqlite").stat().st_mode & 0o077 == 0


def test_rewrites_deleted_file_from_memory(tmp_path):
    path = tmp_path / "state.sqlite"
    book = BoostLedger(StateFile(path))
    book.record_intended({1: 5}, 0)
    for file in tmp_path.iterdir():
        file.unlink()
    book.record_intended({2: 6}, 0)
    assert set(BoostLedger(StateFile(path)).by_id) == {1, 2}


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
