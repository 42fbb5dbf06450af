"""The bridge's journal and metrics: starts, ends, gaps, overdue jobs and checks."""

import sqlite3

import pytest

from cpsched_bridge.errors import BackendUnavailable
from cpsched_bridge.ports import Hold, Outcome, ReadinessCheck
from cpsched_bridge.store.ledger import LedgerState
from tests.bridges import Metrics
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace
from tests.stores import full


def told(bridge, *kinds):
    return [(event.kind, event.detail) for event in bridge.journal.list_events() if event.kind in kinds]


def begin(bridge_at, at_s=0.0, **changes):
    bridge = bridge_at(FakeCluster(), pace=FakePace(at_s=at_s), **changes)
    bridge.run()
    return bridge


def test_distinguishes_first_start_restart_and_kill(bridge_at):
    first = begin(bridge_at)
    assert told(first, "started") == [("started", "no previous bridge is recorded")]
    assert first.journal.list_events()[-1].kind == "stopped"
    first.close_files()
    second = begin(bridge_at, 61.0)
    assert told(second, "started")[-1] == ("started", "the previous bridge stopped 60 s ago: in order")
    assert told(second, "unclean_stop") == []
    second.close_files()
    bridge_at(FakeCluster(), pace=FakePace(at_s=100.0), cycles=1).close_files()
    last = begin(bridge_at, 130.0)
    assert told(last, "unclean_stop") == [
        ("unclean_stop", "the previous bridge crashed or was killed; its last recorded activity was 30 s ago")
    ]
    assert told(last, "started")[-1][1] == "after an unclean stop"


def test_detects_kill_by_rounds_after_last_event(bridge_at):
    begin(bridge_at).close_files()
    killed = bridge_at(FakeCluster(), pace=FakePace(at_s=10.0), cycles=1)
    killed.close_files()
    with sqlite3.connect(killed.settings.state_dir / "journal.sqlite") as db:
        db.execute("delete from events where round > 1")
    db.close()
    assert told(begin(bridge_at, 15.0), "unclean_stop") != []


def test_broken_journal_prevents_neither_start_nor_stop(bridge_at, monkeypatch):
    bridge = bridge_at(FakeCluster())
    monkeypatch.setattr(bridge.journal, "find_last_activity", full)
    monkeypatch.setattr(bridge.journal, "write_events", full)
    assert bridge.run() == []


@pytest.mark.parametrize(("late_s", "gap"), [(0.0, False), (20.0, False), (20.1, True), (85.0, True)])
def test_reports_cycle_that_begins_late(bridge_at, late_s, gap):
    metrics = Metrics()
    pace = FakePace(cycles=2)
    bridge = bridge_at(FakeCluster(), pace=pace, cycle={"interval_s": 2.0}, listeners=(metrics,))
    wait = pace.wait

    def oversleep(seconds):
        pace.at_s += late_s
        return wait(seconds)

    pace.wait = oversleep
    bridge.run()
    assert told(bridge, "cycle_gap") == ([("cycle_gap", f"this cycle began {late_s:.1f} s late")] if gap else [])
    assert metrics.value("cpsched_cycle_late_seconds_total") == pytest.approx(late_s if gap else 0.0)


def test_backoff_after_failures_is_no_gap(bridge_at):
    cluster = FakeCluster()
    cluster.fail("observe", BackendUnavailable("gone"), times=8)
    bridge = bridge_at(cluster, pace=FakePace(cycles=40), cycle={"max_backoff_s": 60})
    bridge.run()
    assert told(bridge, "cycle_gap") == []


STATES = {
    LedgerState.RELEASING: ("release", {"start": {"adopt": False}}),
    LedgerState.HOLDING: ("hold", {"start": {"max_failures": 10**6}}),
}


@pytest.mark.parametrize("unsettled", STATES)
def test_reports_overdue_intent_once_and_counts_it_meanwhile(bridge_at, unsettled):
    metrics = Metrics()
    command, changes = STATES[unsettled]
    cluster, pace = FakeCluster(), FakePace()
    cluster.submit(a_job(7), hold=Hold.NONE if unsettled is LedgerState.HOLDING else Hold.PLUGIN)
    bridge = bridge_at(cluster, pace=pace, listeners=(metrics,), **changes)
    if unsettled is LedgerState.RELEASING:
        bridge.pause.pause("so that it is released")
    counts = []
    for second in range(0, 200, 20):
        cluster.now_s = second
        pace.at_s = 1000.0 + second
        cluster.collect_output(command, [Outcome(7, "refused", "not now")])
        bridge.cycle()
        counts.append(metrics.value("cpsched_overdue_jobs"))
    assert bridge.ledger.get(7).state is unsettled
    assert counts == [0] * 7 + [1] * 3, "after more than 120 s"
    ((_, words),) = told(bridge, "intent_overdue")
    assert words.startswith(f"{unsettled} for 140 s")
    pace.at_s, cluster.now_s = 1240.0, 240
    bridge.cycle()
    cluster.cancel(7)
    bridge.cycle()
    assert metrics.value("cpsched_overdue_jobs") == 0


def a_clock(detail, ok=False):
    return ReadinessCheck("clock", ok, detail)


RIGHT, LATE, LATER = a_clock("the same", ok=True), a_clock("4 s apart"), a_clock("9 s apart")
ABSENT, THERE = ReadinessCheck("plugin", False, "absent", "install it", False), ReadinessCheck("plugin", True, "there")


def test_repeats_checks_periodically_and_reports_changes(bridge_at):
    cluster, metrics = FakeCluster(), Metrics()
    bridge = bridge_at(cluster, listeners=(metrics,), cycle={"checks_every_s": 60})
    for at_s, cluster.readiness, told, ok in (
        (0.0, [RIGHT, ABSENT], [], [None, None]),
        (59.9, [RIGHT, ABSENT], [], [None, None]),
        (60.0, [RIGHT, ABSENT], [("check_failed", "plugin: absent; install it")], [1, 0]),
        (119.9, [LATE, ABSENT], [], [1, 0]),
        (120.0, [LATE, ABSENT], [("check_failed", "clock: 4 s apart")], [0, 0]),
        (180.0, [LATER, THERE], [("check_failed", "clock: 9 s apart"), ("check_recovered", "plugin")], [0, 1]),
        (240.0, [RIGHT, THERE], [("check_recovered", "clock")], [1, 1]),
        (300.0, [RIGHT, THERE], [], [1, 1]),
    ):
        bridge.pace.at_s = at_s
        events = [(h.kind, h.detail) for h in bridge.cycle().bridge_events if h.kind.startswith("check_")]
        checks = [("clock", "yes"), ("plugin", "no")]
        found = [metrics.value("cpsched_check_ok", check=name, required=required) for name, required in checks]
        assert (events, found) == (told, ok), at_s


def test_unanswered_checks_are_failed_check_only(bridge_at):
    cluster = FakeCluster()
    bridge = bridge_at(cluster, cycle={"checks_every_s": 10})
    cluster.fail("run_checks", BackendUnavailable("gone"))
    bridge.pace.at_s = 10.0
    report = bridge.cycle()
    assert report.result == "ok"
    assert [(h.kind, h.detail) for h in report.bridge_events[-1:]] == [("check_failed", "checks: gone")]


def test_runs_no_checks_if_disabled(bridge_at, monkeypatch):
    bridge = bridge_at(FakeCluster(), cycle={"checks_every_s": 0})
    monkeypatch.delattr(FakeCluster, "run_checks")
    bridge.pace.at_s = 10.0**6
    assert bridge.cycle().result == "ok"
