"""Jobs that meet limits of the cluster are put off with their like; nobody else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpsched.model import EndedJob
from cpsched_bridge.cycle.put_off import FIRST_WAIT_S, LONGEST_WAIT_S, MOST_TRIED, PutOff
from cpsched_bridge.ports import Hold, Observation, Obstacle, PendingJob
from cpsched_bridge.store.ledger import Entry, State, Transition
from tests.builders import a_cluster, a_job

CLUSTER = a_cluster()
LIMIT = Obstacle("AssocMaxJobsLimit", "user alice of account lab")


class World:
    """Held jobs of two users, and what a `PutOff` makes of them from second to second."""

    def __init__(self, alices: int = 6, bobs: int = 2) -> None:
        self.now_s = 100
        users = ["alice"] * alices + ["bob"] * bobs
        self.jobs = {id: replace(a_job(id), user=user, account="lab") for id, user in enumerate(users, start=1)}
        self.states = dict.fromkeys(self.jobs, State.HELD)
        self.put_off = PutOff()
        self.told: list[str] = []

    def observation(self, ended: tuple[int, ...] = ()) -> Observation:
        pending = tuple(self.pending(id) for id, state in self.states.items() if state in (State.HELD, State.STARTING))
        over = tuple(EndedJob(self.jobs[id], 50, self.now_s) for id in ended)
        return Observation(self.now_s, CLUSTER, np.array(CLUSTER.capacity), pending=pending, ended=over)

    def pending(self, id: int) -> PendingJob:
        job = self.jobs[id]
        groups = (f"job {id}", f"user {job.user} of account {job.account}", "QOS normal")
        return PendingJob(job, Hold.PLUGIN, groups=groups)

    def step(
        self, met: dict[int, Obstacle] | None = None, began: tuple[int, ...] = (), ended: tuple[int, ...] = ()
    ) -> dict[int, str]:
        """One reading, in which starts met obstacles or came true; the jobs that are put off, with the reason."""
        transitions = []
        for id in began:
            self.states[id] = State.RUNNING
            transitions.append(Transition(State.STARTING, Entry(id, State.RUNNING, self.now_s)))
        for id, obstacle in (met or {}).items():
            self.states[id] = State.HELD
            transitions.append(Transition(State.STARTING, Entry(id, State.ROLLING_BACK, self.now_s), obstacle))
        seen = self.observation(ended)
        self.told += [happening.detail for happening in self.put_off.note(seen, transitions)]
        entries = {id: Entry(id, state, 0) for id, state in self.states.items()}
        marked = self.put_off.applied(seen, entries)
        assert [each.job.id for each in marked.pending] == [each.job.id for each in seen.pending]
        return {each.job.id: each.job.ineligible for each in marked.pending if each.job.ineligible is not None}

    def free(self, **what: object) -> list[int]:
        """The held jobs that may start."""
        off = self.step(**what)  # type: ignore[arg-type]
        return [id for id, state in self.states.items() if state is State.HELD and id not in off]


def test_without_an_obstacle_nothing_is_touched() -> None:
    world = World()
    seen = world.observation()
    assert world.put_off.note(seen, []) == []
    assert world.put_off.applied(seen, {}) is seen


def test_one_obstacle_puts_off_the_whole_group_and_nobody_else() -> None:
    world = World()
    off = world.step(met={1: LIMIT, 2: LIMIT})
    assert off == dict.fromkeys(range(1, 7), "AssocMaxJobsLimit (user alice of account lab)")
    assert world.told == ["user alice of account lab: AssocMaxJobsLimit; 2 job(s) held again"]


def test_the_wait_doubles_up_to_a_bound_and_is_told_once() -> None:
    world = World()
    waits = []
    for _ in range(9):
        world.step(met={1: LIMIT})
        since_s = world.now_s
        while 1 not in world.free():
            world.now_s += 1
        waits.append(world.now_s - since_s)
    assert waits == [2, 4, 8, 16, 32, 64, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert len(world.told) == 1


def test_after_a_wait_one_is_tried_then_two_then_four() -> None:
    world = World(alices=10)
    world.step(met={1: LIMIT})
    tried = []
    for _ in range(3):
        world.now_s += FIRST_WAIT_S
        free = [id for id in world.free() if id <= 10]
        tried.append(len(free))
        for id in free:
            world.states[id] = State.STARTING
        world.now_s += 1
        world.step(began=tuple(free))
    assert tried == [1, 2, 4]


def test_a_turn_that_was_taken_is_gone() -> None:
    """An end lets one more job start; when that one runs, the next waits."""
    world = World()
    world.jobs[20] = replace(a_job(20), user="alice")
    world.step(met={1: LIMIT})
    assert world.free(ended=(20,)) == [1, 7, 8]
    assert world.free(began=(1,)) == [7, 8]


def test_starts_on_their_way_count() -> None:
    world = World()
    world.step(met={1: LIMIT})
    world.now_s += FIRST_WAIT_S
    assert world.free() == [1, 7, 8]
    world.states[1] = State.STARTING
    assert world.free() == [7, 8]


def test_without_obstacles_the_throttle_is_forgotten() -> None:
    world = World(alices=200)
    world.step(met={1: LIMIT})
    for _ in range(20):
        world.now_s += FIRST_WAIT_S
        if len(world.free()) == 202:
            break
    assert len(world.free()) == 202
    assert MOST_TRIED < 200


def test_each_end_of_theirs_lets_one_more_start_at_once() -> None:
    world = World()
    world.jobs |= {20: replace(a_job(20), user="alice"), 21: replace(a_job(21), user="carol", account="other")}
    world.step(met={1: LIMIT})
    assert world.free(ended=(21,)) == [7, 8]
    assert world.free(ended=(20,)) == [1, 7, 8]
    assert world.free(ended=(20,)) == [1, 2, 7, 8]


def test_an_obstacle_after_something_moved_begins_with_the_shortest_wait() -> None:
    world = World()
    world.jobs[20] = replace(a_job(20), user="alice")
    for _ in range(5):
        world.step(met={1: LIMIT})
    world.step(met={1: LIMIT}, ended=(20,))
    world.now_s += FIRST_WAIT_S
    assert 1 in world.free()


def test_a_limit_of_one_job_puts_off_that_job_until_it_asks_for_something_else() -> None:
    world = World()
    world.jobs[20] = replace(a_job(20), user="alice")
    assert set(world.step(met={3: Obstacle("QOSMaxWallDurationPerJobLimit", "job 3")})) == {3}
    assert set(world.step(ended=(20,))) == {3}, "nothing of that is freed by other jobs"
    world.jobs[3] = replace(world.jobs[3], walltime_s=world.jobs[3].walltime_s // 2)
    assert world.step() == {}


def test_a_job_of_two_throttled_groups_waits_for_both() -> None:
    world = World()
    world.step(met={1: LIMIT, 7: Obstacle("QOSGrpCpuLimit", "QOS normal")})
    world.now_s += FIRST_WAIT_S
    assert world.free() == [1], "the QOS allows one, which is alice's"


def test_what_is_ineligible_anyway_keeps_its_reason_and_takes_no_turn() -> None:
    world = World()
    world.jobs[1] = replace(world.jobs[1], ineligible="dependency")
    world.step(met={2: LIMIT})
    world.now_s += FIRST_WAIT_S
    off = world.step()
    assert off[1] == "dependency"
    assert 2 not in off


def test_a_group_of_which_nothing_waits_is_forgotten() -> None:
    world = World(alices=1)
    world.step(met={1: LIMIT})
    world.states[1] = State.RUNNING
    world.step()
    world.jobs[30], world.states[30] = replace(a_job(30), user="alice", account="lab"), State.HELD
    assert 30 in world.free()


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_user_at_a_limit_keeps_it_filled_with_few_vain_starts(limit: int) -> None:
    """A cluster that starts at most so many of alice's jobs, each 5 s long: all run, and few starts are in vain."""
    world = World(alices=40, bobs=0)
    running: dict[int, int] = {}
    starting: list[int] = []
    vain = 0
    while any(state is not State.ENDED for state in world.states.values()) and world.now_s < 2000:
        world.now_s += 1
        ended = tuple(id for id, since_s in running.items() if world.now_s - since_s >= 5)
        for id in ended:
            del running[id]
            world.states[id] = State.ENDED
        began = tuple(starting[: max(0, limit - len(running))])
        met = dict.fromkeys(starting[len(began) :], LIMIT)
        running |= dict.fromkeys(began, world.now_s)
        vain += len(met)
        starting = world.free(met=met, began=began, ended=ended)
        for id in starting:
            world.states[id] = State.STARTING
    assert set(world.states.values()) == {State.ENDED}
    assert world.now_s - 100 <= 3 * 40 * 5 / limit
    assert vain <= 40 + 2 * 40


def test_an_end_counts_for_the_same_user_or_account_and_to_have_no_account_is_to_share_none() -> None:
    for user, account, counts in (("alice", "other", True), ("eve", "lab", True), ("eve", "other", False)):
        world = World()
        world.jobs[20] = replace(a_job(20), user=user, account=account)
        world.step(met={1: LIMIT})
        assert (1 in world.free(ended=(20,))) is counts
    world = World()
    world.jobs = {id: replace(job, account="") for id, job in world.jobs.items()}
    world.jobs[20] = replace(a_job(20), user="eve")
    world.step(met={1: Obstacle("MaxJobs", "user alice of account ")})
    assert 1 not in world.free(ended=(20,))
