"""The state directory: whether a bridge has used it, who may read it, and who owns its files."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpsched_bridge.errors import CorruptFile, SettingsError
from cpsched_bridge.program import bridge_reports, terminal_views
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_file as ledgers
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.heartbeat import touch_heartbeat
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster

NOBODY = 65534


@contextlib.contextmanager
def somebody_else(folder: Path) -> Iterator[None]:
    """Act as a user without access to the folder; root becomes another user for the block."""
    folder.chmod(0o700 if os.geteuid() == 0 else 0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mistyped", "does not exist; check the path, or whether the folder was deleted"),
        ("notes.txt", "Not a directory"),
        ("", "contains no files of a bridge; check the path, or whether the folder was emptied"),
    ],
)
def test_rejects_folder_that_no_bridge_has_used(tmp_path, name, words):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SettingsError, match=words):
        state_paths.require_used_state_dir(Settings(state_dir=tmp_path / name))


def test_reports_unreadable_directory(tmp_path):
    settings = Settings(state_dir=tmp_path)
    touch_heartbeat(settings.heartbeat_path)
    with somebody_else(tmp_path), pytest.raises(SettingsError) as error:
        state_paths.require_used_state_dir(settings)
    assert f"state_dir={tmp_path}: is not readable by " in str(error.value)
    assert "; it belongs to " in str(error.value)


@pytest.mark.parametrize(
    "name", ["state.sqlite", "ledger.sqlite", "journal.sqlite", "heartbeat", "lock", "paused", "bridge-id"]
)
def test_any_bridge_file_shows_that_bridge_ran(tmp_path, name):
    (tmp_path / name).touch()
    state_paths.require_used_state_dir(Settings(state_dir=tmp_path))


def test_external_heartbeat_shows_that_directory_was_emptied(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    settings = Settings(state_dir=state, heartbeat=tmp_path / "heartbeat")
    touch_heartbeat(settings.heartbeat_path)
    state_paths.require_used_state_dir(settings)


def test_living_bridge_with_deleted_files_is_reported(tmp_path, capsys):
    settings = Settings(state_dir=tmp_path)
    touch_heartbeat(settings.heartbeat_path)
    status = bridge_reports.report_status(settings)
    assert status.unreadable
    terminal_views.print_status(status)
    said = capsys.readouterr().out
    assert "last good cycle: 0 s ago" in said
    for name in ("state.sqlite", "journal.sqlite"):
        assert f"{name}: does not exist, although a bridge has run there; a running bridge creates it again" in said
    with (
        pytest.raises(CorruptFile, match="does not exist, although"),
        state_paths.open_ledger(settings, read_only=True),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["heartbeat"]


def test_living_bridge_recreates_deleted_files(tmp_path):
    cluster = FakeCluster.of(a_job(1), a_job(2), a_job(3), cluster=a_cluster(nodes=1, cores=1))
    bridge = a_bridge(tmp_path, cluster, cycles=1)
    entries = bridge.ledger.list_entries()
    for path in tmp_path.iterdir():
        path.unlink()
    assert bridge.cycle().result == "ok"
    with state_paths.open_ledger(bridge.settings, read_only=True) as ledger:
        assert [entry.job_id for entry in ledger.list_entries()] == [entry.job_id for entry in entries]
    with state_paths.open_journal(bridge.settings) as journal:
        assert journal.last_round == 2
        told = {event.kind: event.detail for event in journal.list_events()}
    assert told["ledger_gone"].endswith("state.sqlite: was deleted, wrote 3 jobs from memory to a new file")
    assert told["journal_gone"].endswith("journal.sqlite: was deleted; started a new file")
    assert bridge.cycle().bridge_events == [], "reported once"


def test_fails_cycles_until_state_directory_returns(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    cluster = FakeCluster.of(a_job(1), a_job(2), cluster=a_cluster(nodes=1, cores=1))
    bridge = a_bridge(state, cluster, cycles=1)
    state.rename(tmp_path / "away")
    assert [bridge.cycle().result for _ in range(3)] == ["storage_error"] * 3
    state.mkdir()
    assert bridge.cycle().result == "ok"
    with state_paths.open_ledger(bridge.settings, read_only=True) as ledger:
        assert {entry.job_id for entry in ledger.list_entries()} == {1, 2}


@pytest.mark.parametrize(
    ("owner", "words"), [(0, ""), (1, "; the file belongs to uid {}, but this process has uid {}")]
)
def test_names_foreign_owner_only_if_relevant(tmp_path, monkeypatch, owner, words):
    """On a read-only disk no user may write, not even the owner."""
    (tmp_path / "state.sqlite").touch()
    uid = os.geteuid()

    def refuse(*_, **__):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(ledgers, "connect_sqlite", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: uid + owner)
    with pytest.raises(CorruptFile) as told, state_paths.open_ledger(Settings(state_dir=tmp_path)):
        pass
    assert str(told.value).endswith("readonly database" + words.format(uid, uid + owner))


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_files_are_private_for_any_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        settings = Settings(state_dir=tmp_path / "var" / "state")
        lock = state_paths.acquire_instance_lock(settings)
        cluster = FakeCluster.of(a_job(1), a_job(2), cluster=a_cluster(nodes=1, cores=1))
        bridge = a_bridge(settings.state_dir, cluster, cycles=1)
        bridge.pause.pause("maintenance")
        lock.release()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.state_dir.iterdir()}
    assert modes.pop("heartbeat") == 0o644 & ~umask, "the dead-man timer may be another user's"
    assert {"state.sqlite", "state.sqlite-wal", "journal.sqlite", "journal.sqlite-wal", "lock", "paused"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(settings.state_dir.stat().st_mode) == 0o700
