"""The preemption ledger: what it keeps over a restart, and what a damaged file costs."""

from __future__ import annotations

from collections import Counter

from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.store.preemption_ledger import PreemptionLedger
from cpsched_bridge.store.state_file import StateFile

WHAT = PreemptionUnderWay(7, (("n1", 1), ("n2", 3)), (Victim(1, 50, "requeue"), Victim(2, 60, "cancel")))
OTHER = PreemptionUnderWay(8, (("n1", 1),), (Victim(2, 60, "cancel"),))


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


def test_deleted_file_is_written_again(tmp_path):
    path = tmp_path / "state.sqlite"
    book = PreemptionLedger(StateFile(path))
    book.record_intended([(WHAT, "eve")], 100)
    path.unlink()
    book.record_intended([(OTHER, "bob")], 200)
    assert [each.what for each in PreemptionLedger(StateFile(path)).entries] == [WHAT, OTHER]
