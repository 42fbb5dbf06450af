"""How the loop ends and starts again: stops, retained jobs, interrupts, and the end of a pause."""

import threading

import pytest
import structlog

from cpsched.jit.compile_progress import CompilationCancelled
from cpsched_bridge.cycle import circuit_breaker, cycle_command_sender
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BackendUnavailable
from cpsched_bridge.ports import Hold, Outcome
from cpsched_bridge.store.ledger import LedgerState
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster, FakePace
from tests.stores import full


def blocked():
    """A cluster of one core with three jobs: after a cycle the first runs, and two are held."""
    return FakeCluster.of(a_job(1), a_job(2), a_job(3), cluster=a_cluster(nodes=1, cores=1))


def told(bridge, *kinds):
    return [event.detail for event in bridge.journal.list_events() if event.kind in kinds]


@pytest.mark.parametrize(("on_stop", "hold"), [("release", Hold.NONE), ("keep", Hold.PLUGIN)])
def test_stop_releases_held_jobs_unless_kept(bridge_at, on_stop, hold):
    cluster = blocked()
    bridge = bridge_at(cluster, on_stop=on_stop, cycles=1)
    with structlog.testing.capture_logs() as log:
        assert bridge.stop() == []
    assert [cluster.jobs[id].hold for id in (2, 3)] == [hold, hold]
    assert told(bridge, "stopped") == ["in order"]
    released, held = (2, 0) if hold is Hold.NONE else (0, 2)
    said = {"event": "stopped", "released": released, "still_held": held, "mode": "control", "log_level": "info"}
    assert log == [said]


def test_stop_during_compilation_releases_held_jobs(bridge_at):
    """A simulated cluster in this process compiles when it is read; the ledger says what is held."""
    cluster = blocked()
    bridge = bridge_at(cluster, cycles=1)
    cluster.fail("observe", CompilationCancelled())
    assert bridge.run() == []
    assert [cluster.jobs[id].hold for id in (2, 3)] == [Hold.NONE, Hold.NONE]
    assert told(bridge, "stopped") == ["in order"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_interrupt_releases_jobs_and_logs_those_still_held(bridge_at, end):
    cluster, pace = blocked(), FakePace()
    bridge = bridge_at(cluster, pace=pace)
    give = cluster.release_one
    cluster.release_one = lambda id: Outcome(id, "refused", "no") if id == 3 else give(id)

    def interrupted(seconds):
        raise end

    pace.wait = interrupted
    with structlog.testing.capture_logs() as lines, pytest.raises(end):
        bridge.run()
    assert [cluster.jobs[id].hold for id in (2, 3)] == [Hold.NONE, Hold.PLUGIN]
    assert [(line["log_level"], line["detail"]) for line in lines if line["event"] == "still_held"] == [
        ("error", "job 3 may still be held: no")
    ]
    assert told(bridge, "stopped") == ["job 3 may still be held: no"]


def test_loop_outside_main_thread_logs_missing_deadline(bridge_at):
    def lines_of(run):
        with structlog.testing.capture_logs() as lines:
            run(bridge_at(FakeCluster()).run)
        return [line["log_level"] for line in lines if line["event"] == "no_decision_deadline"]

    def aside(work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert lines_of(aside) == ["warning"]
    assert lines_of(lambda run: run()) == []


@pytest.mark.parametrize(
    ("later_s", "ago"), [(-5.0, "0 s ago"), (0.0, "0 s ago"), (0.4, "0 s ago"), (0.6, "1 s ago"), (1.0, "1 s ago")]
)
def test_restart_reports_non_negative_time_since_stop(bridge_at, later_s, ago):
    """Also where the clock was set back in between."""
    first = bridge_at(FakeCluster(), pace=FakePace(at_s=100.0))
    first.stop()
    first.close_files()
    second = bridge_at(FakeCluster(), pace=FakePace(at_s=100.0 + later_s))
    second.run()
    assert told(second, "started") == [f"the previous bridge stopped {ago}: in order"]


def test_resume_resets_failures_before_and_during_pause(bridge_at, monkeypatch):
    """A resumed bridge gets all its attempts again; failures during the pause do not count."""
    cluster = FakeCluster.of(a_job(1))
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 3)
    bridge = bridge_at(cluster)
    bridge.policy.dispatcher.decide = lambda snapshot, need: None
    modes = [bridge.cycle().role.mode for _ in range(6)]
    assert modes == ["control"] * 3 + ["paused"] * 3
    bridge.pause.resume()
    assert [bridge.cycle().role.mode for _ in range(4)] == ["control"] * 3 + ["paused"]
    assert told(bridge, "circuit_breaker_tripped") == ["3 consecutive decisions failed"] * 2


@pytest.mark.parametrize("mode", ["shadow", "paused"])
def test_only_controlling_bridge_pauses_itself(bridge_at, mode, monkeypatch):
    cluster = FakeCluster.of(a_job(1))
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 1)
    bridge = bridge_at(cluster, mode="shadow" if mode == "shadow" else "control")
    bridge.policy.dispatcher.decide = lambda snapshot, need: None
    if mode == "paused":
        bridge.pause.pause("maintenance")
    assert [bridge.cycle().role.mode for _ in range(3)] == [mode] * 3
    assert told(bridge, "circuit_breaker_tripped") == []
    assert bridge.pause.read_reason() == (None if mode == "shadow" else "maintenance")


