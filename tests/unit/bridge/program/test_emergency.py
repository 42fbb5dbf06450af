"""Emergency commands work without free disk space, and report if they did nothing."""

import contextlib
import errno
import os
import resource
import signal
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cpsched_bridge.cycle.leader_election import JOBS_RELEASED, RELEASED
from cpsched_bridge.errors import AlreadyRunning, BackendTimeout, JobsStillHeld, ReleasedWithoutLedger, SettingsError
from cpsched_bridge.ports import Hold, Lease, Outcome
from cpsched_bridge.program import bootstrap, release_all
from cpsched_bridge.settings import LeaseSettings, Settings
from cpsched_bridge.store import bridge_identity, state_paths
from cpsched_bridge.store import state_file as ledgers
from cpsched_bridge.store.heartbeat import touch_heartbeat
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from cpsched_bridge.store.lock_and_request_files import LeadershipFile, LeadershipStatus, PauseFile
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.stores import no_room


@contextlib.contextmanager
def no_byte_to_write():
    """No file may grow: what a full disk is to a program, but for the number of the error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def cluster(monkeypatch):
    cluster = FakeCluster.of(a_job(9, walltime_s=10_000), cluster=a_cluster(nodes=1, cores=1))
    cluster.run_now(9, ((0, 1),))
    cluster.submit(a_job(1), a_job(2))
    cluster.submit(a_job(3), hold=Hold.NONE)
    monkeypatch.setattr(bootstrap, "connect_backend", lambda settings, where: cluster)
    return cluster


@pytest.fixture
def settings(tmp_path, cluster):
    """The settings of a dead bridge that held three jobs: two by the plugin's mark, one by its own hold."""
    bridge = a_bridge(tmp_path, cluster, cycles=1)
    assert (bridge.ledger.list_managed_job_ids(), cluster.jobs[3].hold) == ([1, 2, 3], Hold.ADMIN)
    bridge.close_files()
    return bridge.settings


def release(settings, if_stale_s=None, *, force=False, **facts):
    return release_all.release_all(settings, "bridge.yaml", if_stale_s, force=force, **facts)


def held(cluster):
    return [id for id, fake in cluster.jobs.items() if fake.pending and fake.hold.value != "none"]


def test_release_all_releases_all_jobs(settings, cluster):
    words = release(settings)
    assert words == "the bridge no longer holds any job (before: 3 jobs in its ledger)"
    assert (held(cluster), cluster.claimed.run == JOBS_RELEASED) == ([], False)
    assert Ledger(state_paths.state_path(settings)).list_managed_job_ids() == []


@pytest.mark.parametrize("leased", [True, False])
def test_release_all_marks_cluster_if_ledger_is_unwritable(settings, cluster, leased):
    """What an administrator holds after that is not the next bridge's, whatever its ledger says."""
    own = bridge_identity.read_bridge_name(settings.state_dir)
    assert cluster.claimed.bridge == own
    if not leased:
        cluster.claimed = None
    with no_byte_to_write():
        release(settings)
    assert (cluster.claimed.bridge, cluster.claimed.run) == (own, JOBS_RELEASED)
    cluster.jobs[3].hold = Hold.ADMIN
    after = a_bridge(settings.state_dir, cluster)
    cluster.end(9)
    for _ in range(3):
        after.cycle()
    assert cluster.jobs[3].hold is Hold.ADMIN


def test_release_all_marks_cluster_if_ledger_opens_readonly(settings, cluster, monkeypatch):
    """The disk fills up between the two."""
    no_room(monkeypatch)
    words = release(settings)
    assert held(cluster) == []
    assert words.endswith("note: the ledger cannot be written: database or disk is full")
    assert cluster.claimed.run == JOBS_RELEASED


def test_release_all_reads_wal_of_killed_bridge(settings, cluster, tmp_path):
    path = state_paths.state_path(settings)
    killed = Ledger(path)
    killed.record([make_transition(killed.get(1), LedgerState.GONE, 9, "cancelled")])
    copies = {name: (tmp_path / name).read_bytes() for name in ("state.sqlite", "state.sqlite-wal")}
    assert copies["state.sqlite-wal"]
    killed.close()
    for name, content in copies.items():
        (tmp_path / name).write_bytes(content)
    with no_byte_to_write():
        words = release(settings)
    assert "(before: 2 jobs in its ledger)" in words
    assert held(cluster) == []


def damaged(path):
    content = bytearray(path.read_bytes())
    path.write_bytes(b"x" * 100 + content[100:])


def undecodable(path):
    with sqlite3.connect(path) as db:
        db.execute("update jobs set label = cast(x'68ff' as text)")
    db.close()


def without_a_schema(path):
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes(4096 - 100) + content[4096:])


def taken_away(path):
    path.unlink()


def emptied(path):
    path.write_bytes(b"")


