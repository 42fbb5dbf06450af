"""Locate and open the bridge's files: lock, ledger, journal, heartbeat and others.

If the ledger was damaged or deleted, the held jobs are recovered from the journal. Its last round records which jobs
the bridge held, with or without the bridge's marks. Otherwise, jobs held by the bridge itself would appear to be held
by an administrator.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from pwd import getpwuid

from cpsched.formatting import format_count
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BridgeError, CorruptFile, SettingsError
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import heartbeat
from cpsched_bridge.store.corruption_checks import CorruptFileContent, is_corruption
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import (
    MANAGED_STATES,
    OLDER_RELEASING,
    Ledger,
    LedgerState,
    ManagedJobEntry,
    parse_state,
)
from cpsched_bridge.store.lock_and_request_files import InstanceLock
from cpsched_bridge.store.state_file import (
    FILE_NAME,
    OLDER_FILE_NAMES,
    OLDER_LEDGER_NAME,
    OtherStateFormat,
    StateFile,
    require_no_older_files,
)
from cpsched_bridge.store.state_tables import BoostedJob, BoostLedger

_RECOVERY_REASON = "held according to the journal's last round"


def state_path(settings: Settings) -> Path:
    """Return the path of the file with the ledgers of jobs, boosts and preemptions."""
    return settings.state_dir / FILE_NAME


def journal_path(settings: Settings) -> Path:
    """Return the path of the journal file."""
    return settings.state_dir / "journal.sqlite"


def forecast_state_path(settings: Settings) -> Path:
    """Return the path of the file that stores the forecasts' learned state."""
    return settings.state_dir / "outlook"


def database_size_bytes(path: Path) -> int:
    """Return the size in bytes of a database with its additional files."""
    found = [path.stat().st_size] if path.is_file() else []
    siblings = path.parent.glob(f"{path.name}-*") if path.parent.is_dir() else []
    for file in [*siblings, *(path.rglob("*") if path.is_dir() else [])]:
        with suppress(FileNotFoundError):  # deleted since
            found.append(file.stat().st_size)
    return sum(found)


def heartbeat_age_s(settings: Settings) -> float | None:
    """Return the seconds since the last successful cycle, or None.

    The result is negative if the heartbeat's time is in the future.
    """
    return heartbeat.read_heartbeat_file_age_s(settings.heartbeat_path)


def require_used_state_dir(settings: Settings) -> None:
    """Raise `SettingsError` unless the state directory is readable and was used.

    Any file of a bridge is sufficient, because other files may have been deleted while the bridge runs.
    """
    folder = settings.state_dir
    try:
        names = set(os.listdir(folder))
    except FileNotFoundError:
        raise _make_unusable_state_dir_error(
            folder, "does not exist; check the path, or whether the folder was deleted"
        ) from None
    except PermissionError:
        raise _make_unusable_state_dir_error(
            folder, f"is not readable by {_format_user_id(os.geteuid())}; it belongs to {_format_file_owner(folder)}"
        ) from None
    except OSError as error:
        raise _make_unusable_state_dir_error(folder, error.strerror or str(error)) from error
    if not names & _BRIDGE_FILES and not settings.heartbeat_path.exists():
        raise _make_unusable_state_dir_error(
            folder, "contains no files of a bridge; check the path, or whether the folder was emptied"
        )


_BRIDGE_FILES = frozenset({
    FILE_NAME, *OLDER_FILE_NAMES, "journal.sqlite", "lock", "heartbeat", "paused", "bridge-id", "remembered", "outlook",
})  # fmt: skip


def _make_unusable_state_dir_error(folder: Path, why: str) -> SettingsError:
    return SettingsError(f"state_dir={folder}: {why}")


def _format_file_owner(path: Path) -> str:
    try:
        return _format_user_id(path.stat().st_uid)
    except OSError:
        return "another user"


def _format_user_id(uid: int) -> str:
    try:
        return f"{getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def acquire_instance_lock(settings: Settings) -> InstanceLock:
    """Acquire the instance lock. Raise `AlreadyRunning` or `SettingsError`."""
    try:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return InstanceLock(settings.state_dir / "lock")
    except OSError as error:
        raise _make_unusable_state_dir_error(settings.state_dir, error.strerror or str(error)) from error


