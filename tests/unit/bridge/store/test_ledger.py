import sqlite3
from dataclasses import astuple, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.settings import Settings
from cpsched_bridge.store import state_paths
from cpsched_bridge.store.ledger import (
    CLOSED,
    FOLLOWS,
    KEPT,
    IllegalLedgerTransition,
    Ledger,
    LedgerState,
    LedgerTransition,
    ManagedJobEntry,
    make_caused_transition,
    make_transition,
    unmanaged_fields,
)
from cpsched_sim.testing.example_counts import tries
from tests.stores import change, nobody_is_writing, rows, setting


def test_every_field_of_an_entry_survives_a_restart(tmp_path):
    """What a job is left to the cluster for, above all: it would be taken again."""
    left = unmanaged_fields("2 x 4 for 60 s in main", "the cluster holds it")
    refused = make_caused_transition(
        ManagedJobEntry(7, LedgerState.HOLDING, 5), LedgerState.HOLDING, 6, "held_by_administrator"
    ).entry
    told = replace(refused, pinned=True, failures=3, nodes=(("n1", 2), ("n2", 1)), label="7_1", **left)
    assert all(value != field.default for field, value in zip(fields(ManagedJobEntry), astuple(told), strict=True))
    for durable in (False, True):
        first = Ledger(tmp_path / "ledger.sqlite", durable)
        first.record([LedgerTransition(told.state if first.get(7) else None, told)])
        first.close()
        assert Ledger(tmp_path / "ledger.sqlite").get(7) == told
        assert Ledger.load_copy(tmp_path / "ledger.sqlite").get(7) == told


@pytest.mark.parametrize(
    ("state", "why", "cause"),
    [
        (LedgerState.STARTING, "released", "released"),
        (LedgerState.HOLDING, "hold refused: is held by an administrator", "held_by_administrator"),
        (LedgerState.FREE, "released", ""),
        (LedgerState.HOLDING, "hold refused: is RUNNING", ""),
    ],
)
def test_the_causes_of_an_earlier_versions_ledger_are_read(tmp_path, state, why, cause):
    """The columns of the file are those of the first version, which goes on with the file after a downgrade."""
    first = Ledger(tmp_path / "ledger.sqlite")
    first.replace_entries(
        [ManagedJobEntry(7, state, 6, why=why, leave="held, while it asks for a, while it asks for 1 x 2")]
    )
    first.close()
    found = Ledger(tmp_path / "ledger.sqlite").get(7)
    assert (found.cause, found.asked) == (cause, "1 x 2")


def test_a_cause_is_that_of_its_transition_alone():
    entry = make_caused_transition(
        ManagedJobEntry(7, LedgerState.STARTING, 5), LedgerState.STARTING, 6, "released"
    ).entry
    assert make_transition(entry, LedgerState.STARTING, 7, "decided").entry.cause == ""
    left = make_transition(
        ManagedJobEntry(7, LedgerState.HELD, 5), LedgerState.FREE, 6, "", **unmanaged_fields("1 x 2", "held")
    ).entry
    assert make_transition(left, LedgerState.HOLDING, 7, "").entry.asked == "1 x 2"
    assert make_transition(left, LedgerState.HOLDING, 7, "", leave="").entry.asked == ""


def test_what_a_user_wrote_that_is_no_text_is_written_escaped(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record(
        [make_transition(None, LedgerState.HELD, 1, "why \udc80", job_id=7, leave="leave \udc80", label="\udc80")]
    )
    (entry,) = Ledger(tmp_path / "ledger.sqlite").list_entries()
    assert (entry.why, entry.leave, entry.label) == (r"why \udc80", r"leave \udc80", r"\udc80")


def test_a_ledger_of_a_version_without_seals_is_read_and_sealed_as_it_is_written(tmp_path):
    path = tmp_path / "ledger.sqlite"
    first = Ledger(path)
    first.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=id) for id in (1, 2)])
    first.close()
    with sqlite3.connect(path) as db:
        db.execute("alter table jobs drop column seal")
    db.close()
    with state_paths.open_ledger(Settings(state_dir=tmp_path), read_only=True) as looked_at:
        assert looked_at.list_held_ids() == [1, 2]
    ledger = Ledger(path)
    assert (ledger.list_held_ids(), ledger.mishaps, ledger.whole) == ([1, 2], [], True)
    ledger.record([make_transition(ledger.get(1), LedgerState.FREE, 6, "handed back")])
    assert dict(rows(path, "select id, seal is null from jobs")) == {1: 0, 2: 1}


