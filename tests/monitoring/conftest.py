"""A Prometheus for all tests in this folder, with five bridges on simulated clusters, each with a different fault.

The rules are those in `deploy/prometheus`, with every duration divided by 15.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.monitoring.stack import (
    ALERTMANAGER,
    PROMETHEUS,
    BridgeProcess,
    Monitoring,
    Process,
    missing,
    running,
    until,
)

TIMES_FASTER = 15.0
BUSY = {"load": 4.0, "days": 1.0, "speed": 60.0}
CYCLE = {"interval_s": 0.5, "max_backoff_s": 1.0}


@dataclass
class Stage:
    """The bridges by fault, and the processes that monitor them."""

    monitoring: Monitoring
    bridges: dict[str, BridgeProcess]
    site: Process
    """The hanging simulated cluster, a separate process."""
    began_s: float

    def hang(self) -> None:
        os.kill(self.site.popen.pid, signal.SIGSTOP)

    def kill(self) -> None:
        process = self.bridges["killed"].process
        assert process is not None
        process.popen.kill()

    def first_told(self, bridge: str, seconds: float) -> set[str]:
        """Return the first alerts about a bridge."""
        target = self.bridges[bridge].target
        found: set[str] = until(lambda: self.monitoring.told(target), seconds)
        return found


@pytest.fixture(scope="session")
def programs() -> None:
    if lacks := missing(PROMETHEUS, ALERTMANAGER):
        pytest.skip(f"not installed: {', '.join(lacks)} (make monitoring-packages)")


@pytest.fixture(scope="session")
def stage(programs: None) -> Iterator[Stage]:
    # Not one of pytest's own folders: other runs on the machine clean those up.
    with tempfile.TemporaryDirectory(prefix="cpsched-stage-", ignore_cleanup_errors=True) as folder:
        yield from _staged(Path(folder))


def _staged(folder: Path) -> Iterator[Stage]:
    policy = {"dispatcher": "pcp20", "dispatcher_settings": {"limit_s": 0.2}}
    easy = {"policy": {"dispatcher": "easy", "predictor": "last-two"}, "cycle": CYCLE, "options": BUSY}
    bridges = {
        "well": BridgeProcess(folder / "well", easy),
        "hung": BridgeProcess(folder / "hung", easy | {"adapter": "tests.remote_site", "options": BUSY | {
            "site_socket": str(folder / "socket")}}),
        "killed": BridgeProcess(folder / "killed", easy),
        "refused": BridgeProcess(folder / "refused", easy | {
            "adapter": "tests.monitoring.refusing", "circuit_breaker": {"failing_users": 1_000_000}}),
        "limited": BridgeProcess(folder / "limited", easy | {"policy": policy, "options": BUSY | {"load": 30.0}}),
    }  # fmt: skip
    (folder / "site.yaml").write_text(
        yaml.safe_dump({"adapter": "tests.remote_site", "options": bridges["hung"].settings["options"]})
    )
    site = Process.start([sys.executable, "-m", "tests.remote_site", str(folder / "site.yaml")], folder / "site.log")
    monitoring = Monitoring(folder / "prometheus", [b.target for b in bridges.values()], TIMES_FASTER)
    try:
        until((folder / "socket").exists, 120)
        with running(*bridges.values(), monitoring):
            yield Stage(monitoring, bridges, site, time.monotonic())
    finally:
        site.popen.kill()
        site.popen.wait()
