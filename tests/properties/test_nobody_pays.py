"""Test that one user's failing jobs delay other users' jobs little, and not at all if all jobs fit.

On shared nodes, two things bound the cost of a failed start for other users: the time until the start is undone, and
the number of failed starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.model import Job
from cpsched_bridge.cycle.backoff import MAX_GROUPS_PER_USER
from cpsched_bridge.ports import Hold
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.bridges import a_bridge, quiet_folder
from tests.builders import a_cluster, a_job
from tests.fakes import STUBBORN, FakeCluster, FakePace, FirstFit

TIMEOUT_S = 4
UNDONE_S = TIMEOUT_S + 4
"""Seconds until a failed start's nodes are free: the start is late, the job is held again, and the hold is observed."""
FIRST_OF_MALLORY = 1000


@dataclass(frozen=True)
class Arrival:
    """A job that arrives at a given second. If `kind` is empty, it runs for `run_s`."""

    at_s: int
    job: Job
    run_s: int = 1
    kind: str = ""


@dataclass(frozen=True)
class Story:
    """The result of arrivals."""

    starts_s: dict[int, int]
    tried_s: list[int]
    """Times of starts that could not succeed."""
    modes: set[str]
    events: list[str]


def play(arrivals: Sequence[Arrival], seconds: int, nodes: int, dispatcher: Dispatcher, **facts: object) -> Story:
    """Run a bridge on a cluster of `nodes` four-core nodes, with one cycle per second."""
    cluster, tried_s, modes, events = FakeCluster(a_cluster(nodes, 4)), [], set(), []
    with quiet_folder() as folder:
        pace = FakePace()
        bridge = a_bridge(folder, cluster, dispatcher, pace, start={"timeout_s": TIMEOUT_S}, **facts)
        for _ in range(seconds):
            for each in arrivals:
                if each.at_s == cluster.now_s:
                    _arrive(cluster, each)
            before = len(cluster.sent("start"))
            report = bridge.cycle()
            modes.add(report.role.mode)
            events += [happening.kind for happening in report.bridge_events]
            if any(cluster.jobs[id].stubborn for ids in cluster.sent("start")[before:] for id in ids):
                tried_s.append(cluster.now_s)
            cluster.advance()
            pace.at_s += 1
        bridge.close_files()
    return Story(starts_of(cluster), tried_s, modes, events)


def starts_of(cluster: FakeCluster) -> dict[int, int]:
    return {id: fake.start_s for id, fake in cluster.jobs.items() if fake.start_s is not None}


def _arrive(cluster: FakeCluster, arrival: Arrival) -> None:
    cluster.submit(replace(arrival.job, submit_s=cluster.now_s), run_s=arrival.run_s, stubborn=arrival.kind)


SMALL = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 3))
"""Strategy for another user's one-core job: arrival, run time and user."""
IN_VAIN = st.tuples(
    st.integers(0, 30), st.sampled_from(STUBBORN), st.integers(1, 8), st.integers(1, 5), st.integers(0, 2)
)
"""Strategy for one of Mallory's jobs: arrival, way to fail, cores, a number that distinguishes it, and account."""


def others_of(drawn: Sequence[tuple[int, int, int]]) -> list[Arrival]:
    ordered = enumerate(sorted(drawn), start=1)
    return [Arrival(at, replace(a_job(id, walltime_s=20), user=f"u{who}"), run) for id, (at, run, who) in ordered]


def mallorys(drawn: Sequence[tuple[int, str, int, int, int]]) -> list[Arrival]:
    found = []
    for id, (at, kind, cores, unlike, account) in enumerate(drawn, start=FIRST_OF_MALLORY):
        job = a_job(id, units=cores, walltime_s=100 + unlike)
        found.append(Arrival(at, replace(job, user="mallory", account=f"m{account}"), kind=kind))
    return found


@scaled_example_settings(12)
@given(st.lists(SMALL, min_size=1, max_size=12), st.lists(IN_VAIN, min_size=1, max_size=25))
def test_sufficient_capacity_keeps_starts_of_other_users(
    others: list[tuple[int, int, int]], vain: list[tuple[int, str, int, int, int]]
) -> None:
    nodes = 12 + 8 * len(vain)
    without = play(others_of(others), 60, nodes, EasyDispatcher())
    beside = play([*others_of(others), *mallorys(vain)], 60, nodes, EasyDispatcher())
    assert beside.modes == {"control"}
    assert {id: s for id, s in beside.starts_s.items() if id < FIRST_OF_MALLORY} == without.starts_s
    assert len(without.starts_s) == len(others)


