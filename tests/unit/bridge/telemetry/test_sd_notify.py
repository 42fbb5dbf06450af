import socket

import pytest

from cpsched_bridge.telemetry.sd_notify import SystemdNotifier


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
