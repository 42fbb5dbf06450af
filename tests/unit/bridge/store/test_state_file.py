"""One file of three ledgers: damage of one table, or of the whole file, costs no other table's entries."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.store.ledger import Ledger, LedgerState, make_transition
from cpsched_bridge.store.state_file import FORMAT, OLDER_LEDGER_NAME, OtherStateFormat, StateFile, seal_row
from cpsched_bridge.store.state_tables import BoostLedger, PreemptionLedger
from tests.stores import GARBAGE, change, damaged_while_open, rows

WHAT = PreemptionUnderWay(7, (("n1", 1),), (Victim(1, 50, "requeue"),))


class Ledgers:
    """The three ledgers of one file."""

    def __init__(self, path: Path) -> None:
        self.jobs = Ledger(path)
        self.boosts, self.preemptions = BoostLedger(self.jobs.file), PreemptionLedger(self.jobs.file)

    def ids(self) -> tuple[list[int], list[int], list[int]]:
        """Return the jobs, the boosted jobs and the preempting jobs."""
        preempting = [each.what.job_id for each in self.preemptions.entries]
        return [entry.job_id for entry in self.jobs.list_entries()], list(self.boosts.by_id), preempting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def filled(path: Path) -> Ledgers:
    found = Ledgers(path)
    found.jobs.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=id) for id in (1, 2)])
    found.boosts.record_intended({3: 30, 4: 40}, 5)
    found.preemptions.record_intended([(WHAT, "eve")], 5)
    return found


ALL = ([1, 2], [3, 4], [7])


def test_next_bridge_reads_all_three_ledgers(filled: Ledgers, path: Path) -> None:
    assert filled.ids() == ALL  # the first is killed: nothing is closed
    assert Ledgers(path).ids() == ALL
    assert rows(path, "pragma user_version") == [(FORMAT,)]


@pytest.mark.parametrize(
    ("damage", "left", "named"),
    [
        ("update jobs set state = 'free' where id = 2", ([1], [3, 4], [7]), "1 job, 2 boosts, 1 pre.* discarded 2$"),
        ("update boosts set points = '[3]' where id = 3", ([1, 2], [4], [7]), "2 jobs, 1 boost, .* discarded boost 3$"),
        ("update preemptions set job_id = 9", ([1, 2], [3, 4], []), "2 jobs, 2 boosts from .* discarded preemption 1$"),
        ("drop table jobs", ([], [3, 4], [7]), "the table of jobs is missing; .* 0 jobs, 2 boosts"),
        ("drop table boosts", ([1, 2], [], [7]), "the table of boosts is missing; .* 2 jobs, 1 preemption"),
        ("drop table preemptions", ([1, 2], [3, 4], []), "the table of preemptions is missing; .* 2 jobs, 2 boosts"),
    ],
)  # fmt: skip
def test_damage_of_one_table_leaves_the_others(
    filled: Ledgers, path: Path, damage: str, left: tuple[list[int], ...], named: str
) -> None:
    change(path, damage)
    again = Ledgers(path)
    assert again.ids() == left
    (event,) = again.jobs.unreported_events
    assert event.kind == "ledger_damaged"
    assert re.search(named, event.detail)
    assert Ledgers(path).ids() == left
    assert not again.jobs.whole


@pytest.mark.parametrize("table", ["jobs", "boosts", "preemptions"])
def test_reader_needs_only_its_own_table(filled: Ledgers, path: Path, table: str) -> None:
    """A reader changes nothing, and damage elsewhere is not its concern."""
    change(path, f"update {table} set seal = 0")
    for name, kind in (("boosts", BoostLedger), ("preemptions", PreemptionLedger)):
        with closing(StateFile(path, read_only=True)) as file:
            if name == table:
                with pytest.raises(CorruptFileContent, match="the checksum does not match"):
                    kind(file)
            else:
                kind(file)
    assert rows(path, f"select distinct seal from {table}") == [(0,)]


@pytest.mark.parametrize("deleted", [False, True])
def test_any_write_restores_all_tables_from_memory(filled: Ledgers, path: Path, deleted: bool) -> None:
    if deleted:
        path.unlink()
    else:
        damaged_while_open(filled.jobs, path, lambda path: path.write_bytes(GARBAGE))
    filled.boosts.record_intended({5: 50}, 6)
    assert filled.ids() == Ledgers(path).ids() == ([1, 2], [3, 4, 5], [7])
    (event,) = filled.jobs.unreported_events
    assert event.kind == ("ledger_gone" if deleted else "ledger_damaged")


def test_restored_file_keeps_tables_that_nobody_opened(filled: Ledgers, path: Path) -> None:
    """In advise mode no step reads preemptions, and a later bridge in control mode needs them."""
    filled.jobs.close()
    ledger = Ledger(path)
    damaged_while_open(ledger, path, lambda path: path.write_bytes(GARBAGE))
    ledger.record([make_transition(ledger.get(1), LedgerState.STARTING, 6, "decided")])
    assert Ledgers(path).ids() == ALL


def test_refuses_other_format_but_release_all_reads_it(filled: Ledgers, path: Path) -> None:
    change(path, f"pragma user_version = {FORMAT + 1}")
    for read_only in (False, True):
        with pytest.raises(OtherStateFormat, match="run `cpsched release-all`, then move the state folder aside"):
            Ledger(path, read_only=read_only)
    with state_paths.open_emergency_ledger(Settings(state_dir=path.parent)) as emergency:
        assert emergency.list_managed_job_ids() == [1, 2]
        assert list(BoostLedger(emergency.file).by_id) == [3, 4]
    assert rows(path, "pragma user_version") == [(FORMAT + 1,)]


OLDER_FILES = {
    "ledger.sqlite": (
        "create table jobs (id integer primary key, state text, since_s integer, pinned integer, failures integer, "
        "nodes text, leave text, label text, why text, cause text, asked text, restore text, seal integer)",
        "jobs",
        (7, "handing-back", 5, 1, 2, '[["n1", 2]]', "", "7_1", "decided", "", "", "Partition=a,b"),
    ),
    "boosts.sqlite": (
        "create table boosts (id integer primary key, points text, since_s integer, seal integer)",
        "boosts",
        (8, "[500]", 5),
    ),
    "advice.sqlite": (
        "create table advice (id integer primary key, points text, since_s integer, seal integer)",
        "advice",
        (8, "[500]", 5),
    ),
}


@pytest.mark.parametrize("more", [[], ["advice.sqlite"], ["boosts.sqlite"]])
def test_refuses_older_files_but_release_all_reads_them(path: Path, more: list[str]) -> None:
    kept = ["ledger.sqlite", *more]
    for name in kept:
        schema, table, values = OLDER_FILES[name]
        row = seal_row(*values)
        with closing(sqlite3.connect(path.with_name(name))) as db, db:
            db.execute(schema)
            db.execute(f"insert into {table} values ({','.join('?' * len(row))})", row)
    for open_ledger in (lambda: Ledger(path), lambda: Ledger(path, read_only=True)):
        with pytest.raises(OtherStateFormat, match="run `cpsched release-all`, then move the state folder aside"):
            open_ledger()
    with state_paths.open_emergency_ledger(Settings(state_dir=path.parent)) as emergency:
        (entry,) = emergency.list_entries()
        assert (entry.job_id, entry.state, entry.restore) == (7, LedgerState.RELEASING, "Partition=a,b")
        assert list(BoostLedger(emergency.file).by_id) == ([8] if len(kept) > 1 else [])
    assert sorted(each.name for each in path.parent.iterdir()) == sorted(kept), "nothing is written"


def test_deleted_state_of_living_bridge_is_no_older_build(filled: Ledgers, path: Path) -> None:
    """A file that another program created does not stop a bridge that runs."""
    path.unlink()
    path.with_name(OLDER_LEDGER_NAME).touch()
    filled.jobs.file.restore_if_missing()
    assert Ledgers(path).ids() == ALL
