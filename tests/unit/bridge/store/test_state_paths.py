"""The state directory: whether a bridge has worked there, whether one may look, and whose files are in it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpsched_bridge.errors import CorruptFile, SettingsError
from cpsched_bridge.program import terminal_views
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import ledger as ledgers
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.heartbeat import touch_file
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


def test_a_directory_that_is_not_there_may_be_a_mistyped_path(tmp_path):
    with pytest.raises(SettingsError, match="does not exist: the path is mistyped, or the folder was deleted"):
        state_paths.require_used_state_dir(Settings(state_dir=tmp_path / "mistyped"))


def test_a_file_is_no_state_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="Not a directory"):
        state_paths.require_used_state_dir(Settings(state_dir=tmp_path / "file"))


def test_a_directory_without_a_file_of_a_bridge_is_one_where_none_has_run_or_that_was_emptied(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        SettingsError, match="contains no file of a bridge: no bridge ran there, or the folder was emptied"
    ):
        state_paths.require_used_state_dir(Settings(state_dir=tmp_path))


def test_a_directory_that_one_may_not_look_into_is_called_that(tmp_path):
    settings = Settings(state_dir=tmp_path)
    touch_file(settings.heartbeat_path)
    with somebody_else(tmp_path), pytest.raises(SettingsError) as error:
        state_paths.require_used_state_dir(settings)
    assert f"state_dir={tmp_path}: is not readable for " in str(error.value)
    assert ": it belongs to " in str(error.value)


@pytest.mark.parametrize("name", ["ledger.sqlite", "journal.sqlite", "heartbeat", "lock", "paused", "bridge-id"])
def test_any_file_of_a_bridge_is_a_sign_that_one_has_run(tmp_path, name):
    (tmp_path / name).touch()
    state_paths.require_used_state_dir(Settings(state_dir=tmp_path))


def test_a_heartbeat_elsewhere_is_a_sign_of_a_bridge_whose_directory_was_emptied(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    settings = Settings(state_dir=state, heartbeat=tmp_path / "heartbeat")
    touch_file(settings.heartbeat_path)
    state_paths.require_used_state_dir(settings)


def test_beside_a_living_bridge_whose_files_are_gone_nobody_says_that_no_bridge_has_run(tmp_path, capsys):
    settings = Settings(state_dir=tmp_path)
    touch_file(settings.heartbeat_path)
    assert not terminal_views.print_status(settings)
    said = capsys.readouterr().out
    assert "last good cycle: 0 s ago" in said
    for name in ("ledger.sqlite", "journal.sqlite"):
        assert f"{name}: does not exist, though a bridge has run there; a running one creates it again" in said
    with (
        pytest.raises(CorruptFile, match="does not exist, though"),
        state_paths.open_ledger(settings, read_only=True),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["heartbeat"]


def test_a_living_bridge_whose_files_are_taken_away_writes_them_anew_in_its_next_cycle(tmp_path):
    cluster = FakeCluster.of(a_job(1), a_job(2), a_job(3), cluster=a_cluster(nodes=1, cores=1))
    bridge = a_bridge(tmp_path, cluster)
    bridge.cycle()
    entries = bridge.ledger.list_entries()
    for path in tmp_path.iterdir():
        path.unlink()
    assert bridge.cycle().result == "ok"
    with state_paths.open_ledger(bridge.settings, read_only=True) as ledger:
        assert [entry.job_id for entry in ledger.list_entries()] == [entry.job_id for entry in entries]
    with state_paths.open_journal(bridge.settings) as journal:
        assert journal.last_round == 2
        told = {event.kind: event.detail for event in journal.list_events()}
    assert told["ledger_gone"].endswith("ledger.sqlite: it was deleted, 3 jobs written again from memory")
    assert told["journal_gone"].endswith("journal.sqlite: it was deleted; started a new file")
    assert bridge.cycle().happenings == [], "reported once"


def test_a_bridge_whose_directory_is_gone_fails_its_cycles_and_goes_on_when_it_is_there_again(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    cluster = FakeCluster.of(a_job(1), a_job(2), cluster=a_cluster(nodes=1, cores=1))
    bridge = a_bridge(state, cluster)
    bridge.cycle()
    state.rename(tmp_path / "away")
    assert [bridge.cycle().result for _ in range(3)] == ["storage_error"] * 3
    state.mkdir()
    assert bridge.cycle().result == "ok"
    with state_paths.open_ledger(bridge.settings, read_only=True) as ledger:
        assert {entry.job_id for entry in ledger.list_entries()} == {1, 2}


@pytest.mark.parametrize(("owner", "words"), [(0, ""), (1, "; the file belongs to uid {}, this is uid {}")])
def test_only_a_file_of_somebody_else_is_called_that_where_it_may_not_be_written(tmp_path, monkeypatch, owner, words):
    """On a read-only disk no user may write, not even the owner."""
    (tmp_path / "ledger.sqlite").touch()
    uid = os.geteuid()

    def refuse(*_, **__):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(ledgers, "connect", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: uid + owner)
    with pytest.raises(CorruptFile) as told, state_paths.open_ledger(Settings(state_dir=tmp_path)):
        pass
    assert str(told.value).endswith("readonly database" + words.format(uid, uid + owner))


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_nobody_else_reads_what_a_bridge_writes_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        settings = Settings(state_dir=tmp_path / "var" / "state")
        lock = state_paths.acquire_instance_lock(settings)
        cluster = FakeCluster.of(a_job(1), a_job(2), cluster=a_cluster(nodes=1, cores=1))
        bridge = a_bridge(settings.state_dir, cluster)
        bridge.cycle()
        bridge.pause.pause("maintenance")
        lock.release()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in settings.state_dir.iterdir()}
    assert modes.pop("heartbeat") == 0o644 & ~umask, "the dead-man timer may be another user's"
    assert {"ledger.sqlite", "ledger.sqlite-wal", "journal.sqlite", "journal.sqlite-wal", "lock", "paused"} <= set(
        modes
    )
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(settings.state_dir.stat().st_mode) == 0o700
