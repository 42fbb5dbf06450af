import sqlite3
from contextlib import closing
from dataclasses import astuple, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.corruption_checks import CorruptFileContent, compute_row_checksum
from cpsched_bridge.store.ledger import (
    CLOSED_STATES,
    MANAGED_STATES,
    PERMITTED_TRANSITIONS,
    IllegalLedgerTransition,
    Ledger,
    LedgerState,
    LedgerTransition,
    ManagedJobEntry,
    make_caused_transition,
    make_transition,
)
from cpsched_bridge.store.state_file import OtherStateFormat
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.stores import change, nobody_is_writing, rows, setting


def test_each_entry_field_survives_restart(tmp_path):
    """What a job is left to the cluster for, above all: it would be taken again."""
    left = {"unmanaged_reason": "the cluster holds it", "unmanaged_request": "2 x 4 for 60 s in main"}
    refused = make_caused_transition(
        ManagedJobEntry(7, LedgerState.HOLDING, 5), LedgerState.HOLDING, 6, "held_by_administrator"
    ).entry
    told = replace(
        refused, pinned=True, failures=3, nodes=(("n1", 2), ("n2", 1)), label="7_1", restore="Partition=a,b", **left
    )
    assert all(value != field.default for field, value in zip(fields(ManagedJobEntry), astuple(told), strict=True))
    for durable in (False, True):
        first = Ledger(tmp_path / "state.sqlite", durable)
        first.record([LedgerTransition(told.state if first.get(7) else None, told)])
        first.close()
        again = Ledger(tmp_path / "state.sqlite")
        assert (again.get(7), again.get_job_name(7), again.get_job_name(8)) == (told, "7_1", "8")
        assert Ledger.load_in_memory_copy(tmp_path / "state.sqlite").get(7) == told


def test_cause_belongs_to_its_transition():
    entry = make_caused_transition(
        ManagedJobEntry(7, LedgerState.STARTING, 5), LedgerState.STARTING, 6, "released"
    ).entry
    assert make_transition(entry, LedgerState.STARTING, 7, "decided").entry.cause == ""
    left = make_transition(
        ManagedJobEntry(7, LedgerState.HELD, 5),
        LedgerState.FREE,
        6,
        "",
        unmanaged_reason="held",
        unmanaged_request="1 x 2",
    ).entry
    assert make_transition(left, LedgerState.HOLDING, 7, "").entry.unmanaged_request == "1 x 2"
    assert make_transition(left, LedgerState.HOLDING, 7, "", unmanaged_reason="").entry.unmanaged_request == ""


def test_reason_for_leaving_a_job_names_its_request_if_it_depends_on_it():
    left = ManagedJobEntry(7, LedgerState.FREE, 5, unmanaged_reason="odd", unmanaged_request="1 x 2")
    entries = left, replace(left, unmanaged_request=""), replace(left, unmanaged_reason="")
    assert [entry.unmanaged_text for entry in entries] == ["odd, while it requests 1 x 2", "odd", ""]


def test_writes_invalid_user_text_escaped(tmp_path, ledger):
    ledger.record(
        [
            make_transition(
                None, LedgerState.HELD, 1, "why \udc80", job_id=7, unmanaged_reason="leave \udc80", label="\udc80"
            )
        ]
    )
    (entry,) = Ledger(tmp_path / "state.sqlite").list_entries()
    assert (entry.why, entry.unmanaged_reason, entry.label) == (r"why \udc80", r"leave \udc80", r"\udc80")


OLDER_SCHEMA = """
create table jobs (
  id integer primary key, state text not null, since_s integer not null, pinned integer not null,
  failures integer not null, nodes text not null, leave text not null, label text not null, why text not null,
  seal integer);
create table transitions (
  seq integer primary key, at_s integer not null, round integer not null, job_id integer not null,
  before text, after text not null, why text not null);
"""


@pytest.mark.parametrize("read_only", [False, True])
def test_refuses_ledger_of_older_build_but_release_all_reads_it(tmp_path, read_only):
    path = tmp_path / "state.sqlite"
    row = (7, "starting", 5, 1, 2, '[["n1", 2], ["Partition=a,b", 0]]', "", "7_1", "decided", 99)
    with sqlite3.connect(path) as db:
        db.executescript(OLDER_SCHEMA)
        db.execute(f"insert into jobs values ({','.join('?' * 10)})", row)
    db.close()
    with pytest.raises(OtherStateFormat, match="run `cpsched release-all`, then move the state folder aside"):
        Ledger(path, read_only=read_only)
    entry = ManagedJobEntry(
        7, LedgerState.STARTING, 5, True, 2, (("n1", 2),), label="7_1", why="decided", restore="Partition=a,b"
    )
    with state_paths.open_emergency_ledger(Settings(state_dir=tmp_path)) as emergency:
        assert emergency.list_entries() == [entry]
    assert rows(path, "select * from jobs") == [row]


