"""Jobs that meet limits of the cluster are put off with their like; nobody else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpsched.model import EndedJob
from cpsched_bridge.cycle.came_true import FailedStart
from cpsched_bridge.cycle.put_off import (
    FIRST_WAIT_S,
    KINDS_IN_VAIN,
    LONGEST_WAIT_S,
    MOST_TRIED,
    PutOff,
    everything_of,
)
from cpsched_bridge.likes import BackoffKey
from cpsched_bridge.ports import NO_WAY_BACK, Hold, Observation, Obstacle, PendingJob
from cpsched_bridge.store.ledger import Entry, State, Transition
from tests.builders import a_cluster, a_job
from tests.reach import entries

CLUSTER = a_cluster()
LIMIT = Obstacle("AssocMaxJobsLimit", BackoffKey("association", ("alice", "lab")))


class World:
    """Held jobs of two users, and what a `PutOff` makes of them from second to second."""

    def __init__(self, alices: int = 6, bobs: int = 2) -> None:
        self.now_s = 100
        users = ["alice"] * alices + ["bob"] * bobs
        self.jobs = {id: replace(a_job(id), user=user, account="lab") for id, user in enumerate(users, start=1)}
        self.states = dict.fromkeys(self.jobs, State.HELD)
        self.put_off = PutOff()
        self.told: list[str] = []
        self.alone: set[int] = set()
        """Jobs whose failed starts something else explains."""
        self.ordinary: set[int] = set()
        """Those of them that may fail as those of anybody."""
        self.stays: set[int] = set()
        """Jobs that cannot be handed back."""
        self.room = np.array(CLUSTER.capacity)

    def observation(self, ended: tuple[int, ...] = ()) -> Observation:
        pending = tuple(self.pending(id) for id, state in self.states.items() if state in (State.HELD, State.STARTING))
        over = tuple(EndedJob(self.jobs[id], 50, self.now_s) for id in ended)
        return Observation(self.now_s, CLUSTER, self.room, pending=pending, ended=over)

    def pending(self, id: int) -> PendingJob:
        job = self.jobs[id]
        names = ("job", (str(id),)), ("association", (job.user, job.account)), ("qos", ("normal", ""))
        groups = tuple(BackoffKey(*each) for each in names)
        return PendingJob(job, Hold.PLUGIN, groups=groups, no_way_back=id in self.stays)

    def step(
        self,
        met: dict[int, Obstacle] | None = None,
        began: tuple[int, ...] = (),
        ended: tuple[int, ...] = (),
        failed: tuple[int, ...] = (),
    ) -> dict[int, str]:
        """One reading, in which starts met obstacles, came true or failed; the jobs that are put off, and why."""
        transitions = []
        for id in began:
            self.states[id] = State.RUNNING
            transitions.append(Transition(State.STARTING, Entry(id, State.RUNNING, self.now_s)))
        for id, obstacle in (met or {}).items():
            self.states[id] = State.HELD
            transitions.append(Transition(State.STARTING, Entry(id, State.ROLLING_BACK, self.now_s), obstacle))
        self.states |= dict.fromkeys(failed, State.HELD)
        seen = self.observation(ended)
        vain = [FailedStart(self.pending(id), frozenset(), id in self.alone, id in self.ordinary) for id in failed]
        self.told += [happening.detail for happening in self.put_off.note(seen, transitions, vain)]
        marked = self.put_off.applied(seen, self.entries())
        self.order = [each.job.id for each in marked.pending]
        assert sorted(self.order) == [each.job.id for each in seen.pending]
        self.ranks = {each.job.id: (each.job.tier, each.job.priority, each.job.submit_s) for each in marked.pending}
        return {each.job.id: each.job.ineligible for each in marked.pending if each.job.ineligible is not None}

    def entries(self) -> dict[int, Entry]:
        return {id: Entry(id, state, 0) for id, state in self.states.items()}

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
    assert set(world.step(met={3: Obstacle("QOSMaxWallDurationPerJobLimit", BackoffKey("job", ("3",)))})) == {3}
    assert set(world.step(ended=(20,))) == {3}, "nothing of that is freed by other jobs"
    world.jobs[3] = replace(world.jobs[3], walltime_s=world.jobs[3].walltime_s // 2)
    assert world.step() == {}


def test_a_job_of_two_throttled_groups_waits_for_both() -> None:
    world = World()
    off = world.step(met={1: LIMIT, 7: Obstacle("QOSGrpCpuLimit", BackoffKey("qos", ("normal", "")))})
    assert off[1] == "AssocMaxJobsLimit (user alice of account lab)", "of its groups, the first"
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
    world.step(met={1: Obstacle("MaxJobs", BackoffKey("association", ("alice", "")))})
    assert 1 not in world.free(ended=(20,))


# ---------------------------------------------------------------------------- starts that fail, and nobody knows why


def unlike(world: World, *ids: int) -> World:
    """Each of these jobs asks for something of its own."""
    world.jobs |= {id: replace(world.jobs[id], walltime_s=1000 + id) for id in ids}
    return world


def test_a_failed_start_puts_off_the_jobs_that_are_like_it_and_nobody_else() -> None:
    world = unlike(World(), 5)
    assert set(world.step(failed=(1,))) == {1, 2, 3, 4, 6}
    like = "jobs of user alice, account lab that ask for 1 x 1 for 100 s in any queue"
    assert set(world.step().values()) == {f"StartFailed ({like})"}
    assert world.told == [f"{like}: StartFailed; 1 job(s) held again"]


def test_a_failed_start_that_something_else_explains_puts_off_its_job_alone() -> None:
    world = World()
    world.alone = {1}
    assert world.step(failed=(1,)) == {1: "StartFailed (job 1)"}
    assert world.put_off.leave(world.observation(), world.entries(), 1) == []


def test_jobs_of_a_user_whose_starts_may_fail_as_those_of_anybody_go_last_and_wait_for_nothing() -> None:
    """Jobs of others go first in the cluster's own order, say."""
    world = World(alices=10)
    world.alone = world.ordinary = set(range(1, 11))
    off = world.step(failed=tuple(range(1, KINDS_IN_VAIN + 1)))
    assert set(off) == set(range(1, KINDS_IN_VAIN + 1))
    assert world.put_off.users == ["alice"]
    assert world.order[-6:] == [5, 6, 7, 8, 9, 10]
    world.alone, world.ordinary = set(), set()
    world = unlike(world, *range(1, 11))
    off = world.step(failed=tuple(range(1, KINDS_IN_VAIN + 1)))
    assert set(off) == set(range(1, 11)), "with as many that nobody can explain they wait"