def test_what_is_committed_is_in_the_file_itself(tmp_path):
    """So a log that is damaged, or was not copied, takes nothing along."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=7)])
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "ledger.sqlite").read_bytes())
    assert Ledger(tmp_path / "copy.sqlite").list_held_ids() == [7]


@pytest.mark.parametrize(
    "damage",
    ["delete from jobs where id = 1", "drop table jobs", "drop table transitions", "update transitions set round = -1"],
)
def test_what_is_missing_is_noticed_at_the_start(tmp_path, damage):
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.record([make_transition(None, LedgerState.HELD, 5, "held", job_id=id) for id in (1, 2)], 3)
    assert Ledger(path).whole
    ledger.close()
    change(path, damage)
    anew = Ledger(path)
    assert not anew.whole
    assert anew.list_held_ids() == {"delete": [2], "drop table jobs": []}.get(damage.split(" from")[0], [1, 2])
    assert [mishap.kind for mishap in anew.mishaps] == ["ledger_damaged"]


def test_a_transition_must_start_where_the_ledger_stands(tmp_path):
    """All or none: a batch with one transition from a state the job is not in changes nothing."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])
    stale = make_transition(ManagedJobEntry(1, LedgerState.STARTING, 0), LedgerState.RUNNING, 1, "")
    with pytest.raises(IllegalLedgerTransition, match="job 1"):
        ledger.record([make_transition(None, LedgerState.HELD, 1, "", job_id=2), stale])
    assert ledger.get(2) is None
    assert Ledger(tmp_path / "ledger.sqlite").get(2) is None


def test_states_that_cannot_follow_are_refused():
    with pytest.raises(IllegalLedgerTransition, match="job 3: running cannot become starting"):
        make_transition(ManagedJobEntry(3, LedgerState.RUNNING, 0), LedgerState.STARTING, 1, "")


def test_every_state_can_be_left_for_running_and_for_an_end():
    """Whatever the bridge believes, the cluster may have started, ended or lost the job."""
    for state in set(LedgerState) - CLOSED - {LedgerState.RUNNING}:
        assert {LedgerState.RUNNING, LedgerState.ENDED, LedgerState.GONE} <= FOLLOWS[state]


def test_every_kept_state_can_be_handed_back():
    for state in KEPT - {LedgerState.HANDING_BACK}:
        assert LedgerState.HANDING_BACK in FOLLOWS[state]


@given(walk=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(LedgerState), st.booleans()), max_size=40))
@tries(60)
def test_any_walk_along_legal_transitions_survives_a_restart(tmp_path_factory, walk):
    """The ledger on disk is the ledger in memory after every step; illegal steps leave no trace."""
    path = tmp_path_factory.mktemp("walk") / "ledger.sqlite"
    ledger, model = Ledger(path, durable=False), {}
    for at_s, (job_id, state, pinned) in enumerate(walk):
        before = model.get(job_id)
        legal = state in FOLLOWS[before.state if before else None] or (before is not None and state == before.state)
        if not legal:
            with pytest.raises(IllegalLedgerTransition):
                make_transition(before, state, at_s, "", job_id=job_id, pinned=pinned)
            continue
        step = make_transition(before, state, at_s, "", **({} if before else {"job_id": job_id}), pinned=pinned)
        ledger.record([step])
        model[job_id] = step.entry
    fresh = Ledger(path, durable=False)
    assert {e.job_id: e for e in fresh.list_entries()} == {e.job_id: e for e in ledger.list_entries()} == model
    assert set(fresh.list_held_ids()) == {id for id, e in model.items() if e.state in KEPT}


def test_a_transition_checks_itself():
    with pytest.raises(IllegalLedgerTransition):
        LedgerTransition(None, ManagedJobEntry(1, LedgerState.RUNNING, 0))


@pytest.mark.parametrize(("options", "level"), [({}, 2), ({"durable": True}, 2), ({"durable": False}, 1)])
def test_a_durable_commit_reaches_the_disk_and_that_is_the_default(tmp_path, options, level):
    """SQLite's levels: 2 is FULL, which survives a power failure; 1 is NORMAL, which does not in WAL mode."""
    ledger = Ledger(tmp_path / "ledger.sqlite", **options)
    assert (setting(ledger, "synchronous"), setting(ledger, "journal_mode")) == (level, "wal")


