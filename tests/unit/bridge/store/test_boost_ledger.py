"""The book of advice: what it remembers, and what becomes of a damaged or missing file."""

from __future__ import annotations

import sqlite3

import pytest

from cpsched_bridge.store.boost_ledger import REMEMBERED, BoostedJob, BoostLedger


def test_what_was_about_to_be_told_is_known_to_the_next_bridge(tmp_path):
    book = BoostLedger(tmp_path / "advice.sqlite")
    book.record_intended({7: 500, 8: 20}, now_s=100)
    again = BoostLedger(tmp_path / "advice.sqlite")  # the first is killed: nothing is closed
    assert again.list_possible_boosts(7) == (500,)
    assert again.by_id[8].since_s == 100


def test_the_last_values_of_each_job_are_known_the_newest_last(tmp_path):
    """With the ninth value the oldest is forgotten, never the one that is about to be sent."""
    book = BoostLedger(tmp_path / "advice.sqlite")
    for points in (5, 9, 5):
        book.record_intended({7: points, 8: 1}, now_s=points)
    assert dict(book.by_id) == {7: BoostedJob((9, 5), 5), 8: BoostedJob((1,), 5)}
    for points in range(20, 20 + REMEMBERED + 1):
        book.record_intended({7: points}, now_s=points)
        assert book.list_possible_boosts(7)[-1] == points
    assert (
        book.list_possible_boosts(7)
        == tuple(range(21, 29))
        == BoostLedger(tmp_path / "advice.sqlite").list_possible_boosts(7)
    )


def test_a_task_has_the_points_of_its_array_too_its_own_last(tmp_path):
    book = BoostLedger(tmp_path / "advice.sqlite")
    book.record_intended({5: 70}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70,)
    assert book.list_possible_boosts(12, 0) == ()
    book.record_intended({12: 3}, now_s=1)
    assert book.list_possible_boosts(12, 5) == (70, 3)


def test_reading_makes_no_file(tmp_path):
    BoostLedger(tmp_path / "advice.sqlite").close()
    assert BoostLedger.open_tolerant_read_only(tmp_path / "advice.sqlite").by_id == {}
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_its_owners_alone(tmp_path):
    BoostLedger(tmp_path / "advice.sqlite").record_intended({1: 1}, 0)
    assert (tmp_path / "advice.sqlite").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"no database at all", b"SQLite format 3\0" + b"\xff" * 3000])
def test_a_damaged_file_is_set_aside_and_told(tmp_path, damage):
    path = tmp_path / "advice.sqlite"
    path.write_bytes(damage)
    book = BoostLedger(path)
    assert book.by_id == {}
    assert [each.kind for each in book.mishaps] == ["advice_damaged"]
    assert "another actor's" in book.mishaps[0].detail
    book.record_intended({1: 5}, 0)
    assert BoostLedger(path).list_possible_boosts(1) == (5,)


def test_a_row_that_was_changed_is_not_believed(tmp_path):
    path = tmp_path / "advice.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5}, 0)
    book.close()
    with sqlite3.connect(path) as db:
        db.execute("update advice set points = '[6]'")
    assert BoostLedger.open_tolerant_read_only(path).mishaps[0].kind == "advice_unreadable"
    assert BoostLedger(path).by_id == {}


def test_a_file_that_is_taken_away_is_written_anew_from_memory(tmp_path):
    path = tmp_path / "advice.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5}, 0)
    for file in tmp_path.iterdir():
        file.unlink()
    book.record_intended({2: 6}, 0)
    assert set(BoostLedger(path).by_id) == {1, 2}


def test_where_the_disk_takes_nothing_nothing_is_remembered_either(tmp_path):
    book = BoostLedger(tmp_path / "missing" / "advice.sqlite")
    with pytest.raises(sqlite3.Error):
        book.record_intended({1: 5}, 0)
    assert book.by_id == {}


def test_all_old_jobs_that_are_gone_are_forgotten_on_disk_too(tmp_path):
    """An entry of just the bound's second stays."""
    path = tmp_path / "advice.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5, 2: 6, 4: 8, 5: 9}, 49)
    book.record_intended({3: 7}, 50)
    book.prune(iter([2]), before_s=50)
    assert set(book.by_id) == {2, 3} == set(BoostLedger(path).by_id)


def test_damage_met_while_writing_loses_no_entry(tmp_path):
    """The file is set aside under a name that the mishap reports, and all entries are written to a new one."""
    path = tmp_path / "advice.sqlite"
    book = BoostLedger(path)
    book.record_intended({1: 5}, 0)
    book.close()
    path.write_bytes(b"no database at all")
    book.record_intended({2: 6}, 0)
    assert {id: each.points for id, each in BoostLedger(path).by_id.items()} == {1: (5,), 2: (6,)}
    (aside,) = (
        each for each in tmp_path.iterdir() if each.name.startswith("advice.sqlite.") and each.stat().st_size == 18
    )
    (mishap,) = book.mishaps
    assert mishap.kind == "advice_damaged"
    assert mishap.detail.endswith(f"moved to {aside.name}")