def test_ends_do_not_help_where_no_limit_is_to_blame() -> None:
    world = World()
    world.jobs[20] = replace(a_job(20), user="alice", account="lab")
    world.step(failed=(1,))
    assert world.free(ended=(20,)) == [7, 8]
    world.now_s += FIRST_WAIT_S
    assert world.free(ended=(20,)) == [1, 7, 8]
    assert world.free(ended=(20,)) == [1, 7, 8]


def test_what_is_tried_goes_last_and_only_where_it_fits() -> None:
    """Nobody waits for a start that may be in vain."""
    world = World()
    world.jobs = {id: replace(job, priority=9, tier=2) for id, job in world.jobs.items()}
    world.step(failed=(1,))
    world.now_s += FIRST_WAIT_S
    world.room = np.zeros_like(CLUSTER.capacity)
    assert world.free() == [7, 8]
    world.room = np.array(CLUSTER.capacity)
    assert 1 in world.free()
    assert world.order == [2, 3, 4, 5, 6, 7, 8, 1]
    assert world.ranks[1] == (0, 0, world.now_s)
    assert world.ranks[7] == (2, 9, 0)


def test_units_on_nodes_of_their_own_need_so_many_nodes() -> None:
    world = World(alices=1)
    world.jobs[1] = replace(world.jobs[1], request=replace(world.jobs[1].request, units=2, distinct=True))
    world.step(failed=(1,))
    world.now_s += FIRST_WAIT_S
    world.room = np.array(CLUSTER.capacity)
    world.room[1:] = 0
    assert 1 not in world.free()
    world.room[1] = 1
    assert 1 in world.free()


def test_a_limit_keeps_the_place_of_those_who_are_at_it() -> None:
    world = World()
    world.jobs = {id: replace(job, priority=9) for id, job in world.jobs.items()}
    world.step(met={1: LIMIT})
    world.now_s += FIRST_WAIT_S
    world.room = np.zeros_like(CLUSTER.capacity)
    assert 1 in world.free()
    assert world.order == list(range(1, 9))
    assert world.ranks[1] == (0, 9, 0)


def test_after_too_many_failures_in_a_row_the_like_are_left_to_the_cluster() -> None:
    """Held ones only, each once; several failures in one reading are one."""
    world = unlike(World(), 5)
    world.states[2] = State.STARTING
    for time in range(3):
        assert world.put_off.leave(world.observation(), world.entries(), 3) == [], time
        world.step(failed=(1, 3))
    found = world.put_off.leave(world.observation(), world.entries(), 3)
    assert [each.entry.job_id for each in found] == [1, 3, 4, 6]
    assert {each.entry.state for each in found} == {State.HANDING_BACK}
    assert {(each.event, each.entry.leave) for each in found} == {("left", "3 starts in a row of jobs like it failed")}


def test_those_of_them_that_nobody_else_could_start_are_not_left_and_are_tried_ever_more_rarely() -> None:
    world = World(alices=2)
    world.stays = {1}
    for time in range(3):
        off = world.step(failed=(1,))
        assert off[1].endswith(f"; {NO_WAY_BACK}"), time
        assert NO_WAY_BACK not in off[2]
    found = world.put_off.leave(world.observation(), world.entries(), 3)
    assert [each.entry.job_id for each in found] == [2]
    del world.states[2]
    waits = []
    for _ in range(5):
        began_s = world.now_s
        while 1 in world.step():
            world.now_s += 1
        waits.append(world.now_s - began_s)
        assert 1 in world.step(failed=(1,))
    assert waits == [8, 32, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]