@scaled_example_settings(12)
@given(st.lists(SMALL, min_size=1, max_size=20), st.lists(IN_VAIN, min_size=1, max_size=25))
def test_failed_start_delays_others_by_its_own_duration_at_most(
    others: list[tuple[int, int, int]], vain: list[tuple[int, str, int, int, int]]
) -> None:
    """Every job of the other users starts eventually, delayed by at most `UNDONE_S` per failed start."""
    without = play(others_of(others), 150, 2, FirstFit())
    beside = play([*others_of(others), *mallorys(vain)], 300, 2, FirstFit())
    assert beside.modes == {"control"}
    assert without.starts_s.keys() <= beside.starts_s.keys()
    for id, start_s in without.starts_s.items():
        tried = sum(at_s <= beside.starts_s[id] for at_s in beside.tried_s)
        assert beside.starts_s[id] - start_s <= UNDONE_S * tried


@pytest.mark.slow
@pytest.mark.parametrize("dispatcher", [FirstFit, EasyDispatcher, LookaheadDispatcher])
def test_1000_bad_jobs_of_all_kinds_cost_few_attempts(dispatcher: type[Dispatcher]) -> None:
    """Mallory's jobs come first and request all nodes. Other users' jobs wait for at most a few failed starts."""
    vain = [
        Arrival(
            0, replace(a_job(id, units=8, walltime_s=100 + id % 37), user="mallory", account=f"m{id % 3}"), kind=kind
        )
        for id, kind in zip(range(FIRST_OF_MALLORY, FIRST_OF_MALLORY + 1000), STUBBORN * 100, strict=False)
    ]
    others = others_of([(at, 5, at % 4) for at in range(1, 61)])
    without = play(others, 80, 2, dispatcher())
    beside = play([*vain, *others], 200, 2, dispatcher(), cycle={"max_commands": 50})
    assert beside.modes == {"control"}
    late_s = [beside.starts_s[id] - start_s for id, start_s in without.starts_s.items()]
    assert len(late_s) == 60
    assert max(late_s) <= (MAX_GROUPS_PER_USER + 2) * UNDONE_S
    assert len(beside.tried_s) <= 20


@pytest.mark.slow
def test_reports_and_attempts_are_bounded() -> None:
    """A user whose starts fail causes few events, and only about one attempt in two minutes."""
    vain = [
        Arrival(at, replace(a_job(FIRST_OF_MALLORY + at, walltime_s=100 + at), user="mallory"), kind=STUBBORN[at % 9])
        for at in range(300)
    ]
    story = play(vain, 600, 2, FirstFit())
    assert story.modes == {"control"}
    tries = [at for at in story.tried_s if at > 350]
    assert len(tries) <= 2 + 250 // 100
    assert len(story.events) <= 60, story.events


def test_flood_of_new_jobs_delays_no_start() -> None:
    """Jobs to release do not delay starts either: half of a cycle's commands are for starts, and users take turns."""
    cluster = FakeCluster(a_cluster(4, 4))
    with quiet_folder() as folder:
        bridge = a_bridge(folder, cluster, FirstFit(), cycle={"max_commands": 10})
        for _ in range(30):
            first = FIRST_OF_MALLORY + 60 * cluster.now_s
            for id in range(first, first + 30):
                cluster.submit(replace(a_job(id, 16, ineligible="Dependency"), user="mallory"), hold=Hold.NONE)
                cluster.submit(replace(a_job(id + 30), user="mallory"), stubborn="left")
            if cluster.now_s == 20:
                cluster.submit(*(replace(a_job(id), user="bob") for id in range(1, 6)))
                cluster.submit(replace(a_job(6), user="bob"), hold=Hold.NONE)
            bridge.cycle()
            cluster.advance()
        bridge.close_files()
    assert [starts_of(cluster)[id] for id in range(1, 7)] == [20] * 5 + [21]
