"""Where lock, ledger, journal, pause file and heartbeat of a bridge live: all in its state directory."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cpsched_bridge.errors import DamagedFile, SettingsError
from cpsched_bridge.report import Happening
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import heartbeat
from cpsched_bridge.store.database import Damaged, is_damage
from cpsched_bridge.store.instance import InstanceLock, PauseFile
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger


def ledger_path(settings: Settings) -> Path:
    """Where the ledger lives."""
    return settings.state_dir / "ledger.sqlite"


def journal_path(settings: Settings) -> Path:
    """Where the journal lives."""
    return settings.state_dir / "journal.sqlite"


def files_bytes(path: Path) -> int:
    """Size of a database: of `path`, and of what lies beside or below it under the same name (`-wal`, `-shm`)."""
    found = [path.stat().st_size] if path.is_file() else []
    beside = path.parent.glob(f"{path.name}-*") if path.parent.is_dir() else []
    for file in [*beside, *(path.rglob("*") if path.is_dir() else [])]:
        with contextlib.suppress(FileNotFoundError):  # it was there a moment ago
            found.append(file.stat().st_size)
    return sum(found)


def pause_file(settings: Settings) -> PauseFile:
    """The file that says whether the bridge stands down."""
    return PauseFile(settings.state_dir / "paused")


def heartbeat_age_s(settings: Settings) -> float | None:
    """Seconds since the last good cycle; None if there never was one. Negative: it lies in the future."""
    return heartbeat.age_s(settings.heartbeat_path)


def require_ledger(settings: Settings) -> None:
    """Raise `SettingsError` unless a bridge has worked in the state directory."""
    if not ledger_path(settings).exists():
        raise SettingsError(
            f"state_dir={settings.state_dir}: holds no ledger.sqlite, so no bridge has run there; is the path right?"
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
    """The ledger, closed at the end. Raises `SettingsError` if there is none to read, `DamagedFile` if it cannot be."""
    path = ledger_path(settings)
    if read_only:
        require_ledger(settings)
    with _readable(path):
        ledger = Ledger(path, settings.durable, read_only)
    try:
        with _readable(path):
            yield ledger
    finally:
        ledger.close()


@contextmanager
def opened_journal(settings: Settings, read_only: bool = True) -> Iterator[Journal]:
    """The journal, closed at the end; raises `SettingsError` if there is none, `DamagedFile` if it cannot be read."""
    path = journal_path(settings)
    if read_only and not path.exists():
        raise SettingsError(f"state_dir={settings.state_dir}: holds no journal; no bridge has run there")
    kept = settings.journal
    with _readable(path):
        journal = Journal(path, kept.max_mib, read_only, kept.keep_days)
    try:
        with _readable(path):
            yield journal
    finally:
        journal.close()


@contextmanager
def emergency_ledger(settings: Settings) -> Iterator[Ledger]:
    """The ledger, whatever state the disk is in: as it is, or a copy of it in memory, or an empty one in memory.

    `mishaps` say which. Changes to one in memory are lost at the end; the next bridge looks at the cluster.
    """
    path = ledger_path(settings)
    try:
        ledger = Ledger(path, settings.durable)
    except (sqlite3.Error, OSError) as error:
        ledger = _in_memory(path)
        ledger.mishaps.append(Happening("ledger_unwritable", f"{path}: {error}"))
    try:
        yield ledger
    finally:
        ledger.close()


def _in_memory(path: Path) -> Ledger:
    try:
        return Ledger.copy_of(path)
    except (sqlite3.Error, Damaged):
        ledger = Ledger(":memory:", durable=False)
        words = f"{path}: cannot be read: only jobs with the submit plugin's mark are known to wait for the bridge"
        ledger.mishaps.append(Happening("ledger_unreadable", words))
        return ledger


@contextmanager
def owned(settings: Settings) -> Iterator[None]:
    """What root makes in the state directory meanwhile belongs to its owner afterwards, who could not open it else."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _give_to_owner(settings.state_dir)


def _give_to_owner(folder: Path) -> None:
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for file in folder.iterdir():
        if file.lstat().st_uid == 0 and (file.is_file() or file.is_symlink()):
            os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of SQLite as `DamagedFile`, with the file and what may be done about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise DamagedFile(f"{path}: {error}{_mend(path, error)}") from error
    except Damaged as error:
        raise DamagedFile(f"{path}: {error}{_WILL_MEND}") from error


_WILL_MEND = "; the bridge sets a damaged file aside when it starts, or when it next writes there"


def _mend(path: Path, error: sqlite3.Error) -> str:
    if is_damage(error):
        return _WILL_MEND
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"; the file belongs to uid {path.stat().st_uid}, this is uid {os.geteuid()}"
    return ""