def test_a_start_that_comes_true_ends_the_row() -> None:
    world = World()
    world.step(failed=(1,))
    world.step(failed=(1,))
    world.states[2] = State.STARTING
    world.step()
    world.step(began=(2,))
    world.step(failed=(1,))
    assert world.put_off.leave(world.observation(), world.entries(), 3) == []


def test_an_obstacle_is_no_failure_and_leaves_nobody() -> None:
    world = World()
    for _ in range(9):
        world.step(met={1: LIMIT})
    assert world.put_off.leave(world.observation(), world.entries(), 1) == []


# ------------------------------------------------------------------------------------ users with many kinds in vain


def test_many_kinds_in_vain_put_off_all_jobs_of_their_user_and_nobody_else() -> None:
    world = unlike(World(), *range(1, 7))
    for id in range(1, KINDS_IN_VAIN):
        assert set(world.step(failed=(id,))) == set(range(1, id + 1))
    assert set(world.step(failed=(KINDS_IN_VAIN,))) == set(range(1, 7))
    assert world.put_off.users == ["alice"]
    kinds = f"{KINDS_IN_VAIN} kinds of them were started in vain, the last one: StartFailed"
    assert world.told[-1] == f"{everything_of('alice')}: {kinds}"


def test_then_one_start_of_theirs_is_tried_at_a_time_and_no_more_is_told() -> None:
    world = unlike(World(alices=40), *range(1, 41))
    world.step(failed=tuple(range(1, KINDS_IN_VAIN + 1)))
    told = len(world.told)
    waits = []
    for _ in range(12):
        since_s = world.now_s
        while not (tried := [id for id in world.free() if id <= 40]):
            world.now_s += 1
        waits.append(world.now_s - since_s)
        assert len(tried) == 1
        world.step(failed=tuple(tried))
    assert waits[0] == FIRST_WAIT_S
    assert set(waits[8:]) == {LONGEST_WAIT_S}
    assert len(world.told) == told


def test_a_user_of_whom_something_runs_is_put_off_kind_by_kind() -> None:
    """A kind whose jobs come to run, if not all of them, is no sign of somebody whose jobs never do."""
    world = World(alices=12)
    world.jobs |= {id: replace(world.jobs[id], walltime_s=1000 + id % 6) for id in range(1, 13)}
    world.step(failed=(1, 2))
    world.states |= {7: State.STARTING, 8: State.STARTING}
    world.step()
    world.step(began=(7, 8))
    world.step(failed=(3, 4, 5))
    assert world.put_off.users == []
    assert 6 in world.free()


def test_users_who_are_put_off_come_back_when_their_starts_come_true() -> None:
    world = unlike(World(alices=200), *range(1, 201))
    world.step(failed=tuple(range(1, KINDS_IN_VAIN + 1)))
    ran = KINDS_IN_VAIN
    for _ in range(60):
        world.now_s += FIRST_WAIT_S
        tried = tuple(id for id in world.free() if id <= 200)
        ran += len(tried)
        world.states |= dict.fromkeys(tried, State.STARTING)
        world.step()
        world.now_s += 1
        world.step(began=tried)
    assert not world.put_off.users
    assert ran > 190


def test_tables_are_as_long_as_the_queue_and_no_longer() -> None:
    world = unlike(World(alices=50), *range(1, 51))
    sizes = []
    for _ in range(5):
        world.step(failed=tuple(range(1, 51)))
        sizes.append(entries(world.put_off))
    assert len(set(sizes[1:])) == 1, "the first reading shares its keys"
    assert sizes.pop() > 51
    world.states |= dict.fromkeys(range(1, 51), State.RUNNING)
    world.step()
    assert entries(world.put_off) == 0


def seconds_until_free(world: World, *ids: int) -> int:
    """How long these jobs are put off while nothing is free."""
    world.room = np.zeros_like(CLUSTER.capacity)
    since_s = world.now_s
    while not set(ids) <= set(world.free()):
        world.now_s += 1
    return world.now_s - since_s


def test_what_can_never_be_tried_is_forgotten_after_minutes_of_a_kind_and_after_an_hour_of_a_user() -> None:
    """A job too large for what is ever free gets its place in the queue back: it may be a good one."""
    world = World()
    world.step(failed=(1,))
    assert 120 < seconds_until_free(world, *range(1, 7)) < 600
    world = unlike(World(), *range(1, 7))
    world.step(failed=tuple(range(1, KINDS_IN_VAIN + 1)))
    assert 3000 < seconds_until_free(world, *range(1, 7)) < 7200