def test_report_has_time_of_each_phase(bridge_at):
    """The clock goes on by a second with each look at it; a phase looks twice at least."""
    cluster, pace = FakeCluster(), FakePace()
    cluster.submit(a_job(1))
    bridge = bridge_at(cluster, pace=pace)

    def ticking():
        pace.at_s += 1.0
        return pace.at_s

    pace.monotonic_s = ticking
    assert set(bridge.cycle().seconds) == {"observe", "reconcile", "decide", "verify", "apply", "journal"}
    cluster.fail("observe", BackendUnavailable("gone"))
    report = bridge.cycle()
    assert set(report.seconds) == {"observe", "journal"}
    assert min(report.seconds.values()) >= 1.0


def test_round_number_continues_from_ledger_or_journal(bridge_at, tmp_path):
    first = bridge_at(blocked())
    for _ in range(5):
        first.cycle()
    first.close_files()
    again = bridge_at(FakeCluster())
    assert again.cycle().number == 6
    again.close_files()
    for path in tmp_path.glob("journal.sqlite*"):
        path.unlink()
    assert bridge_at(FakeCluster()).cycle().number == 7, "in round 6 the jobs were seen to be gone"


def test_logs_events_as_warnings_and_mode_and_starts_as_info(bridge_at):
    cluster = FakeCluster.of(a_job(7))
    cluster.before("start", lambda: cluster.cancel(7))
    with structlog.testing.capture_logs() as lines:
        bridge_at(cluster).run()
    levels = {line["event"]: line["log_level"] for line in lines}
    assert levels == {
        "started": "info",
        "mode": "info",
        "start_refused": "warning",
        "starts": "info",
        "stopped": "info",
    }
    (refused,) = (line for line in lines if line["event"] == "start_refused")
    assert (refused["round"], refused["job"]) == (1, "7")
    (starts,) = (line for line in lines if line["event"] == "starts")
    assert (starts["jobs"], starts["waiting"]) == (1, 1)


@pytest.mark.parametrize("store", ["ledger", "journal"])
def test_reports_file_problem_until_recorded(bridge_at, store):
    bridge = bridge_at(FakeCluster(), cycles=1)
    mishap = CycleEvent("odd", "something befell the file")
    getattr(bridge, store).unreported_events.append(mishap)
    write = bridge.journal.write_events
    bridge.journal.write_events = full
    assert bridge.cycle().result == "storage_error"
    assert getattr(bridge, store).unreported_events == [mishap]
    bridge.journal.write_events = write
    assert mishap in bridge.cycle().bridge_events
    assert told(bridge, "odd") == ["something befell the file"]
    assert mishap not in bridge.cycle().bridge_events


def test_command_budget_serves_intents_first(bridge_at):
    cluster = FakeCluster.of(a_job(1), a_job(2), cluster=a_cluster(nodes=4, cores=16))
    cluster.submit(a_job(3), hold=Hold.NONE)
    bridge = bridge_at(cluster, cycle={"max_commands": 2}, cycles=1)
    assert cluster.commands == [("hold", (3,)), ("start", (1,))]
    assert bridge.ledger.get(2).state is LedgerState.HELD


def test_failed_write_of_round_keeps_its_events(bridge_at, monkeypatch):
    bridge = bridge_at(FakeCluster())
    monkeypatch.setattr(bridge.journal, "write_round", full)
    assert bridge.cycle().result == "storage_error"
    assert told(bridge, "storage_error") == ["database or disk is full"]
    assert not bridge.settings.heartbeat_path.exists()


def test_cycle_without_snapshot_writes_no_round(bridge_at):
    cluster = FakeCluster()
    bridge = bridge_at(cluster, cycles=1)
    cluster.fail("observe", BackendUnavailable("gone"))
    bridge.cycle()
    bridge.cycle()
    assert list(bridge.journal.iterate_round_numbers()) == [1, 3]


@pytest.mark.parametrize("call", ["record", "prune"])
def test_cycle_failing_before_decision_reports_only_that(bridge_at, monkeypatch, call):
    """The cluster has been read, but there is nothing yet that could be written down as a round."""
    monkeypatch.setattr(cycle_command_sender, "PRUNE_EVERY_CYCLES", 1)
    cluster = FakeCluster.of(a_job(1))
    bridge = bridge_at(cluster)
    monkeypatch.setattr(bridge.ledger, call, full)
    report = bridge.cycle()
    assert (report.result, report.decided.snapshot) == ("storage_error", None)
    assert report.observation is not None
    assert [happening.kind for happening in report.bridge_events] == ["mode", "storage_error"]
    assert list(bridge.journal.iterate_round_numbers()) == []


def test_unwritable_log_costs_no_cycle(tmp_path, monkeypatch):
    """Standard error is closed, or its disk is full."""

    class Silent:
        def __getattr__(self, _):
            raise OSError("no space left on device")

    bridge = a_bridge(tmp_path, blocked())
    monkeypatch.setattr(structlog, "get_logger", lambda name: Silent())
    assert bridge.cycle().result == "ok"
    bridge.backend.fail("observe", ZeroDivisionError())
    assert bridge.cycle().result == "internal_error"
