"""Damaged files are renamed, reported and replaced. Nothing is deleted, and no exception is raised."""

import os
import socket
import sqlite3

import pytest

from cpsched_bridge.errors import CorruptFile
from cpsched_bridge.ports import Hold
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import bridge_identity, heartbeat, state_paths
from cpsched_bridge.store.corruption_checks import MAX_NUMBER, CorruptFileContent, is_corruption
from cpsched_bridge.store.journal import FORMAT, Journal
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from cpsched_bridge.store.lock_and_request_files import PauseFile, StartupProgressFile
from cpsched_bridge.store.sqlite_files import move_aside
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster
from tests.stores import GARBAGE, change, damaged_while_open, full_disk, rows


def overwritten(path, at=0, length=None):
    """The file with garbage from a byte on."""
    content = bytearray(path.read_bytes())
    end = len(content) if length is None else at + length
    content[at:end] = (GARBAGE * (1 + (end - at) // len(GARBAGE)))[: end - at]
    path.write_bytes(content)
    return bytes(content)


def asides(folder, stem):
    return [path for path in folder.glob(f"{stem}.*") if not path.name.endswith(("-wal", "-shm"))]


def a_ledger(path, jobs=3):
    ledger = Ledger(path)
    ledger.record(
        [make_transition(None, LedgerState.HELD, 5, "held", job_id=id, label=f"{id}_1") for id in range(1, jobs + 1)]
    )
    return ledger


DAMAGE = {"all of it": (0, None), "its head": (0, 100), "its pages": (4096, None)}


@pytest.mark.parametrize("damage", DAMAGE)
def test_renames_ledger_damaged_at_start_and_creates_new_one(tmp_path, damage):
    path = tmp_path / "state.sqlite"
    a_ledger(path, 400).close()
    content = overwritten(path, *DAMAGE[damage])
    ledger = Ledger(path)
    assert ledger.list_entries() == []
    ledger.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=7)])
    (aside,) = asides(tmp_path, "state.sqlite")
    assert aside.read_bytes() == content
    assert [(h.kind, aside.name in h.detail) for h in ledger.unreported_events] == [("ledger_damaged", True)]
    assert Ledger(path).list_managed_job_ids() == [7]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("state", "'hold'"), ("nodes", "'['"), ("nodes", "7"), ("failures", "'x'"), ("why", "cast(x'68ff' as text)")),
        *(("id", "1000"), ("state", "'free'"), ("label", "7"), ("nodes", "replace(hex(zeroblob(50000)), '00', '[')")),
        *(("since_s", "1e300"), ("seal", "0"), ("unmanaged_reason", "x'00'")),
    ],
)
def test_rejects_only_changed_ledger_row(tmp_path, column, value):
    path = tmp_path / "state.sqlite"
    a_ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"update jobs set {column} = {value} where id = 2")
    named = 1000 if column == "id" else 2
    with (
        pytest.raises(CorruptFile, match=r"the bridge moves a damaged file aside"),
        state_paths.open_ledger(Settings(state_dir=tmp_path), read_only=True),
    ):
        pass
    ledger = Ledger(path)
    assert [(entry.job_id, entry.label) for entry in ledger.list_entries()] == [(1, "1_1"), (3, "3_1")]
    assert ledger.unreported_events[0].detail.endswith(f"2 jobs from valid rows; discarded {named}")
    assert not ledger.whole
    assert Ledger(path).list_entries() == ledger.list_entries()


def set_why_to_null(path):
    """Empty a required field that the bridge does not read at its start; only SQLite's own check sees it."""
    with sqlite3.connect(path) as db:
        db.execute("pragma writable_schema=on")
        db.execute("update sqlite_master set sql = replace(sql, 'why text not null', 'why text')")
    with sqlite3.connect(path) as db:
        db.execute("update transitions set why = null where job_id = 2")
        db.execute("pragma writable_schema=on")
        db.execute("update sqlite_master set sql = replace(sql, 'why text', 'why text not null')")


def set_round(number):
    def damage(path):
        with sqlite3.connect(path) as db:
            db.execute("update transitions set round = ? where job_id = 2", (number,))

    return damage


@pytest.mark.parametrize(
    "damage", [set_why_to_null, set_round(MAX_NUMBER), set_round(MAX_NUMBER + 1)], ids=["null", "round", "later round"]
)
def test_replaces_ledger_with_invalid_transitions(tmp_path, damage):
    path = tmp_path / "state.sqlite"
    a_ledger(path).close()
    damage(path)
    ledger = Ledger(path)
    assert [mishap.kind for mishap in ledger.unreported_events] == ["ledger_damaged"]
    assert ledger.list_managed_job_ids() == [1, 2, 3]