def test_committed_data_is_in_main_file(tmp_path):
    """So a log that is damaged, or was not copied, takes nothing along."""
    ledger = Ledger(tmp_path / "state.sqlite")
    ledger.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=7)])
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "state.sqlite").read_bytes())
    assert Ledger(tmp_path / "copy.sqlite").list_managed_job_ids() == [7]


@pytest.mark.parametrize(
    "damage",
    ["delete from jobs where id = 1", "drop table jobs", "drop table transitions", "update transitions set round = -1"],
)
def test_detects_missing_rows_or_tables_at_start(tmp_path, damage):
    path = tmp_path / "state.sqlite"
    ledger = Ledger(path)
    ledger.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=id) for id in (1, 2)], 3)
    assert Ledger(path).whole
    ledger.close()
    change(path, damage)
    anew = Ledger(path)
    assert not anew.whole
    assert anew.list_managed_job_ids() == {"delete": [2], "drop table jobs": []}.get(damage.split(" from")[0], [1, 2])
    assert [mishap.kind for mishap in anew.unreported_events] == ["ledger_damaged"]


def test_unknown_state_is_reported_with_its_job(tmp_path):
    """The seal fits, so that another build wrote it."""
    path = tmp_path / "state.sqlite"
    with closing(Ledger(path)) as ledger:
        ledger.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=7)])
    ((id, _, *others, _),) = rows(path, "select * from jobs")
    change(path, f"update jobs set state = 'odd', seal = {compute_row_checksum((id, 'odd', *others))}")
    for read in (Ledger, Ledger.load_in_memory_copy):
        with pytest.raises(CorruptFileContent, match="job 7: "):
            read(path)


def test_transition_must_start_from_current_state(tmp_path, ledger):
    """All or none: a batch with one transition from a state the job is not in changes nothing."""
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])
    stale = make_transition(ManagedJobEntry(1, LedgerState.STARTING, 0), LedgerState.RUNNING, 1, "")
    with pytest.raises(IllegalLedgerTransition, match="job 1"):
        ledger.record([make_transition(None, LedgerState.HELD, 1, "", job_id=2), stale])
    assert ledger.get(2) is None
    assert Ledger(tmp_path / "state.sqlite").get(2) is None


def test_rejects_illegal_state_change():
    with pytest.raises(IllegalLedgerTransition, match="job 3: running cannot become starting"):
        make_transition(ManagedJobEntry(3, LedgerState.RUNNING, 0), LedgerState.STARTING, 1, "")


def test_every_state_can_become_running_or_ended():
    """Whatever the bridge believes, the cluster may have started, ended or lost the job."""
    for state in set(LedgerState) - CLOSED_STATES - {LedgerState.RUNNING}:
        assert {LedgerState.RUNNING, LedgerState.ENDED, LedgerState.GONE} <= PERMITTED_TRANSITIONS[state]


def test_every_kept_state_can_be_released():
    for state in MANAGED_STATES - {LedgerState.RELEASING}:
        assert LedgerState.RELEASING in PERMITTED_TRANSITIONS[state]


@given(walk=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(LedgerState), st.booleans()), max_size=40))
@scaled_example_settings(60)
def test_legal_transitions_survive_restart(tmp_path_factory, walk):
    """The ledger on disk is the ledger in memory after every step; illegal steps leave no trace."""
    path = tmp_path_factory.mktemp("walk") / "state.sqlite"
    ledger, model = Ledger(path, durable=False), {}
    for at_s, (job_id, state, pinned) in enumerate(walk):
        before = model.get(job_id)
        legal = state in PERMITTED_TRANSITIONS[before.state if before else None] or (
            before is not None and state == before.state
        )
        if not legal:
            with pytest.raises(IllegalLedgerTransition):
                make_transition(before, state, at_s, "", job_id=job_id, pinned=pinned)
            continue
        step = make_transition(before, state, at_s, "", **({} if before else {"job_id": job_id}), pinned=pinned)
        ledger.record([step])
        model[job_id] = step.entry
    fresh = Ledger(path, durable=False)
    assert {e.job_id: e for e in fresh.list_entries()} == {e.job_id: e for e in ledger.list_entries()} == model
    assert set(fresh.list_managed_job_ids()) == {id for id, e in model.items() if e.state in MANAGED_STATES}


def test_transition_validates_itself():
    with pytest.raises(IllegalLedgerTransition):
        LedgerTransition(None, ManagedJobEntry(1, LedgerState.RUNNING, 0))


