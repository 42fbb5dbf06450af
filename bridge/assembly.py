"""Puts a bridge together from its settings: adapter, policy, files, metrics. Only the command line does this."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import structlog

from bridge.errors import BackendError, NotReady, SettingsError
from bridge.exporter import Endpoint, Exporter
from bridge.guard import InstanceLock, PauseFile, require_ready
from bridge.journal import Journal
from bridge.ledger import Ledger
from bridge.loop import Bridge, Listener
from bridge.pace import RealPace
from bridge.ports import Backend
from bridge.records import PolicyRecord
from bridge.replay import policy_of
from bridge.settings import PolicySettings, Settings, as_texts, parse


def ledger_path(settings: Settings) -> Path:
    """Where the ledger lives."""
    return settings.state_dir / "ledger.sqlite"


def journal_path(settings: Settings) -> Path:
    """Where the journal lives."""
    return settings.state_dir / "journal.sqlite"


def pause_file(settings: Settings) -> PauseFile:
    """The file that says whether the bridge stands down."""
    return PauseFile(settings.state_dir / "paused")


def heartbeat_age_s(settings: Settings) -> float | None:
    """Seconds since the last good cycle; None if there never was one."""
    try:
        return max(0.0, time.time() - settings.heartbeat_path.stat().st_mtime)
    except FileNotFoundError:
        return None


def connect(settings: Settings, where: str = "settings") -> Backend:
    """The backend that the settings ask for; its adapter is imported now."""
    try:
        adapter: Any = importlib.import_module(f"bridge.adapters.{settings.adapter}")
    except ImportError as error:
        raise SettingsError(f"{where}: adapter={settings.adapter}: {error}") from error
    options = parse(adapter.Options, settings.options, f"{where}: options")
    return cast(Backend, adapter.connect(options))


def policy_record(settings: PolicySettings) -> PolicyRecord:
    """The policy as the journal writes it down."""
    return PolicyRecord(
        settings.dispatcher,
        settings.predictor,
        as_texts(settings.dispatcher_settings),
        as_texts(settings.predictor_settings),
        settings.overrun,
    )


def lock(settings: Settings) -> InstanceLock:
    """The instance lock; raises `AlreadyRunning`, or `SettingsError` if the state directory cannot be used."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        return InstanceLock(settings.state_dir / "lock")
    except OSError as error:
        raise SettingsError(f"state_dir={settings.state_dir}: {error.strerror}") from error


@contextmanager
def opened_ledger(settings: Settings, read_only: bool = False) -> Iterator[Ledger]:
    """The ledger, closed at the end; raises `SettingsError` if there is none to read."""
    path = ledger_path(settings)
    if read_only and not path.exists():
        raise SettingsError(f"state_dir={settings.state_dir}: holds no ledger; no bridge has run there in control mode")
    ledger = Ledger(path, settings.durable, read_only)
    try:
        yield ledger
    finally:
        ledger.close()


@contextmanager
def opened_journal(settings: Settings, read_only: bool = True) -> Iterator[Journal]:
    """The journal, closed at the end; raises `SettingsError` if there is none to read."""
    path = journal_path(settings)
    if read_only and not path.exists():
        raise SettingsError(f"state_dir={settings.state_dir}: holds no journal; no bridge has run there")
    journal = Journal(path, settings.journal.max_mib, read_only)
    try:
        yield journal
    finally:
        journal.close()


@contextmanager
def metrics(settings: Settings) -> Iterator[tuple[Listener, ...]]:
    """The exporter behind its endpoint, if it is enabled."""
    if not settings.metrics.enabled:
        yield ()
        return
    exporter = Exporter()
    endpoint = Endpoint(exporter, settings.metrics.host, settings.metrics.port)
    structlog.get_logger("bridge").info("metrics", url=endpoint.url)
    try:
        yield (exporter,)
    finally:
        endpoint.close()


def run(settings: Settings, where: str) -> list[tuple[int, str]]:
    """Run a bridge until a signal ends it; the held jobs it could not give back, with the reason."""
    record = policy_record(settings.policy)
    policy = policy_of(record)
    held_lock = lock(settings)
    backend = connect(settings, where)
    try:
        if settings.mode == "control":
            check(backend)
        pace = RealPace()
        pace.stop_on_signals()
        with (
            opened_ledger(settings) as ledger,
            opened_journal(settings, read_only=False) as journal,
            metrics(settings) as listeners,
        ):
            warn_of_kept(settings, ledger)
            pause = pause_file(settings)
            return Bridge(backend, policy, record, ledger, journal, pause, pace, settings, listeners).run()
    finally:
        backend.close()
        held_lock.release()


def check(backend: Backend) -> None:
    """Raise `NotReady` unless everything that control mode requires holds."""
    try:
        checks = backend.checks()
    except BackendError as error:
        raise NotReady(f"control mode is refused: the cluster cannot be checked: {error}") from error
    require_ready(checks)


def warn_of_kept(settings: Settings, ledger: Ledger) -> None:
    """Shadow mode touches nothing, also not what an earlier bridge in control left held: say so."""
    kept = ledger.kept()
    if kept and settings.mode == "shadow":
        structlog.get_logger("bridge").warning(
            "held_jobs_left", jobs=len(kept), mend="`cpsched release-all` gives them back to the cluster's scheduler"
        )
