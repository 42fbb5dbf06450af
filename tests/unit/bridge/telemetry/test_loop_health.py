"""When a loop counts as alive, the report of a failed cycle, and the messages to systemd."""

from __future__ import annotations

import socket

import pytest

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.settings import CycleSettings
from cpsched_bridge.telemetry.loop_health import LoopHealth, SystemdNotifier
from tests.builders import a_cycle_report


@pytest.mark.parametrize(
    ("interval_s", "max_backoff_s", "longest_s"),
    [(1, 60, 10 + 60 + 30), (600, 60, 10 + 3000 + 30), (60, 60, 10 + 300 + 30)],
)
def test_loop_is_alive_within_maximum_cycle_time(interval_s, max_backoff_s, longest_s):
    now_s = [1000.0]
    cycle = CycleSettings(interval_s=interval_s, max_backoff_s=max_backoff_s, decide_timeout_s=10)
    health = LoopHealth(cycle, lambda: now_s[0])
    now_s[0] += longest_s
    assert health.list_stall_reasons() == []
    now_s[0] += 1
    assert health.list_stall_reasons() == [f"no cycle has ended for {longest_s + 1} s; the limit is {longest_s} s"]
    health(a_cycle_report())
    assert health.list_stall_reasons() == []


def test_failed_cycle_is_explained_by_its_own_failure():
    health = LoopHealth(CycleSettings())
    happened = [CycleEvent("start_failed", "job 7 did not start"), CycleEvent("backend_timeout", "no answer")]
    health(a_cycle_report(5, result="backend_timeout", bridge_events=happened))
    assert health.list_unready_reasons() == ["round 5 failed: backend_timeout", "no answer"]


def test_sends_messages_to_systemd_socket(tmp_path, monkeypatch):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        SystemdNotifier().notify("READY=1", "STATUS=shadow")
        assert listener.recv(100) == b"READY=1\nSTATUS=shadow"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all"])
def test_does_nothing_without_systemd(monkeypatch, address):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    SystemdNotifier().notify("READY=1")


def test_watchdog_interval_is_in_seconds(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert SystemdNotifier().watchdog_s == 30.0
    monkeypatch.delenv("WATCHDOG_USEC")
    assert SystemdNotifier().watchdog_s is None