@pytest.mark.parametrize(("options", "level"), [({}, 2), ({"durable": True}, 2), ({"durable": False}, 1)])
def test_commits_are_durable_by_default(tmp_path, options, level):
    """SQLite's levels: 2 is FULL, which survives a power failure; 1 is NORMAL, which does not in WAL mode."""
    ledger = Ledger(tmp_path / "state.sqlite", **options)
    assert (setting(ledger, "synchronous"), setting(ledger, "journal_mode")) == (level, "wal")


def test_ledger_has_many_readers_and_one_writer(tmp_path):
    writer = Ledger(tmp_path / "state.sqlite")
    writer.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])
    reader = Ledger(tmp_path / "state.sqlite", read_only=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.record([make_transition(None, LedgerState.HELD, 0, "", job_id=2)])
    writer.record([make_transition(None, LedgerState.HELD, 0, "", job_id=3)])
    assert reader.list_managed_job_ids() == [1]
    reader.reload()
    assert reader.list_managed_job_ids() == [1, 3]
    writer.record([make_transition(writer.get(3), LedgerState.GONE, 1, "")])
    writer.prune(2)
    reader.reload()
    assert (reader.list_managed_job_ids(), reader.get(3)) == ([1], None)
    assert reader.count_jobs_by_state()[LedgerState.GONE] == 0


def test_reading_missing_ledger_creates_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sqlite3.OperationalError):
        Ledger("state.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_closed_ledger_rejects_use(tmp_path, ledger):
    ledger.close()
    with pytest.raises(sqlite3.ProgrammingError):
        ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])


def test_new_entry_has_empty_defaults():
    entry = ManagedJobEntry(7, LedgerState.HELD, 5)
    assert make_transition(None, LedgerState.HELD, 5, "", job_id=7) == LedgerTransition(None, entry, None, False, "")


def test_history_has_time_cycle_states_and_reason(tmp_path, ledger):
    ledger.record(
        [
            make_transition(None, LedgerState.HELD, 5, "submitted", job_id=7),
            make_transition(None, LedgerState.HELD, 5, "", job_id=8),
        ]
    )
    ledger.record([make_transition(ledger.get(7), LedgerState.STARTING, 6, "decided")], 3)
    assert ledger.read_transitions(7) == [(5, 0, None, "held", "submitted"), (6, 3, "held", "starting", "decided")]


@pytest.mark.parametrize("state", sorted(CLOSED_STATES))
def test_prunes_job_that_ended_long_ago(tmp_path, ledger, state):
    for id, since_s in ((1, 49), (2, 50), (3, 51)):
        ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=id)])
        ledger.record([make_transition(ledger.get(id), state, since_s, "")])
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=4)])
    ledger.prune(50)
    assert [entry.job_id for entry in ledger.list_entries()] == [2, 3, 4]
    assert ledger.count_jobs_by_state()[state] == 2
    assert ledger.list_open_job_ids() == {4}
    assert ledger.read_transitions(1) == []
    assert Ledger(tmp_path / "state.sqlite").list_entries() == ledger.list_entries()


def test_lists_entries_by_state_and_pins_of_open_jobs(tmp_path, ledger):
    for id, state in enumerate(LedgerState, start=1):
        ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=id, pinned=True)])
        if state not in (LedgerState.HELD, LedgerState.HOLDING, LedgerState.ROLLING_BACK):
            ledger.record([make_transition(ledger.get(id), state, 0, "")])
    states = {entry.job_id: entry.state for entry in ledger.list_entries()}
    assert [e.job_id for e in ledger.list_entries(LedgerState.FREE, LedgerState.GONE)] == [
        id for id, state in states.items() if state in (LedgerState.FREE, LedgerState.GONE)
    ]
    assert (
        ledger.list_pinned_job_ids()
        == ledger.list_open_job_ids()
        == {id for id, state in states.items() if state not in CLOSED_STATES}
    )
    assert ledger.list_managed_job_ids() == [id for id, state in states.items() if state in MANAGED_STATES]


def test_ledger_is_durable_unless_opened_for_emergency(tmp_path):
    for asked, synchronous in ((Settings(state_dir=tmp_path), 2), (Settings(state_dir=tmp_path, durable=False), 1)):
        with state_paths.open_ledger(asked) as ledger:
            assert setting(ledger, "synchronous") == synchronous
        with state_paths.open_emergency_ledger(asked) as ledger:
            assert setting(ledger, "synchronous") == synchronous


def test_record_returns_after_commit(tmp_path, ledger):
    """Another process sees it: a transaction that is left open would be lost with the process."""
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])
    assert nobody_is_writing(tmp_path / "state.sqlite")
    assert Ledger(tmp_path / "state.sqlite", read_only=True).list_managed_job_ids() == [1]
    ledger.prune(0)
    assert nobody_is_writing(tmp_path / "state.sqlite")