@contextmanager
def open_ledger(settings: Settings, read_only: bool = False) -> Iterator[Ledger]:
    """Open the ledger. Raise `SettingsError` or `CorruptFile`.

    If `read_only`, a bridge must have run with this state directory.
    """
    path = state_path(settings)
    if read_only:
        require_no_older_files(settings.state_dir)
        _require_existing_file(settings, path)
    with _convert_sqlite_errors(path):
        ledger = Ledger(path, settings.durable, read_only)
        recover_from_journal(ledger, journal_path(settings), settings.on_stop == "keep")
    try:
        with _convert_sqlite_errors(path):
            yield ledger
    finally:
        ledger.close()


@contextmanager
def open_state_for_reading(settings: Settings) -> Iterator[StateFile]:
    """Open the state file without its ledger. Raise `SettingsError` or `CorruptFile`."""
    path = state_path(settings)
    _require_existing_file(settings, path)
    with _convert_sqlite_errors(path), closing(StateFile(path, read_only=True)) as file:
        yield file


def read_boosts(settings: Settings) -> Mapping[int, BoostedJob]:
    """Return the entries of the boost ledger by job id, or none if they are unreadable."""
    try:
        with open_state_for_reading(settings) as file:
            return BoostLedger(file).by_id
    except BridgeError:
        return {}


@contextmanager
def open_journal(settings: Settings, read_only: bool = True) -> Iterator[Journal]:
    """Open the journal. Raise `SettingsError` or `CorruptFile`.

    If `read_only`, a bridge must have run with this state directory.
    """
    path = journal_path(settings)
    if read_only:
        _require_existing_file(settings, path)
    kept = settings.journal
    with _convert_sqlite_errors(path):
        journal = Journal(path, kept.max_mib, read_only, kept.keep_days)
    try:
        with _convert_sqlite_errors(path):
            yield journal
    finally:
        journal.close()


@contextmanager
def open_emergency_ledger(settings: Settings) -> Iterator[Ledger]:
    """Open the ledger in the state file, an in-memory copy of it, or an empty in-memory ledger.

    An older build's state is always copied.

    The disk's state determines which. The ledger's `unreported_events` report a copy or an empty ledger. Its changes
    are lost at the end, but the next bridge reads the cluster.
    """
    path = state_path(settings)
    older = settings.state_dir / OLDER_LEDGER_NAME
    if not path.exists() and older.exists():
        path = older
    try:
        if path == older:
            raise OtherStateFormat(path)
        ledger = Ledger(path, settings.durable) if path.exists() else _make_empty_ledger(path, "does not exist")
    except Exception as error:  # the held jobs are released in any case
        ledger = _open_ledger_in_memory(path)
        ledger.unreported_events.append(CycleEvent("ledger_unwritable", f"{path}: {error}"))
    if not ledger.whole and not ledger.unreported_events:
        ledger.unreported_events.append(_make_ledger_unreadable_event(path, "was empty"))
    try:
        recover_from_journal(ledger, journal_path(settings), settings.on_stop == "keep")
        yield ledger
    finally:
        ledger.close()


def _open_ledger_in_memory(path: Path) -> Ledger:
    try:
        return Ledger.load_in_memory_copy(path)
    except Exception:
        return _make_empty_ledger(path, "cannot be read")


def _make_empty_ledger(path: Path, why: str) -> Ledger:
    """Return an in-memory ledger that reports `why`, with no jobs and any readable boosts. Create no file."""
    ledger = Ledger(":memory:", durable=False)
    ledger.file.copy_boosts(path)
    ledger.unreported_events.append(_make_ledger_unreadable_event(path, why))
    return ledger


def _make_ledger_unreadable_event(path: Path, why: str) -> CycleEvent:
    text = f"{path}: {why}; only jobs with the submit plugin's mark and jobs in the journal are known"
    return CycleEvent("ledger_unreadable", text)


