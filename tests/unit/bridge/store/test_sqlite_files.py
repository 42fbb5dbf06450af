"""Reading a database on a read-only disk: all committed data, or an error."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from cpsched_bridge.store import sqlite_files
from cpsched_bridge.store.sqlite_files import connect_sqlite, read_rows


def a_copy(tmp_path, in_log):
    """A file with the row 1, and its log, which has the row 2 where `in_log`."""
    path, copy = tmp_path / "x.sqlite", tmp_path / "copy.sqlite"
    with closing(connect_sqlite(path, durable=False)) as db:
        db.executescript("create table t (a); insert into t values (1); pragma wal_checkpoint(truncate)")
        if in_log:
            with db:
                db.execute("insert into t values (2)")
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    return copy


@pytest.fixture
def nobody_writes(monkeypatch):
    """SQLite opens only a file that cannot change, as on a read-only disk."""
    opened = sqlite_files._connect  # noqa: SLF001

    def only_immutable(name, uri=False):
        if "immutable" not in str(name):
            raise sqlite3.OperationalError("unable to open database file")
        return opened(name, uri)

    monkeypatch.setattr(sqlite_files, "_connect", only_immutable)


def test_reads_file_with_empty_wal_without_write_access(tmp_path, request):
    copy = a_copy(tmp_path, in_log=False)
    request.getfixturevalue("nobody_writes")
    assert read_rows(copy, "select a from t") == [(1,)]


def test_does_not_overlook_data_in_wal(tmp_path, request):
    copy = a_copy(tmp_path, in_log=True)
    assert read_rows(copy, "select a from t") == [(1,), (2,)]
    request.getfixturevalue("nobody_writes")
    with pytest.raises(sqlite3.OperationalError, match="cannot be opened"):
        read_rows(copy, "select a from t")
