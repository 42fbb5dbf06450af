"""Provide SQLite connections that fail on a full or read-only disk, and at which a process can be killed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.site import Fuse

ERRORS = {"full": "database or disk is full", "read-only": "attempt to write a readonly database"}
_READS = ("select", "pragma")


@dataclass
class Disk:
    """The state of the disk. `trouble` is empty, `full` or `read-only`."""

    fuse: Fuse
    trouble: str = ""
    open: list[sqlite3.Connection] = field(default_factory=list)

    def touch(self, statement: str) -> None:
        """Fail if the disk has trouble, or die if the fuse is burnt. Each statement calls this first."""
        self.fuse.burn()
        if self.trouble and not statement.lstrip().lower().startswith(_READS):
            raise sqlite3.OperationalError(ERRORS[self.trouble])

    @contextmanager
    def under_sqlite(self) -> Iterator[None]:
        """Put connections opened in the block on this disk."""
        disk, plain = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            def execute(self, statement, *arguments):
                disk.touch(statement)
                return super().execute(statement, *arguments)

            def executemany(self, statement, *arguments):
                disk.touch(statement)
                return super().executemany(statement, *arguments)

            def executescript(self, script):
                there = super().execute("select count(*) from sqlite_master").fetchone()[0]
                disk.touch("select" if there else script)  # existing tables are not created again
                return super().executescript(script)

            def __exit__(self, kind, error, trace):
                disk.fuse.burn()
                found = super().__exit__(kind, error, trace)
                disk.fuse.burn()
                return found

            def commit(self):
                disk.fuse.burn()
                super().commit()
                disk.fuse.burn()

        def connect(*arguments, **options):
            connection = plain(*arguments, factory=Connection, **options)
            disk.open.append(connection)
            return connection

        sqlite3.connect = connect
        try:
            yield
        finally:
            sqlite3.connect = plain

    def drop(self) -> None:
        """End the process. Uncommitted data is lost."""
        for connection in self.open:
            with contextlib.suppress(sqlite3.ProgrammingError):  # the connection is closed
                sqlite3.Connection.rollback(connection)
            connection.close()
        self.open.clear()