@contextmanager
def preserve_ownership(settings: Settings) -> Iterator[None]:
    """Give files that root creates in the state directory to the directory's owner."""
    try:
        yield
    finally:
        with suppress(OSError):
            _give_files_to_owner(settings.state_dir)


@contextmanager
def report_request_write_errors(settings: Settings, advice: str = "") -> Iterator[None]:
    """Run a block that writes a request file. Raise `SettingsError` with `advice`."""
    require_used_state_dir(settings)
    try:
        with preserve_ownership(settings):
            yield
    except OSError as error:
        raise _make_unusable_state_dir_error(settings.state_dir, f"{error.strerror}{advice}") from error


def _give_files_to_owner(folder: Path) -> None:
    owner = folder.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for file in folder.iterdir():
        if file.lstat().st_uid == 0 and (file.is_file() or file.is_symlink()):
            os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _require_existing_file(settings: Settings, path: Path) -> None:
    require_used_state_dir(settings)
    if not path.exists():
        raise CorruptFile(f"{path}: does not exist, although a bridge has run there; a running bridge creates it again")


@contextmanager
def _convert_sqlite_errors(path: Path) -> Iterator[None]:
    """Convert file errors to `CorruptFile` errors that name the file and the fix."""
    try:
        yield
    except sqlite3.Error as error:
        raise CorruptFile(f"{path}: {error}{_get_recovery_hint(path, error)}") from error
    except CorruptFileContent as error:
        raise CorruptFile(f"{path}: {error}{_RECOVERY_TEXT}") from error


_RECOVERY_TEXT = "; the bridge moves a damaged file aside when it starts or next writes to it"


def _get_recovery_hint(path: Path, error: sqlite3.Error) -> str:
    if is_corruption(error):
        return _RECOVERY_TEXT
    if not path.exists() or os.access(path, os.R_OK | os.W_OK):
        return ""
    owner, own = path.stat().st_uid, os.geteuid()
    return f"; the file belongs to uid {owner}, but this process has uid {own}" if owner != own else ""


def recover_from_journal(ledger: Ledger, journal_path: Path, keeps: bool) -> None:
    """Add the journal's held jobs to an incomplete ledger, ignoring file errors.

    `keeps`: whether jobs stay held when a bridge stops. If False, a bridge that stopped cleanly holds no jobs.
    """
    if ledger.whole:
        return
    found = [entry for entry in find_held_jobs_in_journal(journal_path, keeps) if ledger.get(entry.job_id) is None]
    if found:
        ledger.insert_or_replace_entries(found)
        ledger.unreported_events.append(
            CycleEvent(
                "ledger_recovered",
                f"{format_count(len(found), 'held job was', 'held jobs were')} recovered from the journal",
            )
        )


def find_held_jobs_in_journal(path: Path, keeps: bool) -> list[ManagedJobEntry]:
    """Return entries for the jobs held in the last round, or none if unreadable."""
    with (
        suppress(sqlite3.Error, OSError, BridgeError, CorruptFileContent),
        closing(Journal(path, read_only=True)) as journal,
    ):
        sign = journal.find_last_activity()
        if sign is not None and (keeps or not sign.is_clean_stop):
            return _find_jobs_held_in_last_round(journal)
    return []


def _find_jobs_held_in_last_round(journal: Journal) -> list[ManagedJobEntry]:
    record = journal.read_round(journal.last_round)
    managed_kinds = {*MANAGED_STATES, OLDER_RELEASING}
    states = {job.job_id: parse_state(job.kind) for job in journal.list_unscheduled_jobs() if job.kind in managed_kinds}
    if record.mode == "control":
        states |= {job.id: LedgerState.HELD for job in record.queue}
    # A job for which a start was sent may be pinned.
    attempted = {outcome.job_id for kind, outcome in record.outcomes if kind == "start" and outcome.result != "refused"}
    states |= dict.fromkeys(attempted & states.keys(), LedgerState.STARTING)
    return [
        ManagedJobEntry(
            id,
            state,
            record.now_s,
            state is LedgerState.STARTING,
            label=record.labels.get(id, ""),
            why=_RECOVERY_REASON,
        )
        for id, state in sorted(states.items())
    ]