def test_a_ledger_can_be_looked_at_while_it_is_written_but_not_written_twice(tmp_path):
    writer = Ledger(tmp_path / "ledger.sqlite")
    writer.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])
    reader = Ledger(tmp_path / "ledger.sqlite", read_only=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.record([make_transition(None, LedgerState.HELD, 0, "", job_id=2)])
    writer.record([make_transition(None, LedgerState.HELD, 0, "", job_id=3)])
    assert reader.list_held_ids() == [1]
    reader.reload()
    assert reader.list_held_ids() == [1, 3]
    writer.record([make_transition(writer.get(3), LedgerState.GONE, 1, "")])
    writer.prune(2)
    reader.reload()
    assert reader.list_held_ids() == [1]
    assert reader.get(3) is None
    assert reader.counts_by_state()[LedgerState.GONE] == 0


def test_looking_at_a_ledger_that_is_not_there_makes_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sqlite3.OperationalError):
        Ledger("ledger.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_ledger_is_closed(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.close()
    with pytest.raises(sqlite3.ProgrammingError):
        ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])


def test_a_new_entry_is_as_bare_as_can_be():
    assert make_transition(None, LedgerState.HELD, 5, "", job_id=7).entry == ManagedJobEntry(7, LedgerState.HELD, 5)
    entry = ManagedJobEntry(7, LedgerState.HELD, 5)
    assert (entry.pinned, entry.failures, entry.nodes, entry.leave, entry.label, entry.why) == (
        False,
        0,
        (),
        "",
        "",
        "",
    )


def test_the_history_of_a_job_tells_when_in_which_round_and_why(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record(
        [
            make_transition(None, LedgerState.HELD, 5, "submitted", job_id=7),
            make_transition(None, LedgerState.HELD, 5, "", job_id=8),
        ]
    )
    ledger.record([make_transition(ledger.get(7), LedgerState.STARTING, 6, "decided")], 3)
    assert ledger.read_transitions(7) == [(5, 0, None, "held", "submitted"), (6, 3, "held", "starting", "decided")]


@pytest.mark.parametrize("state", sorted(CLOSED))
def test_a_job_is_forgotten_once_it_has_been_over_for_long_enough(tmp_path, state):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for id, since_s in ((1, 49), (2, 50), (3, 51)):
        ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=id)])
        ledger.record([make_transition(ledger.get(id), state, since_s, "")])
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=4)])
    ledger.prune(50)
    assert [entry.job_id for entry in ledger.list_entries()] == [2, 3, 4]
    assert ledger.counts_by_state()[state] == 2
    assert ledger.open_ids() == {4}
    assert ledger.read_transitions(1) == []
    assert Ledger(tmp_path / "ledger.sqlite").list_entries() == ledger.list_entries()


def test_entries_are_asked_for_by_state_and_pins_only_of_jobs_that_are_not_over(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for id, state in enumerate(LedgerState, start=1):
        ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=id, pinned=True)])
        if state not in (LedgerState.HELD, LedgerState.HOLDING, LedgerState.ROLLING_BACK):
            ledger.record([make_transition(ledger.get(id), state, 0, "")])
    states = {entry.job_id: entry.state for entry in ledger.list_entries()}
    assert [e.job_id for e in ledger.list_entries(LedgerState.FREE, LedgerState.GONE)] == [
        id for id, state in states.items() if state in (LedgerState.FREE, LedgerState.GONE)
    ]
    assert ledger.get_pinned_ids() == ledger.open_ids() == {id for id, state in states.items() if state not in CLOSED}
    assert ledger.list_held_ids() == [id for id, state in states.items() if state in KEPT]


def test_the_settings_make_the_ledger_durable_and_leave_no_other_choice_by_accident(tmp_path):
    for asked, synchronous in ((Settings(state_dir=tmp_path), 2), (Settings(state_dir=tmp_path, durable=False), 1)):
        with state_paths.open_ledger(asked) as ledger:
            assert setting(ledger, "synchronous") == synchronous
        with state_paths.open_emergency_ledger(asked) as ledger:
            assert setting(ledger, "synchronous") == synchronous


def test_a_batch_is_on_disk_before_record_returns(tmp_path):
    """Another process sees it: a transaction that is left open would be lost with the process."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record([make_transition(None, LedgerState.HELD, 0, "", job_id=1)])
    assert nobody_is_writing(tmp_path / "ledger.sqlite")
    assert Ledger(tmp_path / "ledger.sqlite", read_only=True).list_held_ids() == [1]
    ledger.prune(0)
    assert nobody_is_writing(tmp_path / "ledger.sqlite")
