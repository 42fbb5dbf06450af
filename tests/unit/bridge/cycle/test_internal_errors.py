"""A bug in the bridge itself is counted and logged with its traceback.

The loop continues with the jobs that it holds.
"""

import pytest
import structlog

from cpsched.model import EndedJob
from cpsched_bridge.cycle import circuit_breaker
from tests.bridges import Metrics
from tests.builders import a_job
from tests.fakes import FakeCluster


def bug(work):
    raise IndexError("list index out of range")


class Failing:
    """A listener that fails at its first report."""

    def __init__(self):
        self.reports = []

    def __call__(self, report):
        self.reports.append(report)
        if len(self.reports) == 1:
            raise RuntimeError("no idea")


def events(bridge):
    return [(e.round, e.kind, e.detail) for e in bridge.journal.list_events() if e.kind != "mode"]


@pytest.mark.parametrize("call", ["observe", "start"])
def test_unexpected_adapter_exception_costs_one_cycle(bridge_at, call):
    cluster, metrics = FakeCluster(), Metrics()
    cluster.submit(a_job(1))
    cluster.inject(call, bug)
    bridge = bridge_at(cluster, listeners=(metrics,))
    with structlog.testing.capture_logs() as lines:
        report = bridge.cycle()
    assert report.result == "internal_error"
    assert ["in bug" in line["exception"] for line in lines if "exception" in line] == [True], "with the traceback"
    assert events(bridge) == [(1, "internal_error", "IndexError: list index out of range")]
    assert metrics.value("cpsched_cycles_total", result="internal_error") == 1
    assert bridge.timing.cycle_interval_s == 2.0
    for _ in range(3):
        cluster.now_s += 20
        assert bridge.cycle().result == "ok"
    assert cluster.jobs[1].running
    assert (cluster.jobs[1].starts, bridge.timing.cycle_interval_s) == (1, 1.0)


@pytest.mark.parametrize("first", [True, False], ids=["before the metrics", "after the metrics"])
def test_failing_listener_is_reported_and_blocks_no_other(bridge_at, first):
    cluster, metrics, failing = FakeCluster(), Metrics(), Failing()
    cluster.submit(a_job(1))
    bridge = bridge_at(cluster, listeners=(failing, metrics) if first else (metrics, failing))
    assert bridge.cycle().result == "internal_error"
    assert bridge.timing.cycle_interval_s == 2.0
    assert bridge.cycle().result == "ok"
    assert len(failing.reports) == 2
    assert events(bridge) == [(2, "internal_error", "listener: RuntimeError: no idea")]
    assert metrics.value("cpsched_events_total", kind="internal_error") == 1
    assert cluster.jobs[1].running


def test_pauses_even_if_disk_is_full(bridge_at, tmp_path, monkeypatch):
    cluster = FakeCluster.of(a_job(1))
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 1)
    bridge = bridge_at(cluster)
    bridge.policy.dispatcher.decide = lambda snapshot, need: None
    (tmp_path / "paused.new").mkdir()
    assert [bridge.cycle().result for _ in range(2)] == ["storage_error"] * 2
    assert (cluster.commands, bridge.pause.read_reason()) == ([("release", (1,))], None)
    (tmp_path / "paused.new").rmdir()
    bridge.cycle()
    assert bridge.pause.read_reason().startswith("circuit breaker: 1 consecutive decisions failed")
    bridge.pause.resume()
    assert bridge.cycle().role.mode == "control"


def test_learns_after_failed_cycle_what_ended_before_it(bridge_at):
    cluster = FakeCluster.of(a_job(1), past=[EndedJob(a_job(9), 0, 5)])
    bridge = bridge_at(cluster)
    learned = []
    bridge.policy.dispatcher.learn = learned.append
    bridge.ledger.record, record = bug, bridge.ledger.record
    assert bridge.cycle().result == "internal_error"
    bridge.ledger.record = record
    bridge.cycle()
    assert [ended.job.id for ended in learned] == [9]
