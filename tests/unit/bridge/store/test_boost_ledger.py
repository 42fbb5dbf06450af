"""The boost ledger: its contents, and the handling of a damaged or missing file."""

from __future__ import annotations

import sqlite3

import pytest

from cpsched_bridge.program.release_all import open_boost_ledger
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.boost_ledger import MAX_STORED_BOOSTS, BoostedJob, BoostLedger


def test_next_bridge_knows_intended_boosts(tmp_path):
    book = BoostLedger(tmp_path / "boosts.sqlite")
    book.record_intended({7: 500, 8: 20}, now_s=100)
    again = BoostLedger(tmp_path / "boosts.sqlite")  # the first is killed: nothing is closed
    assert again.list_possible_boosts(7) == (500,)
    assert again.by_id[8].since_s == 100


def test_keeps_last_8_values_of_each_job(tmp_path):
    """With the ninth value the oldest is forgotten, never the one that is about to be sent."""
    book = BoostLedger(tmp_path / "boosts.sqlite")
    for points in (5, 9, 5):
        book.record_intended({7: points, 8: 1}, now_s=points)
    assert dict(book.by_id) == {7: BoostedJob((9, 5), 5), 8: BoostedJob((1,), 5)}
    for points in range(20, 20 + MAX_STORED_BOOSTS + 1):
        book.record_intended({7: points}, now_s=points)
        assert book.list_possible_boosts(7)[-1] == points
    assert (
        book.list_possible_boosts(7)
        == tuple(range(21, 29))
        == BoostLedger(tmp_path / "boosts.sqlite").list_possible_boosts(7)
    )


def test_array_task_includes_points_of_its_array(tmp_path):
    book = BoostLedger(tmp_path / "boosts.sqlite")
    book.record_intended({5: 70}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70,)
    assert book.list_possible_boosts(12, 0) == ()
    book.record_intended({12: 3}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70, 3)


def test_reading_creates_no_file(tmp_path):
    BoostLedger(tmp_path / "boosts.sqlite").close()
    assert BoostLedger(tmp_path / "boosts.sqlite", read_only=True).by_id == {}
    assert list(tmp_path.iterdir()) == []


def test_file_is_private_to_owner(tmp_path):
    BoostLedger(tmp_path / "boosts.sqlite").record_intended({1: 1}, 0)
    assert (tmp_path / "boosts.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"no database at all", b"SQLite format 3\0" + b"\xff" * 3000])
def test_renames_and_reports_damaged_file(tmp_path, damage):
    path = tmp_path / "boosts.sqlite"
    path.write_bytes(damage)
    book = BoostLedger(path)
    assert book.by_id == {}
    assert [each.kind for each in book.unreported_events] == ["boosts_damaged"]
    assert "set by another actor" in book.unreported_events[0].detail
    book.record_intended({1: 5}, 0)
    assert BoostLedger(path).list_possible_boosts(1) == (5,)


def test_rejects_row_that_was_changed(tmp_path):
    path = tmp_path / "boosts.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5}, 0)
    book.close()
    with sqlite3.connect(path) as db:
        db.execute("update boosts set points = '[6]'")
    assert BoostLedger(path, read_only=True).unreported_events[0].kind == "boosts_unreadable"
    assert BoostLedger(path).by_id == {}


def test_rewrites_deleted_file_from_memory(tmp_path):
    path = tmp_path / "boosts.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5}, 0)
    for file in tmp_path.iterdir():
        file.unlink()
    book.record_intended({2: 6}, 0)
    assert set(BoostLedger(path).by_id) == {1, 2}


def test_unwritable_disk_leaves_memory_unchanged(tmp_path):
    book = BoostLedger(tmp_path / "missing" / "boosts.sqlite")
    with pytest.raises(sqlite3.Error):
        book.record_intended({1: 5}, 0)
    assert book.by_id == {}


def test_prunes_old_missing_jobs_on_disk(tmp_path):
    """An entry of just the bound's second stays."""
    path = tmp_path / "boosts.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5, 2: 6, 4: 8, 5: 9}, 49)
    book.record_intended({3: 7}, 50)
    book.prune(iter([2]), before_s=50)
    assert set(book.by_id) == {2, 3} == set(BoostLedger(path).by_id)


def test_damage_during_write_loses_no_entry(tmp_path):
    """The file is set aside under a name that the mishap reports, and all entries are written to a new one."""
    path = tmp_path / "boosts.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5}, 0)
    book.close()
    path.write_bytes(b"no database at all")
    book.record_intended({2: 6}, 0)
    assert {id: each.points for id, each in BoostLedger(path).by_id.items()} == {1: (5,), 2: (6,)}
    (aside,) = (
        each for each in tmp_path.iterdir() if each.name.startswith("boosts.sqlite.") and each.stat().st_size == 18
    )
    (mishap,) = book.unreported_events
    assert mishap.kind == "boosts_damaged"
    assert mishap.detail.endswith(f"moved to {aside.name}")


@pytest.mark.parametrize(("names", "boost"), [(["advice"], 500), (["boosts"], 500), (["advice", "boosts"], 501)])
def test_release_all_reads_file_of_older_build(tmp_path, names, boost):
    for number, name in enumerate(names):
        BoostLedger(tmp_path / f"{name}.sqlite").record_intended({7: 500 + number}, now_s=100)
    assert open_boost_ledger(Settings(state_dir=tmp_path)).by_id == {7: BoostedJob((boost,), 100)}
