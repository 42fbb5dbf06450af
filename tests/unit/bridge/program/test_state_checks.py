"""What `cpsched status` and `cpsched doctor` show of the bridge's choice of victims."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest

from cpsched_bridge.cycle.preemption_executor import HOUR_S, PAUSE_S
from cpsched_bridge.errors import CorruptFile
from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.program import bridge_reports, terminal_views
from cpsched_bridge.program.state_checks import (
    PreemptionStatus,
    check_victim_choice_not_paused,
    read_preemption_status,
)
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_tables import PreemptionLedger
from tests.bridges import a_bridge
from tests.fakes import FakeCluster

NOW_S = 1_000_000_000


def configured(tmp_path, **facts):
    return Settings.model_validate({"mode": "control", "state_dir": tmp_path, "preemption": {"choose": True}, **facts})


def record(tmp_path, at_s, victims, ineffective_s=None):
    """Record a preemption, which possibly had no effect."""
    file, what = StateFile(tmp_path / "state.sqlite"), tuple(Victim(id, 1, "requeue") for id in victims)
    book = PreemptionLedger(file)
    book.record_intended([(PreemptionUnderWay(9, (("n1", 1),), what), "eve")], at_s)
    if ineffective_s is not None:
        book.close_entry(book.open_by_job_id[9], "ineffective", ineffective_s)
    file.close()


@pytest.mark.parametrize("facts", [{"preemption": {"choose": False}}, {"mode": "shadow"}, {"mode": "advise"}])
def test_no_status_unless_bridge_chooses(tmp_path, facts):
    assert read_preemption_status(configured(tmp_path, **facts)) is None
    assert check_victim_choice_not_paused(configured(tmp_path, **facts)) == []


def test_counts_last_hour_and_shows_pause(tmp_path):
    settings = configured(tmp_path)
    assert read_preemption_status(settings, NOW_S) == PreemptionStatus(0, 0, None)
    assert not (tmp_path / "state.sqlite").exists()
    record(tmp_path, NOW_S - HOUR_S - 1, [1, 2, 3], NOW_S - HOUR_S)
    record(tmp_path, NOW_S - HOUR_S, [1, 2], NOW_S - 9)
    record(tmp_path, NOW_S - 5, [3])
    assert read_preemption_status(settings, NOW_S) == PreemptionStatus(2, 3, NOW_S - 9 + PAUSE_S)
    assert read_preemption_status(settings, NOW_S - 9 + PAUSE_S) == PreemptionStatus(1, 1, None)


def test_status_and_doctor_show_pause(tmp_path, capsys):
    now_s = int(time.time())
    bridge = a_bridge(tmp_path, FakeCluster(), preemption={"choose": True})
    (check,) = check_victim_choice_not_paused(bridge.settings)
    assert (check.ok, check.detail) == (True, "on; 0 preemptions, 0 victims in the last hour")
    record(tmp_path, now_s, [1, 2], now_s)
    terminal_views.print_status(bridge_reports.report_status(bridge.settings))
    assert "choice of victims: on; 1 preemption, 2 victims in the last hour; paused until " in capsys.readouterr().out
    assert asdict(bridge_reports.report_status(bridge.settings).preemption) == {
        "preemptions": 1,
        "victims": 2,
        "paused_until_s": now_s + PAUSE_S,
    }
    (check,) = check_victim_choice_not_paused(bridge.settings)
    assert (check.ok, check.required) == (False, False)


def test_unreadable_ledger_is_reported(tmp_path):
    settings = configured(tmp_path)
    (tmp_path / "state.sqlite").write_bytes(b"no database at all")
    with pytest.raises(CorruptFile, match=r"state\.sqlite"):
        read_preemption_status(settings)
    assert not check_victim_choice_not_paused(settings)[0].ok
    status = bridge_reports.report_status(settings)
    assert status.preemption is None
    assert any("state.sqlite" in line for line in status.unreadable)
    assert (tmp_path / "state.sqlite").read_bytes() == b"no database at all"