def quoting_bytes(path):
    """A schema that SQLite quotes in its message, with a byte that is no UTF-8: Python cannot make a text of it."""
    with sqlite3.connect(path) as db:
        db.execute("pragma writable_schema=on")
        no_text = b"create table x \xff".hex()
        db.execute(f"update sqlite_master set sql = cast(x'{no_text}' as text) where type = 'table'")
    db.close()


def test_undecodable_schema_error_is_damage(tmp_path):
    path = tmp_path / "state.sqlite"
    ledger = a_ledger(path)
    damaged_while_open(ledger, path, quoting_bytes)
    with pytest.raises(UnicodeDecodeError):
        rows(path, "select * from jobs")
    ledger.record([make_transition(ledger.get(1), LedgerState.STARTING, 6, "decided")])
    assert Ledger(path).list_entries() == ledger.list_entries()
    ledger.close()
    quoting_bytes(path)
    fresh = Ledger(path)
    assert (fresh.list_entries(), [mishap.kind for mishap in fresh.unreported_events]) == ([], ["ledger_damaged"])
    journal = tmp_path / "journal.sqlite"
    Journal(journal).close()
    quoting_bytes(journal)
    assert [mishap.kind for mishap in Journal(journal).unreported_events] == ["journal_damaged"]


def test_full_disk_is_no_damage(tmp_path):
    ledger = a_ledger(tmp_path / "state.sqlite")
    with full_disk(ledger):
        with pytest.raises(sqlite3.OperationalError):
            ledger.record([make_transition(ledger.get(1), LedgerState.FREE, 6, "released")])
        assert asides(tmp_path, "state.sqlite") == []
        assert ledger.get(1).state is LedgerState.HELD, "what is not written is not so"
        with pytest.raises(sqlite3.OperationalError):
            ledger.record([make_transition(ledger.get(1), LedgerState.FREE, 6, "released")], unwritten=True)
    assert ledger.get(1).state is LedgerState.FREE, "but in an emergency"


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        *(("IOERR_WRITE", False), ("IOERR_FSYNC", False), ("BUSY_SNAPSHOT", False), ("CANTOPEN_ISDIR", False)),
        *(("READONLY_DBMOVED", False), ("IOERR_SHORT_READ", True), ("CORRUPT_INDEX", True), ("NOTADB", True)),
    ],
)
def test_distinguishes_disk_and_file_errors_of_sqlite(name, damaged):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
    assert is_corruption(error) is damaged


@pytest.mark.parametrize("at_s", [1 << 40, -(1 << 40)])
def test_time_without_date_is_damage_at_reading(tmp_path, at_s):
    ledger = a_ledger(tmp_path / "state.sqlite")
    change(tmp_path / "state.sqlite", "update transitions set at_s = ? where job_id = 2", at_s)
    with pytest.raises(CorruptFileContent, match=f"at_s: ValueError: {at_s}"):
        ledger.read_transitions(2)
    assert ledger.read_transitions(1)


def test_recovers_jobs_by_marks_after_ledger_damage(tmp_path):
    """The submit plugin's mark proves that a job waits for the bridge; another hold is an administrator's."""
    cluster = FakeCluster.of(a_job(1), a_job(2), a_job(3), cluster=a_cluster(nodes=1, cores=1))
    cluster.submit(a_job(4), hold=Hold.ADMIN)
    first = a_bridge(tmp_path, cluster, cycles=1)
    first.ledger.close()
    overwritten(tmp_path / "state.sqlite")
    second = a_bridge(tmp_path, cluster)
    report = second.cycle()
    assert report.result == "ok"
    assert {e.job_id: e.state for e in second.ledger.list_entries()} == {2: LedgerState.HELD, 3: LedgerState.HELD}
    assert "ledger_damaged" in [event.kind for event in second.journal.list_events()]
    cluster.end(1)
    for _ in range(3):
        second.cycle()
    assert [cluster.jobs[id].starts for id in (1, 2, 3, 4)] == [1, 1, 0, 0]


@pytest.mark.parametrize("damage", DAMAGE)
def test_renames_damaged_journal_and_continues(tmp_path, damage):
    cluster = FakeCluster.of(*(a_job(id) for id in range(1, 300)), cluster=a_cluster(nodes=1, cores=1))
    first = a_bridge(tmp_path, cluster)
    for _ in range(3):
        first.cycle()
    first.journal.close()
    content = overwritten(tmp_path / "journal.sqlite", *DAMAGE[damage])
    second = a_bridge(tmp_path, cluster)
    reports = [second.cycle() for _ in range(2)]
    assert [report.result for report in reports] == ["ok", "ok"]
    assert list(second.journal.iterate_round_numbers()) == [report.number for report in reports]
    assert reports[0].number == 3, "counted on from the newest round that the ledger knows, in which a start succeeded"
    (aside,) = asides(tmp_path, "journal.sqlite")
    assert aside.read_bytes()[4096:] == content[4096:]
    assert [e.kind for e in second.journal.list_events() if e.kind != "mode"] == ["journal_damaged"]


