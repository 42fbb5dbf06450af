"""The bridge's journal and metrics: starts, ends, gaps, overdue jobs and checks."""

import sqlite3

import pytest

from cpsched_bridge.errors import BackendUnavailable
from cpsched_bridge.ports import Hold, Outcome, ReadinessCheck
from cpsched_bridge.store.ledger import LedgerState
from tests.bridges import Metrics
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace


@pytest.fixture
def metrics():
    exporter = Metrics()
    return exporter, exporter.value


def told(bridge, *kinds):
    return [(event.kind, event.detail) for event in bridge.journal.list_events() if event.kind in kinds]


def close(bridge):
    bridge.ledger.close()
    bridge.journal.close()


def begin(bridge_at, at_s=0.0, **changes):
    bridge = bridge_at(FakeCluster(), pace=FakePace(at_s=at_s), **changes)
    bridge.run()
    return bridge


def test_distinguishes_first_start_restart_and_kill(bridge_at):
    first = begin(bridge_at)
    assert told(first, "started") == [("started", "no previous bridge is recorded")]
    assert first.journal.list_events()[-1].kind == "stopped"
    close(first)
    second = begin(bridge_at, 61.0)
    assert told(second, "started")[-1] == ("started", "the previous bridge stopped 60 s ago: in order")
    assert told(second, "unclean_stop") == []
    close(second)
    killed = bridge_at(FakeCluster(), pace=FakePace(at_s=100.0))
    killed.cycle()
    close(killed)
    last = begin(bridge_at, 130.0)
    assert told(last, "unclean_stop") == [
        ("unclean_stop", "the previous bridge crashed or was killed; its last recorded activity was 30 s ago")
    ]
    assert told(last, "started")[-1][1] == "after an unclean stop"


def test_detects_kill_by_rounds_after_last_event(bridge_at):
    close(begin(bridge_at))
    killed = bridge_at(FakeCluster(), pace=FakePace(at_s=10.0))
    killed.cycle()
    close(killed)
    with sqlite3.connect(killed.settings.state_dir / "journal.sqlite") as db:
        db.execute("delete from events where round > 1")
    db.close()
    assert told(begin(bridge_at, 15.0), "unclean_stop") != []


def test_stop_reports_unfinished_releases(bridge_at):
    cluster = FakeCluster.of(a_job(1))
    cluster.drained = {0, 1, 2, 3}
    bridge = bridge_at(cluster)
    bridge.cycle()
    cluster.fail("release", BackendUnavailable("gone"), times=3)
    bridge.stop()
    assert told(bridge, "stopped") == [("stopped", "job 1 may still be held: gone")]


def test_broken_journal_prevents_neither_start_nor_stop(bridge_at, monkeypatch):
    bridge = bridge_at(FakeCluster())

    def broken(*_):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(bridge.journal, "find_last_activity", broken)
    monkeypatch.setattr(bridge.journal, "write_events", broken)
    assert bridge.run() == []


@pytest.mark.parametrize(("late_s", "gap"), [(0.0, False), (20.0, False), (20.1, True), (85.0, True)])
def test_reports_cycle_that_begins_late(bridge_at, metrics, late_s, gap):
    exporter, metric = metrics
    pace = FakePace(cycles=2)
    bridge = bridge_at(FakeCluster(), pace=pace, cycle={"interval_s": 2.0}, listeners=(exporter,))
    wait = pace.wait

    def oversleep(seconds):
        pace.at_s += late_s
        return wait(seconds)

    pace.wait = oversleep
    bridge.run()
    assert told(bridge, "cycle_gap") == ([("cycle_gap", f"this cycle began {late_s:.1f} s late")] if gap else [])
    assert metric("cpsched_cycle_late_seconds_total") == pytest.approx(late_s if gap else 0.0)


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
def test_reports_overdue_intent_once_and_counts_it_meanwhile(bridge_at, metrics, unsettled):
    exporter, metric = metrics
    command, changes = STATES[unsettled]
    cluster, pace = FakeCluster(), FakePace()
    cluster.submit(a_job(7), hold=Hold.NONE if unsettled is LedgerState.HOLDING else Hold.PLUGIN)
    bridge = bridge_at(cluster, pace=pace, listeners=(exporter,), **changes)
    if unsettled is LedgerState.RELEASING:
        bridge.pause.pause("so that it is released")
    counts = []
    for second in range(0, 200, 20):
        cluster.now_s = second
        pace.at_s = 1000.0 + second
        cluster.collect_output(command, [Outcome(7, "refused", "not now")])
        bridge.cycle()
        counts.append(metric("cpsched_overdue_jobs"))
    assert bridge.ledger.get(7).state is unsettled
    assert counts == [0] * 7 + [1] * 3, "after more than 120 s"
    ((_, words),) = told(bridge, "intent_overdue")
    assert words.startswith(f"{unsettled} for 140 s")
    pace.at_s, cluster.now_s = 1240.0, 240
    bridge.cycle()
    cluster.cancel(7)
    bridge.cycle()
    assert metric("cpsched_overdue_jobs") == 0


def test_repeats_checks_periodically_and_reports_changes(bridge_at, metrics):
    exporter, metric = metrics
    cluster, pace = FakeCluster(), FakePace()
    cluster.readiness = [
        ReadinessCheck("clock", True, "the same"),
        ReadinessCheck("plugin", False, "absent", "install it", False),
    ]
    bridge = bridge_at(cluster, pace=pace, listeners=(exporter,), cycle={"checks_every_s": 60})

    def at(seconds):
        pace.at_s = seconds
        return [(h.kind, h.detail) for h in bridge.cycle().bridge_events if h.kind.startswith("check_")]

    assert at(0.0) == at(59.9) == []
    assert metric("cpsched_check_ok", check="clock", required="yes") is None
    assert at(60.0) == [("check_failed", "plugin: absent; install it")]
    assert metric("cpsched_check_ok", check="clock", required="yes") == 1
    assert metric("cpsched_check_ok", check="plugin", required="no") == 0
    cluster.readiness[0] = ReadinessCheck("clock", False, "4 s apart")
    assert at(119.9) == []
    assert at(120.0) == [("check_failed", "clock: 4 s apart")]
    cluster.readiness = [ReadinessCheck("clock", False, "9 s apart"), ReadinessCheck("plugin", True, "there")]
    assert at(180.0) == [("check_failed", "clock: 9 s apart"), ("check_recovered", "plugin")]
    cluster.readiness[0] = ReadinessCheck("clock", True, "the same")
    assert at(240.0) == [("check_recovered", "clock")]
    assert metric("cpsched_check_ok", check="clock", required="yes") == 1
    assert at(300.0) == []


def test_unanswered_checks_are_failed_check_only(bridge_at):
    cluster, pace = FakeCluster(), FakePace()
    bridge = bridge_at(cluster, pace=pace, cycle={"checks_every_s": 10})
    cluster.fail("run_checks", BackendUnavailable("gone"))
    pace.at_s = 10.0
    report = bridge.cycle()
    assert report.result == "ok"
    assert [(h.kind, h.detail) for h in report.bridge_events[-1:]] == [("check_failed", "checks: gone")]


def test_runs_no_checks_if_disabled(bridge_at, monkeypatch):
    cluster, pace = FakeCluster(), FakePace()
    bridge = bridge_at(cluster, pace=pace, cycle={"checks_every_s": 0})
    monkeypatch.delattr(FakeCluster, "run_checks")
    pace.at_s = 10.0**6
    assert bridge.cycle().result == "ok"
