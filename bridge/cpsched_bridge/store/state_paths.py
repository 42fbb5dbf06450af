"""Locate and open the files in a bridge's state directory: lock, ledger, journal, pause file and heartbeat."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pwd import getpwuid

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import CorruptFile, SettingsError
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import heartbeat, ledger_recovery
from cpsched_bridge.store.corruption import CorruptFileContent, is_corruption
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.process_files import InstanceLock, PauseFile, StartupFile, TakeLeadershipFile


def ledger_path(settings: Settings) -> Path:
    """Return the path of the ledger file."""
    return settings.state_dir / "ledger.sqlite"


def journal_path(settings: Settings) -> Path:
    """Return the path of the journal file."""
    return settings.state_dir / "journal.sqlite"


def boost_ledger_path(settings: Settings) -> Path:
    """Return the path of the boost ledger, which does not exist before the first boost."""
    return settings.state_dir / "advice.sqlite"


def forecast_state_path(settings: Settings) -> Path:
    """Return the path of the file with the forecasts' learned state."""
    return settings.state_dir / "outlook"


def database_size_bytes(path: Path) -> int:
    """Return the size in bytes of a database, including its additional files (`-wal`, `-shm`)."""
    found = [path.stat().st_size] if path.is_file() else []
    beside = path.parent.glob(f"{path.name}-*") if path.parent.is_dir() else []
    for file in [*beside, *(path.rglob("*") if path.is_dir() else [])]:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            found.append(file.stat().st_size)
    return sum(found)


def pause_file(settings: Settings) -> PauseFile:
    """Return the file that pauses the bridge."""
    return PauseFile(settings.state_dir / "paused")


def take_leadership_file(settings: Settings) -> TakeLeadershipFile:
    """Return the file with which a takeover is requested."""
    return TakeLeadershipFile(settings.state_dir)


def startup_file(settings: Settings) -> StartupFile:
    """Return the file that contains the bridge's start-up step."""
    return StartupFile(settings.state_dir / "beginning")


def heartbeat_age_s(settings: Settings) -> float | None:
    """Return the seconds since the last good cycle, or None if there was none. Negative if in the future."""
    return heartbeat.read_age_s(settings.heartbeat_path)


def require_used_state_dir(settings: Settings) -> None:
    """Raise `SettingsError` unless the state directory is readable and a bridge uses or has used it.

    Any file of a bridge suffices, because other files may have been deleted while the bridge runs.
    """
    folder = settings.state_dir
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        raise _unusable(folder, "does not exist: the path is mistyped, or the folder was deleted") from None
    except PermissionError:
        raise _unusable(folder, f"is not readable for {_who(os.geteuid())}: it belongs to {_owner(folder)}") from None
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if not names & _OURS and not settings.heartbeat_path.exists():
        raise _unusable(
            folder, "contains no file of a bridge: no bridge ran there, or the folder was emptied; check the path"
        )


_OURS = frozenset(
    ("ledger.sqlite", "journal.sqlite", "lock", "heartbeat", "paused", "bridge-id", "advice.sqlite", "outlook")
)


def _unusable(folder: Path, why: str) -> SettingsError:
    return SettingsError(f"state_dir={folder}: {why}")


def _owner(path: Path) -> str:
    try:
        return _who(path.stat().st_uid)
    except OSError:
        return "somebody else"


def _who(uid: int) -> str:
    try:
        return f"{getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def acquire_instance_lock(settings: Settings) -> InstanceLock:
    """Acquire the instance lock. Raise `AlreadyRunning`, or `SettingsError` if the state directory is unusable."""
    try:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return InstanceLock(settings.state_dir / "lock")
    except OSError as error:
        raise _unusable(settings.state_dir, error.strerror or str(error)) from error


@contextmanager
def open_ledger(settings: Settings, read_only: bool = False) -> Iterator[Ledger]:
    """Open the ledger. Raise `SettingsError` if no bridge has run and `CorruptFile` if the file is invalid."""
    path = ledger_path(settings)
    if read_only:
        _require_file(settings, path)
    with _readable(path):
        ledger = Ledger(path, settings.durable, read_only)
        ledger_recovery.recover_from_journal(ledger, journal_path(settings), settings.on_stop == "keep")
    try:
        with _readable(path):
            yield ledger
    finally:
        ledger.close()


