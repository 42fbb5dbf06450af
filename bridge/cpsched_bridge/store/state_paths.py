"""Where lock, ledger, journal, pause file and heartbeat of a bridge live: all in its state directory."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pwd import getpwuid

from cpsched_bridge.cycle_report import Event
from cpsched_bridge.errors import CorruptFile, SettingsError
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import heartbeat, ledger_recovery
from cpsched_bridge.store.corruption import CorruptContent, is_corruption
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger
from cpsched_bridge.store.process_files import InstanceLock, PauseFile, StartupFile, TakeLeadershipFile


def ledger_path(settings: Settings) -> Path:
    """Where the ledger lives."""
    return settings.state_dir / "ledger.sqlite"


def journal_path(settings: Settings) -> Path:
    """Where the journal lives."""
    return settings.state_dir / "journal.sqlite"


def advice_path(settings: Settings) -> Path:
    """Where the book of advice lives; there is none where no job was ever advised."""
    return settings.state_dir / "advice.sqlite"


def outlook_path(settings: Settings) -> Path:
    """Where what was learned of starts and run times is kept."""
    return settings.state_dir / "outlook"


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


def take_over_file(settings: Settings) -> TakeLeadershipFile:
    """The file that tells the bridge to take control whichever bridge has it."""
    return TakeLeadershipFile(settings.state_dir)


def beginning_file(settings: Settings) -> StartupFile:
    """The file that says what a bridge does before it decides."""
    return StartupFile(settings.state_dir / "beginning")


def heartbeat_age_s(settings: Settings) -> float | None:
    """Seconds since the last good cycle; None if there never was one. Negative: it lies in the future."""
    return heartbeat.age_s(settings.heartbeat_path)


def require_used(settings: Settings) -> None:
    """Raise `SettingsError` unless a bridge works or has worked in the state directory, and one may look there.

    Any file of a bridge is a sign of one: what is missing may have been taken away beside a living bridge.
    """
    folder = settings.state_dir
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        raise _unusable(folder, "is not there: a mistyped path, or somebody took it away") from None
    except PermissionError:
        raise _unusable(
            folder, f"may not be looked into by {_who(os.geteuid())}: it belongs to {_owner(folder)}"
        ) from None
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from error
    if not names & _OURS and not settings.heartbeat_path.exists():
        raise _unusable(
            folder, "holds no file of a bridge: none has run there, or somebody emptied it; is the path right?"
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


def lock(settings: Settings) -> InstanceLock:
    """The instance lock; raises `AlreadyRunning`, or `SettingsError` if the state directory cannot be used."""
    try:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return InstanceLock(settings.state_dir / "lock")
    except OSError as error:
        raise _unusable(settings.state_dir, error.strerror or str(error)) from error


@contextmanager
def opened_ledger(settings: Settings, read_only: bool = False) -> Iterator[Ledger]:
    """The ledger, closed at the end. Raises `SettingsError` where no bridge ran, `CorruptFile` where it is none."""
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
def opened_journal(settings: Settings, read_only: bool = True) -> Iterator[Journal]:
    """The journal, closed at the end. Raises `SettingsError` where no bridge ran, `CorruptFile` where it is none."""
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
def emergency_ledger(settings: Settings) -> Iterator[Ledger]:
    """The ledger, whatever state the disk is in: as it is, or a copy of it in memory, or an empty one in memory.

    `mishaps` say which. Changes to one in memory are lost at the end; the next bridge looks at the cluster.
    """
    path = ledger_path(settings)
    try:
        ledger = Ledger(path, settings.durable) if path.exists() else _unknown(path, "is not there")
    except Exception as error:  # whatever it is, the held jobs are to be handed back
        ledger = _in_memory(path)
        ledger.mishaps.append(Event("ledger_unwritable", f"{path}: {error}"))
    if not ledger.whole and not ledger.mishaps:
        ledger.mishaps.append(_without(path, "was empty"))
    try:
        ledger_recovery.recover_from_journal(ledger, journal_path(settings), settings.on_stop == "keep")
        yield ledger
    finally:
        ledger.close()


def _in_memory(path: Path) -> Ledger:
    try:
        return Ledger.copy_of(path)
    except Exception:
        return _unknown(path, "cannot be read")


def _unknown(path: Path, why: str) -> Ledger:
    """An empty ledger in memory, which says why: nothing is made where no bridge may have run."""
    ledger = Ledger(":memory:", durable=False)
    ledger.mishaps.append(_without(path, why))
    return ledger


def _without(path: Path, why: str) -> Event:
    words = f"{path}: {why}: known are jobs with the submit plugin's mark, and what the journal tells"
    return Event("ledger_unreadable", words)


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


def _require_file(settings: Settings, path: Path) -> None:
    require_used(settings)
    if not path.exists():
        raise CorruptFile(f"{path}: is not there, though a bridge has run there; a running one makes it anew")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of SQLite as `CorruptFile`, with the file and what may be done about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise CorruptFile(f"{path}: {error}{_mend(path, error)}") from error
    except CorruptContent as error:
        raise CorruptFile(f"{path}: {error}{_WILL_MEND}") from error


_WILL_MEND = "; the bridge sets a damaged file aside when it starts, or when it next writes there"


def _mend(path: Path, error: sqlite3.Error) -> str:
    if is_corruption(error):
        return _WILL_MEND
    if not path.exists() or os.access(path, os.R_OK | os.W_OK):
        return ""
    owner, own = path.stat().st_uid, os.geteuid()
    return f"; the file belongs to uid {owner}, this is uid {own}" if owner != own else ""