def test_renames_journal_of_old_version_and_continues_numbers(tmp_path):
    path = tmp_path / "journal.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create table rounds (round integer primary key, state blob)")
        db.execute("insert into rounds values (1234, null)")
    db.close()
    with pytest.raises(CorruptFile, match=f"format 0, not {FORMAT}"):
        Journal(path, read_only=True)
    journal = Journal(path)
    assert journal.last_round == 1234
    assert [h.kind for h in journal.unreported_events] == ["journal_replaced"]
    (aside,) = asides(tmp_path, "journal.sqlite")
    assert aside.name.startswith("journal.sqlite.format-0-")
    journal.close()
    assert Journal(path).last_round == 1234
    assert Journal(path).unreported_events == []


def test_damaged_journal_part_is_one_line_error(bridge_at, tmp_path):
    bridge = bridge_at(FakeCluster(), mode="shadow")
    for _ in range(3):
        bridge.cycle()
    journal = bridge.journal
    change(tmp_path / "journal.sqlite", "update rounds set data = x'00112233' where round = 2")
    assert journal.read_round(1).number == 1
    with pytest.raises(CorruptFile, match="round=3: this part of the journal is damaged"):
        journal.read_round(3)
    assert journal.read_round(1).number == 1


def a_folder(path):
    path.mkdir()
    (path / "x").touch()


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(path))


IN_PLACE = {
    "a folder": a_folder,
    "a pipe": os.mkfifo,
    "a socket": a_socket,
    "a device": lambda path: path.symlink_to("/dev/full"),
}


@pytest.mark.parametrize("what", IN_PLACE)
@pytest.mark.parametrize("beside", ["", "-wal", "-shm"])
@pytest.mark.parametrize("kind", [Ledger, Journal])
def test_renames_directory_in_place_of_file(tmp_path, kind, beside, what):
    path = tmp_path / "x.sqlite"
    kind(path).close()
    place = path.with_name(path.name + beside)
    place.unlink(missing_ok=True)
    IN_PLACE[what](place)
    with pytest.raises(CorruptFileContent, match="is not a file"):
        kind(path, read_only=True)
    store = kind(path)
    assert [each.kind.endswith("damaged") for each in store.unreported_events] == [True]
    assert path.is_file()
    assert len(asides(tmp_path, "x.sqlite")) == 1
    store.close()


def test_dangling_link_is_not_renamed(tmp_path):
    """Where a link leads nowhere, nothing is known of what it leads to."""
    (tmp_path / "x.sqlite").symlink_to(tmp_path / "not mounted" / "x.sqlite")
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        Ledger(tmp_path / "x.sqlite")
    assert (tmp_path / "x.sqlite").is_symlink()


@pytest.mark.parametrize("what", ["/dev/zero", "a pipe", "a long file"])
def test_reads_small_file_up_to_limit_without_blocking(tmp_path, what):
    for name in ("heartbeat", "paused", "beginning", "bridge-id"):
        path = tmp_path / name
        if what == "a pipe":
            os.mkfifo(path)
        elif what == "a long file":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        else:
            path.symlink_to(what)
    assert heartbeat.read_heartbeat_file_age_s(tmp_path / "heartbeat") is not None
    assert PauseFile(tmp_path).read_reason() == "paused"
    words, _ = StartupProgressFile(tmp_path).read_step()
    assert len(words) < 1 << 17
    assert bridge_identity.read_bridge_name(tmp_path) is None


def test_writing_to_pipe_in_place_of_small_file_fails(tmp_path):
    for name in ("heartbeat", "paused.new"):
        os.mkfifo(tmp_path / name)
    for write in (
        lambda: heartbeat.touch_heartbeat(tmp_path / "heartbeat"),
        lambda: PauseFile(tmp_path).pause("why"),
    ):
        with pytest.raises(OSError, match="No such device"):
            write()


def test_renaming_overwrites_no_earlier_file(tmp_path):
    names = set()
    for _ in range(3):
        (tmp_path / "x.sqlite").write_text("x")
        (tmp_path / "x.sqlite-wal").write_text("wal")
        names.add(move_aside(tmp_path / "x.sqlite"))
    assert len(names) == 3
    assert all(name.exists() and name.with_name(name.name + "-wal").exists() for name in names)
    assert not (tmp_path / "x.sqlite-wal").exists()