def a_folder(path):
    path.unlink()
    path.mkdir()


LOST = {each.__name__: each for each in (damaged, undecodable, without_a_schema, taken_away, emptied, a_folder)}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("force", [False, True])
def test_release_all_uses_marks_and_journal_without_ledger(settings, cluster, name, force):
    LOST[name](state_paths.state_path(settings))
    words = release(settings, force=force)
    assert held(cluster) == []
    assert "note: 3 held jobs were recovered from the journal" in words
    assert cluster.jobs[9].running


@pytest.mark.parametrize("name", LOST)
def test_release_all_uses_only_cluster_without_any_file(settings, cluster, name):
    """An administrator's hold may be the bridge's; since this is unknown, it stays."""
    LOST[name](state_paths.state_path(settings))
    damaged(state_paths.journal_path(settings))
    words = release(settings, force=True)
    assert held(cluster) == [3]
    assert words.startswith("the bridge no longer holds any job (before: 0 jobs in its ledger)\nnote: ")


@pytest.mark.parametrize("on_stop", ["release", "keep"])
def test_stopped_journal_lists_held_jobs_only_if_kept(tmp_path, monkeypatch, on_stop):
    """An administrator's hold that came after the bridge had handed its jobs back is the administrator's."""
    cluster = FakeCluster.of(a_job(1, per_unit=9), hold=Hold.NONE, cluster=a_cluster(nodes=1, cores=1))
    bridge = a_bridge(tmp_path, cluster, on_stop=on_stop)
    for _ in range(2):
        bridge.cycle()
    assert bridge.stop() == []
    bridge.close_files()
    cluster.jobs[1].hold = Hold.ADMIN
    monkeypatch.setattr(bootstrap, "connect_backend", lambda settings, where: cluster)
    damaged(state_paths.state_path(bridge.settings))
    release(bridge.settings)
    assert held(cluster) == ([1] if on_stop == "release" else [])


def test_bridge_stops_orderly_on_full_disk(tmp_path):
    cluster = FakeCluster.of(*(a_job(id) for id in range(1, 6)), cluster=a_cluster(nodes=1, cores=1))
    bridge = a_bridge(tmp_path, cluster, cycles=1)
    cluster.submit(a_job(6))
    with no_byte_to_write():
        assert bridge.cycle().result == "storage_error"
        bridge.stop()
    assert held(cluster) == []
    assert [fake.starts for fake in cluster.jobs.values()] == [1, 0, 0, 0, 0, 0]


def test_bridge_continues_when_disk_has_space_again(tmp_path):
    cluster = FakeCluster.of(a_job(1))
    bridge = a_bridge(tmp_path, cluster)
    with no_byte_to_write():
        assert [bridge.cycle().result for _ in range(2)] == ["storage_error"] * 2
        assert cluster.commands == [], "no command without its intent"
    assert bridge.cycle().result == "ok"
    assert cluster.jobs[1].running
    assert bridge.journal.read_round(bridge.journal.last_round).queue == (a_job(1),)


def test_pause_works_on_full_disk(tmp_path):
    pause = PauseFile(tmp_path)
    with no_byte_to_write():
        pause.pause("maintenance")
    assert (pause.read_reason(), os.listdir(tmp_path)) == ("paused", ["paused"])


