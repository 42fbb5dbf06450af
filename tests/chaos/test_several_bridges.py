"""Two and three real bridges on one simulated cluster: one leads, no job is lost, started twice or stranded."""

import os
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.cycle import reconcile
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.ports import FENCED_EPOCH
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.chaos.several_bridges import EVENTS_S, KINDS, Event, SeveralBridgesHistory, SharedSite, history_of, play

HISTORIES, PARTS = int(os.environ.get("CPSCHED_HISTORIES", "10000")), 20
OVERTAKEN = "whose successor has changed jobs"
AGAIN = "python -m tests.chaos.several_bridges"


def seconds(most: float) -> st.SearchStrategy[float]:
    return st.integers(0, int(100 * most)).map(lambda hundredths: hundredths / 100)


def number(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


events = st.builds(Event, seconds(EVENTS_S), st.sampled_from(KINDS), number(2), seconds(45), number(40))
histories = st.builds(
    SeveralBridgesHistory,
    seed=st.just(0),
    hosts=st.sampled_from((2, 3)),
    plugin=st.booleans(),
    linked=st.booleans(),
    jobs=st.lists(st.tuples(seconds(EVENTS_S), st.sampled_from((1, 2, 4)), st.integers(1, 25)), max_size=8).map(tuple),
    events=st.lists(events, max_size=8).map(tuple),
)


@scaled_example_settings(300)
@given(histories)
def test_one_bridge_leads_and_no_job_is_lost(history):
    """Hypothesis shrinks a failing history, which `play` repeats exactly."""
    assert play(history.without_unsafe_events()).wrongs == []


def test_history_replays_from_its_seed():
    for seed in range(3):
        first, again = (play(history_of(seed)) for _ in range(2))
        assert without_leases(first.log) == without_leases(again.log)
        assert first.counts == again.counts


def without_leases(log):
    """Return the log without the leases, whose names of processes are random."""
    return [line for line in log if "lease:" not in line]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_have_one_leader_and_lose_no_job(part):
    for seed in range(part, HISTORIES, PARTS):
        assert play(history_of(seed)).wrongs == [], f"{AGAIN} {seed}"


@pytest.mark.slow
def test_random_histories_contain_every_kind_of_event():
    counts = sum((play(history_of(seed)).counts for seed in range(100)), Counter())
    assert [kind for kind in KINDS if not counts[kind]] == []


def first_wrong(words: str, kinds: tuple[str, ...]) -> int | None:
    """Return the first seed whose history with these kinds of events goes wrong in this way."""
    return next((seed for seed in range(2000) if words in "".join(play(history_of(seed, kinds)).wrongs)), None)


def never(*_):
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guard", "words", "kinds"),
    [
        # a leader whose lease has expired sends its commands
        (lambda: patch.object(LeaderElection, "is_lease_expired", never), "without the lease", ("suspend in reading",)),
        # the submit plugin accepts the changes of an earlier epoch
        (lambda: patch.object(SharedSite, "refuses", never), OVERTAKEN, ("suspend in command", "requeue")),
        # a leader leaves the pins of earlier leaders
        (lambda: patch.object(reconcile, "_reconcile_unadopted", leave_foreign_pins), "since second", KINDS),
        # a paused bridge releases jobs with an epoch that the submit plugin refuses
        (lambda: patch.object(LeaderElection, "_find_epoch", find_leaders_epoch), "without a leader", ("pause",)),
        # the link sends messages and renews the lease while the main loop hangs
        (lambda: patch.object(LeaderElection, "keep_link", keep_link_of_hung_loop), "without a leader", ("hang",)),
    ],
    ids=["expiry of the lease", "epoch", "foreign pins", "epoch of a paused bridge", "hung main loop"],
)
def test_histories_find_each_broken_guard(guard, words, kinds):
    with guard():
        assert first_wrong(words, kinds) is not None


plain_rule = reconcile._reconcile_unadopted  # noqa: SLF001


def leave_foreign_pins(entry, pending, now_s, options):
    """Return what the rule says about a job that is not pinned, and nothing about others."""
    return None if pending.pinned else plain_rule(entry, pending, now_s, options)


def find_leaders_epoch(election, seen):
    return election.mine.epoch if election._is_leader else FENCED_EPOCH  # noqa: SLF001


plain_keep_link = LeaderElection.keep_link


def keep_link_of_hung_loop(election, now_s):
    election._observed_s = now_s  # noqa: SLF001
    plain_keep_link(election, now_s)


def test_standby_leads_soon_after_the_leader_dies():
    """At each tenth of a second of a cycle, with the link up."""
    worst_s = 0.0
    for tenth in range(0, 40, 4):
        kill = Event(20 + tenth / 10, "kill now", 0, 60.0, 0)
        history = SeveralBridgesHistory(0, 2, True, True, ((1.0, 4, 25), (21.0, 4, 5)), (kill,))
        verdict = play(history)
        assert verdict.wrongs == []
        worst_s = max(worst_s, *verdict.takeovers_s)
    assert worst_s < 10.0


def test_cut_link_and_standby_death_never_move_control():
    for kind, host in (("cut", 0), ("kill now", 1), ("suspend", 1), ("outage", 1)):
        history = SeveralBridgesHistory(0, 2, True, True, ((1.0, 4, 25),), (Event(20.3, kind, host, 19.0, 0),))
        assert play(history).takeovers_s == []
        assert play(replace(history, plugin=False)).takeovers_s == []