@contextmanager
def open_journal(settings: Settings, read_only: bool = True) -> Iterator[Journal]:
    """Open the journal. Raise `SettingsError` if no bridge has run and `CorruptFile` if the file is invalid."""
    path = journal_path(settings)
    if read_only:
        _require_file(settings, path)
    kept = settings.journal
    with _readable(path):
        journal = Journal(path, kept.max_mib, read_only, kept.keep_days)
    try:
        with _readable(path):
            yield journal
    finally:
        journal.close()


@contextmanager
def open_emergency_ledger(settings: Settings) -> Iterator[Ledger]:
    """Open the ledger whatever the state of the disk: the file, an in-memory copy, or an empty in-memory ledger.

    The ledger's `mishaps` report which one. Changes in memory are lost at the end; the next bridge reads the cluster.
    """
    path = ledger_path(settings)
    try:
        ledger = Ledger(path, settings.durable) if path.exists() else _unknown(path, "is not there")
    except Exception as error:  # the held jobs are released in any case
        ledger = _in_memory(path)
        ledger.mishaps.append(CycleEvent("ledger_unwritable", f"{path}: {error}"))
    if not ledger.whole and not ledger.mishaps:
        ledger.mishaps.append(_without(path, "was empty"))
    try:
        ledger_recovery.recover_from_journal(ledger, journal_path(settings), settings.on_stop == "keep")
        yield ledger
    finally:
        ledger.close()


def _in_memory(path: Path) -> Ledger:
    try:
        return Ledger.load_copy(path)
    except Exception:
        return _unknown(path, "cannot be read")


def _unknown(path: Path, why: str) -> Ledger:
    """Return an empty in-memory ledger that reports `why`; create no file where no bridge may have run."""
    ledger = Ledger(":memory:", durable=False)
    ledger.mishaps.append(_without(path, why))
    return ledger


def _without(path: Path, why: str) -> CycleEvent:
    words = f"{path}: {why}: known are jobs with the submit plugin's mark, and what the journal tells"
    return CycleEvent("ledger_unreadable", words)


@contextmanager
def preserve_ownership(settings: Settings) -> Iterator[None]:
    """Make the state directory's owner the owner of files that root creates there; otherwise they are unreadable."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _give_to_owner(settings.state_dir)


@contextmanager
def requesting(settings: Settings, mend: str = "") -> Iterator[None]:
    """Run a block that writes a request to the state directory. Raise `SettingsError` with `mend` if that fails."""
    require_used_state_dir(settings)
    try:
        with preserve_ownership(settings):
            yield
    except OSError as error:
        raise _unusable(settings.state_dir, f"{error.strerror}{mend}") from error


def _give_to_owner(folder: Path) -> None:
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for file in folder.iterdir():
        if file.lstat().st_uid == 0 and (file.is_file() or file.is_symlink()):
            os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _require_file(settings: Settings, path: Path) -> None:
    require_used_state_dir(settings)
    if not path.exists():
        raise CorruptFile(f"{path}: does not exist, though a bridge has run there; a running one creates it again")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Convert SQLite's errors to `CorruptFile` errors that name the file and the fix."""
    try:
        yield
    except sqlite3.Error as error:
        raise CorruptFile(f"{path}: {error}{_mend(path, error)}") from error
    except CorruptFileContent as error:
        raise CorruptFile(f"{path}: {error}{_WILL_MEND}") from error


_WILL_MEND = "; the bridge sets a damaged file aside when it starts, or when it next writes there"


def _mend(path: Path, error: sqlite3.Error) -> str:
    if is_corruption(error):
        return _WILL_MEND
    if not path.exists() or os.access(path, os.R_OK | os.W_OK):
        return ""
    owner, own = path.stat().st_uid, os.geteuid()
    return f"; the file belongs to uid {owner}, this is uid {own}" if owner != own else ""