UNREADABLE = {
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe"),
    "other JSON": lambda path: path.write_text("[1]"),
    "deep JSON": lambda path: path.write_text("[" * 100_000),
    "no reason": lambda path: path.write_text("{}"),
    "nothing": lambda path: path.touch(),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_pause_file_means_paused(tmp_path, name):
    cluster = FakeCluster.of(a_job(1))
    bridge = a_bridge(tmp_path, cluster)
    UNREADABLE[name](tmp_path / "paused")
    assert bridge.pause.read_reason()
    report = bridge.cycle()
    assert (report.role.mode, cluster.jobs[1].starts) == ("paused", 0)


def test_release_all_fails_without_action_if_no_bridge_ran(tmp_path):
    settings = Settings(state_dir=tmp_path / "misytped")
    for if_stale_s in (None, 1.0):
        with pytest.raises(
            SettingsError, match=r"misytped: does not exist; check the path, or whether the folder was deleted"
        ):
            release(settings, if_stale_s)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", [None, "", "a file"])
def test_forced_release_without_state_uses_cluster_and_fails(settings, cluster, tmp_path, monkeypatch, folder):
    """Beside a bridge whose directory was emptied, this alone helps; with a mistyped path it must not look good."""
    monkeypatch.setattr(release_all, "LEASE_MARGIN_S", 0.02)
    settings = Settings(state_dir=tmp_path / "other", lease=LeaseSettings(duration_s=0.6))
    if folder == "":
        settings.state_dir.mkdir()
    elif folder is not None:
        settings.state_dir.write_text("")
    why = {None: "does not exist", "": "contains no files of a bridge", "a file": "Not a directory"}[folder]
    with pytest.raises(
        ReleasedWithoutLedger, match=f"(?s)the bridge no longer holds any job .*; but state_dir=.*other: {why}"
    ):
        release(settings, force=True)
    assert held(cluster) == [3]
    assert not settings.state_dir.is_dir() or list(settings.state_dir.iterdir()) == []


def test_beating_heartbeat_means_alive_at_any_time(settings, cluster, monkeypatch):
    settings.heartbeat_path.write_text("")
    os.utime(settings.heartbeat_path, (1, 1))
    monkeypatch.setattr(release_all.time, "sleep", lambda _: touch_heartbeat(settings.heartbeat_path))
    words = release(settings, 60.0, confirm_s=5)
    assert words.endswith("s old and has changed since: the bridge runs again, or the clock was set: nothing to do")
    assert held(cluster) == [1, 2, 3]


@pytest.fixture
def beside(settings, cluster, monkeypatch):
    """Another bridge's lease stands on the cluster of the dead one; it is watched for a moment only."""
    monkeypatch.setattr(release_all, "LEASE_MARGIN_S", 0.02)
    cluster.claimed = Lease("other", "1", 0, "login2:/var/lib/cpsched")
    return settings.model_copy(update={"lease": LeaseSettings(duration_s=0.6)})


def test_releases_only_own_ledger_jobs_with_other_living_bridge(beside, cluster):
    observe = cluster.read

    def beating():
        cluster.claimed = replace(cluster.claimed, beat=cluster.claimed.beat + 1)
        return observe()

    cluster.read = beating
    words = release(beside, force=True)
    assert held(cluster) == [1, 2], "the submit plugin's"
    assert "another bridge is in control and keeps the jobs held by the submit plugin: login2:/var/lib/cpsched" in words


@pytest.mark.parametrize("unwritable", [contextlib.nullcontext, no_byte_to_write])
def test_releases_all_jobs_despite_lease_of_dead_bridge(beside, cluster, unwritable):
    lease = cluster.claimed
    with unwritable():
        words = release(beside)
    assert (held(cluster), cluster.claimed) == ([], lease)
    assert "another bridge" not in words


@pytest.mark.parametrize(
    ("lease", "found"),
    [
        (None, "no other bridge holds the lease on this cluster"),
        ("own", "no other bridge holds the lease on this cluster"),
        (Lease("other", RELEASED, 0, "login2:/var/lib/cpsched"), "no other bridge holds the lease on this cluster"),
        (Lease("other", "1", 0, "login2:/var/lib/cpsched"), "the lease is held by login2:/var/lib/cpsched"),
    ],
)
def test_doctor_names_other_bridge_and_fix(settings, cluster, lease, found):
    if lease != "own":
        cluster.claimed = lease
    check, standby = bootstrap.check_other_leader(cluster, settings)
    assert (standby.ok, standby.required) == (True, False)
    assert (check.ok, check.detail, check.required) == (found.startswith("no other bridge"), found, False)
    cluster.fail("observe", BackendTimeout("no answer"))
    assert bootstrap.check_other_leader(cluster, settings) == []


@pytest.mark.parametrize(("ago_s", "ok"), [(None, False), (5.0, True), (bootstrap.PEER_SILENT_S + 1, False)])
def test_doctor_checks_that_second_bridge_answers(settings, cluster, ago_s, ok):
    lease = LeaseSettings(listen="127.0.0.1:1", peer="login2:9766", secret_file=Path("/x"))
    settings = settings.model_copy(update={"lease": lease})
    assert not bootstrap.check_standby(settings).ok, "no cycle yet"
    heard_s = None if ago_s is None else time.time() - ago_s
    LeadershipFile(settings.state_dir).write(LeadershipStatus("login1:/x", True, 0.0, "login2:/x", heard_s, 6.0, 7))
    check = bootstrap.check_standby(settings)
    answers = "answers" if ok else "was not heard"
    assert (check.ok, check.required, check.detail) == (ok, False, f"the bridge at login2:9766 {answers}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_files_made_by_root_belong_to_state_owner(settings, cluster, tmp_path):
    os.chown(tmp_path, 54321, 54321)
    other = tmp_path / "of another user"
    other.touch()
    os.chown(other, 11111, 11111)
    release(settings)
    with state_paths.preserve_ownership(settings):
        PauseFile(settings.state_dir).pause("by root")
    owners = {path.name: path.stat().st_uid for path in tmp_path.iterdir()}
    assert owners.pop("of another user") == 11111
    assert {"lock", "paused", "state.sqlite"} <= owners.keys()
    assert set(owners.values()) == {54321}


def test_only_root_changes_file_owner(tmp_path, monkeypatch):
    settings = Settings(state_dir=tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "chown", lambda *_, **__: pytest.fail("not ours to give"))
    (tmp_path / "file").touch()
    with state_paths.preserve_ownership(settings):
        pass


def test_reports_if_only_empty_ledger_is_available(tmp_path, monkeypatch):
    """A folder in its place, on a disk that is read-only: it cannot be set aside."""
    settings = Settings(state_dir=tmp_path)
    state_paths.state_path(settings).mkdir()
    refused = OSError(errno.EROFS, "Read-only file system")
    monkeypatch.setattr(ledgers, "move_aside", lambda *_: (_ for _ in ()).throw(refused))
    with state_paths.open_emergency_ledger(settings) as ledger:
        assert ledger.list_entries() == []
        ledger.record([make_transition(None, LedgerState.HELD, 0, "held", job_id=1)])
    assert [h.kind for h in ledger.unreported_events] == ["ledger_unreadable", "ledger_unwritable"]


@pytest.mark.parametrize("is_missing", [True, False])
def test_missing_or_unreadable_lock_or_heartbeat_does_not_prevent_release(settings, cluster, is_missing):
    for name in ("lock", "heartbeat"):
        (settings.state_dir / name).unlink(missing_ok=True)
        if not is_missing:
            (settings.state_dir / name).symlink_to(name)
    release(settings, 60.0, confirm_s=0.01)
    assert held(cluster) == []


def refusing(cluster, ids=None):
    """The cluster refuses to release these jobs; all where none are named."""
    give = cluster.release_one
    cluster.release_one = lambda id: Outcome(id, "refused", "no") if ids is None or id in ids else give(id)


@pytest.mark.parametrize(("count", "words"), [(5, ""), (6, "; and 1 more"), (8, "; and 3 more")])
def test_release_all_names_5_held_jobs_and_counts_others(tmp_path, monkeypatch, count, words):
    cluster = FakeCluster(cluster=a_cluster(nodes=1, cores=1))
    cluster.submit(*(a_job(id, per_unit=4) for id in range(1, count + 1)))
    bridge = a_bridge(tmp_path, cluster, cycles=1)
    bridge.ledger.close()
    refusing(cluster)
    monkeypatch.setattr(bootstrap, "connect_backend", lambda settings, where: cluster)
    with pytest.raises(JobsStillHeld) as error:
        release(bridge.settings)
    named = "; ".join(f"job {id} may still be held: no" for id in range(1, 6))
    assert str(error.value) == named + words
    asked = [ids for kind, ids in cluster.commands if kind == "release"]
    assert len(asked) == 3, "tried three times"
    assert len(held(cluster)) == count


def test_releases_ledger_jobs_of_unreadable_cluster_and_says_so(settings, cluster):
    cluster.fail("observe", BackendTimeout("no answer"), times=4)  # once for the claim
    with pytest.raises(
        JobsStillHeld, match=r"^the cluster cannot be read, so the submit plugin may hold more jobs: no answer$"
    ):
        release(settings)
    assert held(cluster) == []
    assert Ledger(state_paths.state_path(settings)).get(1).state is LedgerState.FREE


def test_release_all_needs_force_or_stale_heartbeat_if_alive(settings, cluster):
    alive = state_paths.acquire_instance_lock(settings)
    settings.heartbeat_path.write_text("")
    os.utime(settings.heartbeat_path, (1, 1))
    with pytest.raises(AlreadyRunning, match=r"use `cpsched pause`, or --force"):
        release(settings)
    assert held(cluster) == [1, 2, 3]
    assert "before: 3 jobs" in release(settings, force=True)
    assert held(cluster) == []
    cluster.jobs[1].hold = Hold.PLUGIN
    release(settings, 60.0, confirm_s=0.01)
    assert held(cluster) == []
    alive.release()


def test_release_all_frees_lock_and_connection(settings, cluster):
    closed = []
    cluster.close = lambda: closed.append(True)
    release(settings)
    state_paths.acquire_instance_lock(settings).release()
    refusing(cluster)
    cluster.jobs[1].hold = Hold.PLUGIN
    with pytest.raises(JobsStillHeld):
        release(settings)
    state_paths.acquire_instance_lock(settings).release()
    assert closed == [True, True]


@pytest.mark.parametrize(
    ("age_s", "done"), [(59.9, False), (60.0, False), (60.1, True), (-59.9, False), (-60.0, False), (-60.1, True)]
)
def test_heartbeat_of_exact_limit_is_not_stale(settings, cluster, monkeypatch, age_s, done):
    monkeypatch.setattr(state_paths, "heartbeat_age_s", lambda _: age_s)
    words = release(settings, 60.0, confirm_s=0.01)
    assert (words == f"the heartbeat is {age_s:.0f} s old: nothing to do") is not done
    assert (held(cluster) == []) is done
