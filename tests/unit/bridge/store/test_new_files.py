"""A newly created file is like any other, and a failed attempt leaves no open connection or file behind."""

import sqlite3
from types import SimpleNamespace

import pytest

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.store import journal as journals
from cpsched_bridge.store import state_file as ledgers
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.journal_reader import UnscheduledJob
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from tests.stores import GARBAGE, change, damaged_while_open, full_disk

FULL = "pragma query_only=on; create table more (x)"
"""What fails as on a full disk: that is no damage."""

MODULES = {"ledger": ledgers, "journal": journals}
MADE = {"ledger": Ledger, "journal": Journal}


def write(store, number):
    if isinstance(store, Ledger):
        store.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=number)], number)
    else:
        store.write_events(0.0, number, [CycleEvent("odd", f"event {number}")])


def written(store):
    if isinstance(store, Ledger):
        return [entry.job_id for entry in store.list_entries()]
    return [event.round for event in store.list_events()]


def is_closed(db):
    try:
        db.execute("select 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def list_connections(module, monkeypatch):
    """Return the list to which the connections will be added that a store's module makes."""
    connect, opened = module.connect_sqlite, []

    def noted(*args, **kwargs):
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(module, "connect_sqlite", noted)
    return opened


@pytest.fixture(params=["ledger", "journal"])
def file(request, tmp_path, monkeypatch):
    """One of the two files in use; `opened` lists the connections made since, and `damage` makes it garbage."""
    path, module = tmp_path / f"{request.param}.sqlite", MODULES[request.param]
    opened = list_connections(module, monkeypatch)
    store = MADE[request.param](path)
    write(store, 1)

    def damage():
        damaged_while_open(store, path, lambda path: path.write_bytes(GARBAGE))

    def asides():
        return [each for each in tmp_path.glob("*.damaged-*") if not each.name.endswith(("-wal", "-shm"))]

    return SimpleNamespace(path=path, module=module, store=store, opened=opened, damage=damage, asides=asides)


def test_full_disk_does_not_rename_new_file(file):
    file.damage()
    write(file.store, 2)
    assert len(file.asides()) == 1
    with full_disk(file.store), pytest.raises(sqlite3.OperationalError):
        write(file.store, 3)
    assert len(file.asides()) == 1, "it is whole"
    write(file.store, 4)
    assert written(file.store)[-2:] == [2, 4]
    assert written(MADE[file.path.stem](file.path)) == written(file.store)


def test_file_damaged_twice_is_renamed_twice(file):
    for number in (2, 3):
        file.damage()
        write(file.store, number)
    assert len(file.asides()) == 2
    assert [mishap.kind for mishap in file.store.unreported_events] == [f"{file.path.stem}_damaged"] * 2
    assert all(
        aside.name in mishap.detail
        for aside, mishap in zip(sorted(file.asides()), file.store.unreported_events, strict=True)
    )


def test_failed_recreation_leaves_no_open_connection(file, monkeypatch):
    file.damage()
    before = len(file.opened)
    with monkeypatch.context() as patched:
        patched.setattr(file.module, "SCHEMA", FULL)
        for number in (2, 3):
            with pytest.raises(sqlite3.OperationalError):
                write(file.store, number)
    tried = file.opened[before:]
    assert len(tried) == 2
    assert all(is_closed(db) for db in tried)
    write(file.store, 4)
    assert written(file.store)[-1] == 4


def test_unopenable_file_leaves_no_open_connection(file, monkeypatch):
    monkeypatch.setattr(file.module, "SCHEMA", FULL)
    before, other = len(file.opened), file.path.parent / "other"
    other.mkdir()
    with pytest.raises(sqlite3.OperationalError):
        MADE[file.path.stem](other / file.path.name)
    assert len(file.opened) == before + 1
    assert is_closed(file.opened[-1])
    assert file.asides() == []


@pytest.mark.parametrize("stem", ["ledger", "journal"])
def test_closes_connections_to_renamed_file(tmp_path, monkeypatch, stem):
    module, path = MODULES[stem], tmp_path / f"{stem}.sqlite"
    path.write_bytes(GARBAGE)
    opened = list_connections(module, monkeypatch)
    store = MADE[stem](path)
    assert sum(not is_closed(db) for db in opened) == 1
    store.close()
    assert all(map(is_closed, opened)), "the one that was open is the store's"


def test_first_write_to_new_journal_is_complete(tmp_path):
    """The list of jobs that are set aside is written as what changed: there is nothing yet that it could change."""
    journal = Journal(tmp_path / "journal.sqlite")
    first, second = UnscheduledJob(1, "held", "by its owner"), UnscheduledJob(2, "held", "by its owner")
    journal.write_unscheduled_jobs([first])
    damaged_while_open(journal, tmp_path / "journal.sqlite", lambda path: path.write_bytes(GARBAGE))
    journal.write_unscheduled_jobs([first, second])
    assert journal.list_unscheduled_jobs() == [first, second]


@pytest.mark.parametrize("stem", ["ledger", "journal"])
@pytest.mark.parametrize("content", [None, b""])
def test_creates_missing_or_empty_file_silently(tmp_path, stem, content):
    path = tmp_path / f"{stem}.sqlite"
    if content is not None:
        path.write_bytes(content)
    store = MADE[stem](path)
    write(store, 1)
    assert store.unreported_events == []
    assert written(MADE[stem](path)) == [1]


@pytest.mark.parametrize("stem", ["ledger", "journal"])
def test_read_only_open_leaves_damaged_file(tmp_path, stem):
    path = tmp_path / f"{stem}.sqlite"
    path.write_bytes(GARBAGE)
    with pytest.raises(CorruptFileContent, match="file is not a database"):
        MADE[stem](path, read_only=True)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == GARBAGE


@pytest.mark.parametrize(
    ("jobs", "words"),
    [(0, "1"), (1, "1, 7"), (2, "7, 8"), (49, "54, 55"), (50, "54, 55 and 1 more"), (52, "55 and 3 more")],
)
def test_reports_up_to_50_jobs_of_damaged_ledger(tmp_path, jobs, words):
    path = tmp_path / "state.sqlite"
    ledger = Ledger(path)
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=id) for id in range(1, 7 + jobs)])
    ledger.close()
    change(path, "update jobs set state = 'free' where id >= 7")
    change(path, "update jobs set nodes = 'no list' where id = 1")
    anew = Ledger(path)
    (mishap,) = anew.unreported_events
    assert "started a new file with 5 jobs from valid rows" in mishap.detail
    assert [entry.job_id for entry in anew.list_entries()] == [2, 3, 4, 5, 6]
    named = mishap.detail.partition("; discarded ")[2]
    assert named.startswith("1, 7" if jobs else "1")
    assert named.endswith(words)
    assert named.count(",") == min(jobs, 49)
