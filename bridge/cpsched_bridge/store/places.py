"""Where lock, ledger, journal, pause file and heartbeat of a bridge live: all in its state directory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cpsched_bridge.errors import SettingsError
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.instance import InstanceLock, PauseFile
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger


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
