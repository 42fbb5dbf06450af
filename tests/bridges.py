"""Build a bridge over any backend with a temporary state directory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.cycle import booster
from cpsched_bridge.cycle.boost_planning import PriorityBoostLimits
from cpsched_bridge.cycle.bridge_loop import Bridge, BridgeComponents
from cpsched_bridge.cycle.cycle_reporting import Listener
from cpsched_bridge.cycle.leader_election import PeerLink
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle.startup import BridgeStartupSteps
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.lock_and_request_files import PauseFile
from cpsched_bridge.telemetry.forecast_outcomes import ForecastOutcomeTracker
from cpsched_bridge.telemetry.loop_health import SystemdNotifier
from cpsched_bridge.telemetry.prometheus_exporter import PrometheusExporter
from tests.builders import a_cycle_report, an_observation
from tests.fakes import FakeCluster, FakePace, FirstFit

STATE_DIR = "/tmp/cpsched-state"
"""A folder that any user may create, for settings that are only checked. The default belongs to administrators."""


class OpenBridge(Bridge):
    """A bridge whose parts are accessible to tests."""

    backend = property(lambda self: self.parts.backend)
    policy = property(lambda self: self.parts.policy)
    ledger = property(lambda self: self.parts.ledger)
    journal = property(lambda self: self.parts.journal)
    pause = property(lambda self: self.parts.pause)
    pace = property(lambda self: self.parts.pace)
    settings = property(lambda self: self.parts.settings)

    def close_files(self) -> None:
        """Close what a dead process has open, so that another bridge can use its state directory."""
        self.ledger.close()
        self.journal.close()


def a_bridge(
    state_dir: Path,
    backend: Any,
    dispatcher: Dispatcher | None = None,
    pace: LoopClock | None = None,
    listeners: tuple[Listener, ...] = (),
    policy_spec: PolicySpec | None = None,
    config: EffectiveConfig | None = None,
    policy: Policy | None = None,
    fallback: Policy | None = None,
    startup: BridgeStartupSteps | None = None,
    systemd: SystemdNotifier | None = None,
    link: PeerLink | None = None,
    policy_settings: Mapping[str, Any] | None = None,
    cycles: int = 0,
    **settings: Any,
) -> OpenBridge:
    """Return a bridge, by default in control mode, with its files in `state_dir`, after `cycles` cycles of `settle`."""
    spec = policy_spec or PolicySpec("first-fit", "walltime", {}, {}, "one-second")
    sections = {"policy": policy_settings or {}, **settings}
    configured = Settings.model_validate({"mode": "control", "state_dir": state_dir, "durable": False, **sections})
    parts = BridgeComponents(
        backend=backend,
        policy=policy or Policy(WalltimePredictor(), dispatcher or FirstFit()),
        config=config or EffectiveConfig(spec, configured.policy.to_fallback_spec()),
        ledger=Ledger(state_dir / "state.sqlite", durable=False),
        journal=Journal(state_dir / "journal.sqlite", configured.journal.max_mib),
        pause=PauseFile(state_dir),
        pace=pace or FakePace(),
        settings=configured,
        listeners=listeners,
        fallback=fallback,
        startup=startup or BridgeStartupSteps(),
        systemd=systemd or SystemdNotifier(),
        link=link or PeerLink(),
    )
    bridge = OpenBridge(parts)
    if cycles:
        settle(bridge, backend, cycles)
    return bridge


def settle(bridge: Bridge, cluster: FakeCluster, cycles: int = 4) -> list[CycleReport]:
    """Run cycles, each one second after the previous one."""
    reports = []
    for _ in range(cycles):
        cluster.now_s += 1
        reports.append(bridge.cycle())
    return reports


def event_kinds(report: CycleReport) -> list[str]:
    """Return the kinds of a report's events, without changes of the mode."""
    return [event.kind for event in report.bridge_events if event.kind != "mode"]


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder, in memory if possible."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(
        prefix="cpsched-", dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
    )


@contextmanager
def quiet_folder() -> Iterator[Path]:
    """Yield an empty folder, in memory if possible. Meanwhile, bridges log nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        with memory_folder() as folder:
            yield Path(folder)
    finally:
        structlog.reset_defaults()


def narrow_advice() -> AbstractContextManager[Any]:
    """Limit advice to few jobs and changes, so that both limits matter with a handful of jobs."""
    return patch.object(booster, "PriorityBoostLimits", partial(PriorityBoostLimits, depth=5, changes=3))


def a_report(now_s: int, *ended: EndedJob) -> CycleReport:
    """Return the report of a cycle that observed an empty cluster, and that these jobs had ended."""
    return a_cycle_report(
        mode="shadow", at_unix_s=float(now_s), observation=an_observation(now_s=now_s), ended=list(ended)
    )


class Metrics:
    """A listener that returns metrics by name."""

    def __init__(self) -> None:
        self._exporter, self._following = PrometheusExporter(), ForecastOutcomeTracker()

    def __call__(self, report: CycleReport) -> None:
        """Record one cycle."""
        self._exporter(self._following.record_report_and_get_outcomes(report))

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of one series, or None."""
        return self._exporter.registry.get_sample_value(name, labels)
