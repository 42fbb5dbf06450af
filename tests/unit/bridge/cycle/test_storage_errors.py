"""A storage error at each write in a bridge's life: the cycle fails, and nothing is lost or done twice."""

import sqlite3

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import Ledger, LedgerState
from cpsched_bridge.store.round_replay import replay_round
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster

READS = ("select", "pragma")


class Disk:
    """Fails at the write of this number, once; counts the writes of all files, commits among them."""

    def __init__(self, fails_at=None):
        self.fails_at, self.writes, self.failed = fails_at, 0, ""

    def write(self, what):
        self.writes += 1
        if self.writes == self.fails_at:
            self.failed = what
            raise sqlite3.OperationalError("database or disk is full")


class Watched:
    """A connection whose writes a disk may refuse."""

    def __init__(self, db, disk, name):
        self._db, self._disk, self._name = db, disk, name

    def _note(self, query):
        if not query.lstrip().lower().startswith(READS):
            self._disk.write(f"{self._name}: {' '.join(query.split())[:40]}")

    def execute(self, query, *args):
        self._note(query)
        return self._db.execute(query, *args)

    def executemany(self, query, rows):
        self._note(query)
        return self._db.executemany(query, rows)

    def __enter__(self):
        return self._db.__enter__()

    def __exit__(self, kind, error, trace):
        if kind is None and self._db.in_transaction:
            try:
                self._disk.write(f"{self._name}: commit")
            except sqlite3.Error:
                self._db.rollback()
                raise
        return self._db.__exit__(kind, error, trace)

    def close(self):
        self._db.close()


def a_life(folder, disk):
    """A bridge that adopts, starts, rolls back, releases and sees the end of jobs. Bridge, cluster, reports."""
    cluster = FakeCluster.of(*(a_job(id, walltime_s=50) for id in (1, 2, 3)), cluster=a_cluster(nodes=2, cores=1))
    cluster.submit(a_job(4), hold=cluster.jobs[1].hold.NONE)
    bridge = a_bridge(folder, cluster, EasyDispatcher(), policy_spec=PolicySpec("easy"), start={"timeout_s": 3})
    state = bridge.ledger.file
    state.db = Watched(state.db, disk, "ledger")
    bridge.journal._db = Watched(bridge.journal._db, disk, "journal")  # noqa: SLF001
    reports = []
    for step in range(16):
        cluster.now_s += 2
        cluster.lazy = step in (3, 4)
        if step == 2:
            cluster.end(next(id for id, fake in cluster.jobs.items() if fake.running))
        if step == 7:
            bridge.pause.pause("maintenance")
        if step == 9:
            bridge.pause.resume()
        for id, fake in cluster.jobs.items():
            if step > 10 and fake.running and cluster.now_s - fake.start_s > 3:
                cluster.end(id)
        reports.append(bridge.cycle())
    return bridge, cluster, reports


MOST_WRITES = 200
"""More than a life has: those beyond its last write are one test that says so."""


@pytest.mark.parametrize("group", [*range(3), *(pytest.param(group, marks=pytest.mark.slow) for group in range(3, 10))])
def test_storage_error_at_any_write_costs_one_cycle(tmp_path, group):
    for number in range(1 + group, MOST_WRITES, 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        disk = Disk(number)
        bridge, cluster, reports = a_life(folder, disk)
        if not disk.failed:
            assert number > 60, "a life has more writes"
            break
        results = [report.result for report in reports]
        assert sorted(results) == ["ok"] * (len(results) - 1) + ["storage_error"], disk.failed
        for _ in range(5):
            cluster.now_s += 2
            for id, fake in cluster.jobs.items():
                if fake.running:
                    cluster.end(id)
            assert bridge.cycle().result == "ok", disk.failed
        assert [fake.starts for fake in cluster.jobs.values()] == [1, 1, 1, 1], disk.failed
        assert {entry.state for entry in bridge.ledger.list_entries()} == {LedgerState.ENDED}, disk.failed
        assert Ledger(folder / "state.sqlite").list_entries() == bridge.ledger.list_entries(), disk.failed
        journal = Journal(folder / "journal.sqlite", read_only=True)
        numbers = list(journal.iterate_round_numbers())
        assert [journal.read_round(number).number for number in numbers] == numbers, disk.failed
        assert replay_round(journal.read_round(numbers[-10])).is_same_decision, disk.failed
        journal.close()
        bridge.close_files()
