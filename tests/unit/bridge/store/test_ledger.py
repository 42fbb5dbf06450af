import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpsched_bridge.store.ledger import CLOSED, FOLLOWS, KEPT, Entry, IllegalTransition, Ledger, State, Transition, move


def test_what_was_recorded_is_there_after_a_restart(tmp_path):
    first = Ledger(tmp_path / "ledger.sqlite")
    first.record([move(None, State.HELD, 5, "held by the submit plugin", job_id=7, label="7_1")])
    first.record([move(first.get(7), State.STARTING, 6, "decided", nodes=(("n1", 2),), pinned=True)], 3)
    second = Ledger(tmp_path / "ledger.sqlite")
    expected = Entry(7, State.STARTING, 6, pinned=True, nodes=(("n1", 2),), label="7_1", why="decided")
    assert second.get(7) == expected
    assert second.kept() == [7]
    assert second.pinned() == {7}
    assert [(before, after) for _, _, before, after, _ in second.history(7)] == [(None, "held"), ("held", "starting")]


def test_a_transition_must_start_where_the_ledger_stands(tmp_path):
    """All or none: a batch with one transition from a state the job is not in changes nothing."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record([move(None, State.HELD, 0, "", job_id=1)])
    stale = move(Entry(1, State.STARTING, 0), State.RUNNING, 1, "")
    with pytest.raises(IllegalTransition, match="job 1"):
        ledger.record([move(None, State.HELD, 1, "", job_id=2), stale])
    assert ledger.get(2) is None
    assert Ledger(tmp_path / "ledger.sqlite").get(2) is None


def test_states_that_cannot_follow_are_refused():
    with pytest.raises(IllegalTransition, match="job 3: running cannot become starting"):
        move(Entry(3, State.RUNNING, 0), State.STARTING, 1, "")


def test_jobs_that_are_over_are_forgotten_in_time(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record([move(None, State.HELD, 0, "", job_id=id) for id in (1, 2, 3)])
    ledger.record([move(ledger.get(1), State.GONE, 10, ""), move(ledger.get(2), State.GONE, 90, "")])
    ledger.forget(before_s=50)
    assert [entry.job_id for entry in ledger.entries()] == [2, 3]
    assert ledger.history(1) == []
    assert [entry.job_id for entry in Ledger(tmp_path / "ledger.sqlite").entries()] == [2, 3]


def test_every_state_can_be_left_for_running_and_for_an_end():
    """Whatever the bridge believes, the cluster may have started, ended or lost the job."""
    for state in set(State) - CLOSED - {State.RUNNING}:
        assert {State.RUNNING, State.ENDED, State.GONE} <= FOLLOWS[state]


def test_every_kept_state_can_be_handed_back():
    for state in KEPT - {State.HANDING_BACK}:
        assert State.HANDING_BACK in FOLLOWS[state]


@given(walk=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(State), st.booleans()), max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_walk_along_legal_transitions_survives_a_restart(tmp_path_factory, walk):
    """The ledger on disk is the ledger in memory after every step; illegal steps leave no trace."""
    path = tmp_path_factory.mktemp("walk") / "ledger.sqlite"
    ledger, model = Ledger(path, durable=False), {}
    for at_s, (job_id, state, pinned) in enumerate(walk):
        before = model.get(job_id)
        legal = state in FOLLOWS[before.state if before else None] or (before is not None and state == before.state)
        if not legal:
            with pytest.raises(IllegalTransition):
                move(before, state, at_s, "", job_id=job_id, pinned=pinned)
            continue
        step = move(before, state, at_s, "", **({} if before else {"job_id": job_id}), pinned=pinned)
        ledger.record([step])
        model[job_id] = step.entry
    fresh = Ledger(path, durable=False)
    assert {e.job_id: e for e in fresh.entries()} == {e.job_id: e for e in ledger.entries()} == model
    assert set(fresh.kept()) == {id for id, e in model.items() if e.state in KEPT}


def test_a_transition_checks_itself():
    with pytest.raises(IllegalTransition):
        Transition(None, Entry(1, State.RUNNING, 0))
