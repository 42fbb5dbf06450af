"""The backoff queue, step by step. `tests/properties/test_nobody_pays.py` checks the property as a whole."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cpsched.model import EndedJob
from cpsched_bridge.backoff_groups import BackoffGroupKey, make_equivalence_class_key
from cpsched_bridge.cycle.backoff import (
    COMMAND_BACKOFF,
    COMMAND_MEMORY_S,
    MAX_GROUPS_PER_USER,
    MAX_REPETITIONS,
    MAX_TRIES,
    OVERDUE_S,
    START_BACKOFF,
    BackoffQueue,
    CommandRetryTracker,
    ExponentialBackoff,
)
from cpsched_bridge.cycle.cluster_state import build_cluster_state
from cpsched_bridge.cycle.start_outcomes import FailureCause, ObservedStartOutcomes, StartFailure
from cpsched_bridge.cycle_report import NO_BACKOFF
from cpsched_bridge.ports import CANNOT_BE_RELEASED, ClusterReason, Hold, Observation, PendingJob
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from tests.builders import a_cluster, a_job, words
from tests.reach import entries

CLUSTER = a_cluster()
LIMIT = ClusterReason("AssocMaxJobsLimit", BackoffGroupKey("association", ("alice", "lab")))
QOS_LIMIT = ClusterReason("QOSGrpCpuLimit", BackoffGroupKey("qos", ("normal", "")))
OWN_LIMIT = ClusterReason("QOSMaxWallDurationPerJobLimit", BackoffGroupKey("job", ("3",)))


def test_delay_doubles_up_to_maximum() -> None:
    backoff = ExponentialBackoff(2.0, 15.0)
    assert [backoff.delay_s(attempts) for attempts in (0, 1, 2, 3, 10_000)] == [2, 4, 8, 15, 15]
    assert [backoff.next_delay_s(2.0), backoff.next_delay_s(8.0)] == [4, 15]
    assert ExponentialBackoff(1.0, 100.0, factor=3.0).delay_s(2) == 9


class World:
    """Held jobs of two users, and what a `PutOff` makes of them from second to second."""

    def __init__(self, alices: int = 6, bobs: int = 2) -> None:
        self.now_s = 100
        users = ["alice"] * alices + ["bob"] * bobs
        self.jobs = {id: replace(a_job(id), user=user, account="lab") for id, user in enumerate(users, start=1)}
        self.states = dict.fromkeys(self.jobs, LedgerState.HELD)
        self.queue = BackoffQueue()
        self.told: list[str] = []
        self.alone: set[int] = set()
        """Jobs whose failed starts something else explains."""
        self.ordinary: set[int] = set()
        """Those of them that may fail like any user's."""
        self.stays: set[int] = set()
        """Jobs that cannot be released."""
        self.room = np.array(CLUSTER.capacity)
        over = {20: ("alice", "lab"), 21: ("carol", "other"), 22: ("eve", "lab"), 23: ("alice", "other")}
        self.jobs |= {id: replace(a_job(id), user=user, account=account) for id, (user, account) in over.items()}

    def observation(self, ended: tuple[int, ...] = ()) -> Observation:
        pending = tuple(
            self.pending(id) for id, state in self.states.items() if state in (LedgerState.HELD, LedgerState.STARTING)
        )
        over = tuple(EndedJob(self.jobs[id], 50, self.now_s) for id in ended)
        return Observation(self.now_s, CLUSTER, self.room, pending=pending, ended=over)

    def pending(self, id: int) -> PendingJob:
        job = self.jobs[id]
        names = ("job", (str(id),)), ("association", (job.user, job.account)), ("qos", ("normal", ""))
        groups = tuple(BackoffGroupKey(*each) for each in names)
        return PendingJob(job, Hold.PLUGIN, groups=groups, release_is_pointless=id in self.stays)

    def failure(self, id: int) -> StartFailure:
        pending = self.pending(id)
        key = pending.groups[0] if id in self.alone else make_equivalence_class_key(pending.job)
        cause = FailureCause.OWNER if id in self.alone else FailureCause.UNKNOWN
        return StartFailure(pending, FailureCause.PRECEDENCE if id in self.ordinary else cause, key)

    def step(
        self,
        met: dict[int, ClusterReason] | None = None,
        began: tuple[int, ...] = (),
        ended: tuple[int, ...] = (),
        failed: tuple[int, ...] = (),
        starting: tuple[int, ...] = (),
        shorter: tuple[int, ...] = (),
        after_s: int = 0,
    ) -> dict[int, str]:
        """One reading with starts that failed, succeeded or failed; return the backed-off jobs and reasons."""
        self.now_s += after_s
        self.states |= dict.fromkeys(starting, LedgerState.STARTING)
        self.jobs |= {id: replace(self.jobs[id], walltime_s=50) for id in shorter}
        self.states |= dict.fromkeys(began, LedgerState.RUNNING) | dict.fromkeys(
            (*(met or {}), *failed), LedgerState.HELD
        )
        seen = self.observation(ended)
        limited = [
            StartFailure(
                self.pending(id),
                FailureCause.LIMIT if each.clears_on_end else FailureCause.CLUSTER,
                each.scope,
                each.reason,
            )
            for id, each in (met or {}).items()
        ]
        outcomes = ObservedStartOutcomes(dict.fromkeys(began, ""), (*limited, *map(self.failure, failed)))
        self.told += [happening.detail for happening in self.queue.record_start_outcomes(seen, outcomes)]
        backoff = self.queue.select_jobs(seen, self.entries())
        queue = build_cluster_state(seen, {}, False, backoff).queue
        self.order = [job.id for job in queue]
        self.ranks = {job.id: (job.tier, job.priority, job.submit_s) for job in queue}
        assert sorted([*self.order, *backoff.reasons]) == [each.job.id for each in seen.pending]
        ineligible = {job.id: words(job.ineligible) for job in queue if job.ineligible is not None}
        return ineligible | {job_id: words(reason) for job_id, reason in backoff.reasons.items()}

    def entries(self) -> dict[int, ManagedJobEntry]:
        return {id: ManagedJobEntry(id, state, 0) for id, state in self.states.items()}

    def free(self, **what: object) -> list[int]:
        """The held jobs that may start."""
        off = self.step(**what)  # type: ignore[arg-type]
        return [id for id, state in self.states.items() if state is LedgerState.HELD and id not in off]


TABLE = {
    "after the wait one is tried": [(0, {"met": {1: LIMIT}}, [7, 8]), (1, {}, [7, 8]), (1, {}, [1, 7, 8])],
    "starts on their way count": [(0, {"met": {1: LIMIT}}, [7, 8]), (2, {"starting": (1,)}, [7, 8])],
    "more starts on their way than may be tried": [(0, {"met": {1: LIMIT}, "starting": (2, 3)}, [7, 8])],
    "each end of theirs lets one more start at once": [
        (0, {"met": {1: LIMIT}}, [7, 8]),
        (0, {"ended": (21,)}, [7, 8]),
        (0, {"ended": (20,)}, [1, 7, 8]),
        (0, {"ended": (22,)}, [1, 2, 7, 8]),
        (0, {"ended": (23,)}, [1, 2, 3, 7, 8]),
    ],
    "a turn that was taken is gone": [
        (0, {"met": {1: LIMIT}}, [7, 8]),
        (0, {"ended": (20,)}, [1, 7, 8]),
        (0, {"began": (1,)}, [7, 8]),
    ],
    "after an end the wait is the shortest": [
        *[(0, {"met": {1: LIMIT}}, [7, 8])] * 5,
        (0, {"met": {1: LIMIT}, "ended": (20,)}, [7, 8]),
        (2, {}, [1, 7, 8]),
    ],
    "the end of another job does not help a limit of one job": [
        (0, {"met": {3: OWN_LIMIT}}, [1, 2, 4, 5, 6, 7, 8]),
        (0, {"ended": (20,)}, [1, 2, 4, 5, 6, 7, 8]),
    ],
    "a job of two groups waits for both": [(0, {"met": {1: LIMIT, 7: QOS_LIMIT}}, []), (2, {}, [1])],
    "ends do not help where no limit is to blame": [
        (0, {"failed": (1,)}, [7, 8]),
        (0, {"ended": (20,)}, [7, 8]),
        (2, {}, [1, 7, 8]),
        (0, {"ended": (20,)}, [1, 7, 8]),
    ],
}


@pytest.mark.parametrize("row", TABLE)
def test_selects_startable_jobs_after_each_reading(row: str) -> None:
    """Jobs 1 to 6 are Alice's, 7 and 8 are Bob's; 20 to 23 ended."""
    world = World()
    for after_s, what, free in TABLE[row]:
        assert world.free(**what, after_s=after_s) == free  # type: ignore[arg-type]


def test_changes_nothing_without_failed_starts() -> None:
    world = World()
    seen = world.observation()
    assert world.queue.record_start_outcomes(seen, ObservedStartOutcomes()) == []
    assert world.queue.select_jobs(seen, {}) == NO_BACKOFF


def test_reports_each_group_once_with_cluster_reason() -> None:
    world = World()
    assert world.step(met={1: LIMIT, 2: LIMIT})[3] == "AssocMaxJobsLimit (user alice in account lab)"
    world.step(met={1: LIMIT})
    like = "jobs of user alice, account lab that request 1 x 1 for 50 s in any queue"
    assert world.step(failed=(5,), shorter=(5,))[5] == "AssocMaxJobsLimit (user alice in account lab)"
    assert world.told == [
        "user alice in account lab: AssocMaxJobsLimit; 2 jobs held again",
        f"{like}: StartFailed; 1 job held again",
    ]


def test_a_group_without_a_user_is_described_without_one() -> None:
    keys = [BackoffGroupKey("alike", ("", account, "", "", "1 x 1")) for account in ("", "lab")]
    assert list(map(str, keys)) == ["jobs that request 1 x 1", "jobs of account lab that request 1 x 1"]


def test_backoff_doubles_up_to_maximum() -> None:
    world = World()
    waits = []
    for _ in range(9):
        world.step(met={1: LIMIT})
        since_s = world.now_s
        while 1 not in world.free():
            world.now_s += 1
        waits.append(world.now_s - since_s)
    assert (waits, len(world.told)) == ([2, 4, 8, 16, 32, 64, 120, 120, 120], 1)


def test_tries_1_then_2_then_4_jobs_after_backoff() -> None:
    world = World(alices=10)
    world.step(met={1: LIMIT})
    tried = []
    for _ in range(3):
        free = [id for id in world.free(after_s=START_BACKOFF.initial_s) if id <= 10]
        tried.append(len(free))
        for id in free:
            world.states[id] = LedgerState.STARTING
        world.step(began=tuple(free), after_s=1)
    assert tried == [1, 2, 4]


def test_forgets_group_without_further_failures() -> None:
    world = World(alices=200)
    world.step(met={1: LIMIT})
    tried = []
    while not tried or tried[-1] < 197:
        tried.append(
            sum(world.jobs[id].user == "alice" and world.jobs[id].account == "lab" for id in world.free(after_s=1))
        )
    assert list(dict.fromkeys(tried)) == [0, 1, 2, 4, 8, 16, 32, MAX_TRIES, 197]


def test_end_of_another_user_does_not_help_without_accounts() -> None:
    """A limit of a user, on a cluster without accounting: only the user's own ends permit another start."""
    world = World()
    world.jobs = {id: replace(job, account="") for id, job in world.jobs.items()}
    limit = ClusterReason("AssocMaxJobsLimit", BackoffGroupKey("association", ("alice", "")))
    assert world.free(met={1: limit}) == [7, 8]
    assert world.free(ended=(22,)) == [7, 8]
    assert world.free(ended=(20,)) == [1, 7, 8]


def test_ineligible_job_keeps_reason_and_is_not_tried() -> None:
    world = World()
    world.jobs[1] = replace(world.jobs[1], ineligible="dependency")
    world.step(met={2: LIMIT})
    off = world.step(after_s=START_BACKOFF.initial_s)
    assert off[1] == "dependency"
    assert 2 not in off


def test_forgets_groups_of_a_user_or_a_job() -> None:
    world = World()
    assert world.free(failed=(1, 7)) == []
    assert world.queue.forget((), "alice") == 1
    assert world.free() == [1, 2, 3, 4, 5, 6]
    assert world.queue.forget([8]) == 1
    assert world.free() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("walltime_s", [10, 50])
def test_backoff_of_one_job_ends_with_any_other_request(walltime_s: int) -> None:
    """The texts of the requests come before and after that of 100 s."""
    world = World()
    assert 3 not in world.free(met={3: OWN_LIMIT})
    world.jobs[3] = replace(world.jobs[3], walltime_s=walltime_s)
    assert 3 in world.free()


def test_forgets_group_without_pending_jobs() -> None:
    world = World(alices=1)
    world.step(met={1: LIMIT})
    world.states[1] = LedgerState.RUNNING
    world.step()
    world.jobs[30], world.states[30] = replace(a_job(30), user="alice", account="lab"), LedgerState.HELD
    assert 30 in world.free()


def unlike(world: World, *ids: int) -> World:
    """Each of these jobs asks for something of its own."""
    world.jobs |= {id: replace(world.jobs[id], walltime_s=1000 + id) for id in ids}
    return world


def test_benign_failures_only_move_jobs_of_user_last() -> None:
    """Jobs of other jobs go first in the cluster's own order, say."""
    world = World(alices=10)
    world.alone = world.ordinary = set(range(1, 11))
    off = world.step(failed=tuple(range(1, MAX_GROUPS_PER_USER + 1)))
    assert set(off) == set(range(1, MAX_GROUPS_PER_USER + 1))
    assert world.order[-6:] == [5, 6, 7, 8, 9, 10]
    world.alone, world.ordinary = set(), set()
    world = unlike(world, *range(1, 11))
    off = world.step(failed=tuple(range(1, MAX_GROUPS_PER_USER + 1)))
    assert set(off) == set(range(1, 11)), "with as many unexplained failures they wait"
    world.alone, world.ordinary = {9}, {9}
    assert set(world.step(failed=(9,))) == set(range(1, 11)), "one benign failure beside them changes nothing"


def test_tried_job_goes_last() -> None:
    """No other job waits for a start that may fail."""
    world = World()
    world.jobs = {id: replace(job, priority=9, tier=2) for id, job in world.jobs.items()}
    world.step(failed=(1,))
    assert world.free(after_s=START_BACKOFF.initial_s) == [1, 7, 8]
    assert (world.order, world.ranks[1], world.ranks[7]) == ([7, 8, 1], (0, 0, world.now_s), (2, 9, 0))


def test_job_without_room_waits_for_room_and_is_planned_last() -> None:
    """It shows the reason of the backoff once it fits, and keeps its try until then."""
    world = World()
    world.room = np.zeros_like(CLUSTER.capacity)
    assert world.step(failed=(1,)) == {}
    assert (world.order, world.ranks[6]) == ([7, 8, 1, 2, 3, 4, 5, 6], (0, 0, world.now_s))
    world.room = np.array(CLUSTER.capacity)
    assert world.free() == [7, 8]
    world.now_s += START_BACKOFF.initial_s
    world.room = np.zeros_like(CLUSTER.capacity)
    assert world.step() == {}
    world.room = np.array(CLUSTER.capacity)
    assert world.free() == [1, 7, 8]


def test_distinct_units_need_that_many_free_nodes() -> None:
    world = World(alices=1)
    world.jobs[1] = replace(world.jobs[1], request=replace(world.jobs[1].request, units=2, distinct=True))
    world.room = np.array(CLUSTER.capacity)
    world.room[1:] = 0
    assert world.step(failed=(1,)) == {}, "it waits for a second node"
    world.room[1] = 1
    assert set(world.step()) == {1}


def test_job_at_limit_keeps_queue_position() -> None:
    world = World()
    world.jobs = {id: replace(job, priority=9) for id, job in world.jobs.items()}
    world.step(met={1: LIMIT})
    world.now_s += START_BACKOFF.initial_s
    world.room = np.zeros_like(CLUSTER.capacity)
    assert 1 in world.free()
    assert (world.order[:3], world.ranks[1]) == ([1, 7, 8], (0, 9, 0))


def test_leaves_equal_jobs_after_too_many_failures() -> None:
    """Held ones only, each once; several failures in one reading are one."""
    world = unlike(World(), 5)
    world.states[2] = LedgerState.STARTING
    for time in range(3):
        assert world.queue.find_jobs_to_unmanage(world.observation(), world.entries(), 3) == [], time
        world.step(failed=(1, 3))
    found = world.queue.find_jobs_to_unmanage(world.observation(), world.entries(), 3)
    assert [each.entry.job_id for each in found] == [1, 3, 4, 6]
    assert {each.entry.state for each in found} == {LedgerState.RELEASING}
    request = "1 x 1 for 100 s in any queue"
    why = "3 consecutive starts in its equivalence class failed"
    assert {(each.event, each.entry.unmanaged_reason, each.entry.unmanaged_request) for each in found} == {
        ("unmanaged", why, request)
    }


def test_does_not_leave_jobs_that_cannot_be_released() -> None:
    world = World(alices=2)
    world.stays = {1}
    for time in range(3):
        off = world.step(failed=(1,))
        assert off[1].endswith(f"; {CANNOT_BE_RELEASED}"), time
        assert CANNOT_BE_RELEASED not in off[2]
    found = world.queue.find_jobs_to_unmanage(world.observation(), world.entries(), 3)
    assert [each.entry.job_id for each in found] == [2]
    del world.states[2]
    waits = []
    for _ in range(5):
        began_s = world.now_s
        while 1 in world.step():
            world.now_s += 1
        waits.append(world.now_s - began_s)
        assert 1 in world.step(failed=(1,))
    assert waits == [8, 16, 32, 64, START_BACKOFF.maximum_s]


@pytest.mark.parametrize("at_once", [True, False])
def test_successful_start_resets_failure_count(at_once: bool) -> None:
    world = World()
    world.step(failed=(1,))
    world.step(failed=(1,), starting=(2,))
    if at_once:
        world.step(began=(2,), failed=(1,))
    else:
        world.step(began=(2,))
        world.step(failed=(1,))
    assert world.queue.find_jobs_to_unmanage(world.observation(), world.entries(), 3) == []


def test_many_failing_kinds_back_off_whole_user() -> None:
    world = unlike(World(), *range(1, 7))
    for id in range(1, MAX_GROUPS_PER_USER):
        assert set(world.step(failed=(id,))) == set(range(1, id + 1))
    assert set(world.step(failed=(MAX_GROUPS_PER_USER,))) == set(range(1, 7))
    kinds = f"starts in {MAX_GROUPS_PER_USER} groups of these jobs failed; last reason: StartFailed"
    assert world.told[-1] == f"{BackoffGroupKey('user', ('alice',))}: {kinds}"
    told = len(world.told)
    world.step(failed=(MAX_GROUPS_PER_USER + 1,))
    assert len(world.told) == told, "one more kind is not reported"


def test_user_with_running_jobs_backs_off_by_kind() -> None:
    world = World(alices=12)
    world.jobs |= {id: replace(world.jobs[id], walltime_s=1000 + id % 6) for id in range(1, 13)}
    world.step(failed=(1, 2), starting=(7, 8))
    world.step(began=(7, 8))
    assert 6 in world.free(failed=(3, 4, 5))


def test_tables_shrink_with_queue() -> None:
    world = unlike(World(alices=50), *range(1, 51))
    sizes = []
    for _ in range(5):
        world.step(failed=tuple(range(1, 51)))
        sizes.append(entries(world.queue))
    assert len(set(sizes[1:])) == 1, "the first reading shares its keys"
    assert sizes.pop() > 51
    world.states |= dict.fromkeys(range(1, 51), LedgerState.RUNNING)
    world.step()
    assert entries(world.queue) == 0


def seconds_until_in_order(world: World, *ids: int) -> int:
    """How long these jobs are planned last while nothing is free."""
    world.room = np.zeros_like(CLUSTER.capacity)
    since_s = world.now_s
    while world.step() or any(world.ranks[id] != (0, 0, 0) for id in ids):
        world.now_s += 1
    return world.now_s - since_s


def test_forgets_failures_of_job_that_never_fits() -> None:
    """A job too large for what is ever free gets its position in the queue back: it may be a good one."""
    world = World()
    world.step(failed=(1,))
    assert 120 < seconds_until_in_order(world, *range(1, 7)) < 600
    world = unlike(World(), *range(1, 7))
    world.step(failed=tuple(range(1, MAX_GROUPS_PER_USER + 1)))
    assert 3000 < seconds_until_in_order(world, *range(1, 7)) < 7200


# --------------------------------------------------------------------------------------------------------- commands


def test_reports_command_without_effect_once_and_resends_rarely() -> None:
    """Job 8 is sent two seconds later, so it is reported two seconds later."""
    retries = CommandRetryTracker()
    sent, told = [], []
    for now_s in range(400):
        retries.update_overdue_jobs([7, 8], now_s)
        if retries.is_due("hold", 7, now_s):
            sent.append(now_s)
        due = [id for id in (7, 8) if retries.is_due("hold", id, now_s) and (id == 7 or now_s > 1)]
        told += [(now_s, id) for id in retries.record_sent("hold", due, now_s)]
    gaps = [b - a for a, b in itertools.pairwise(sent)]
    assert gaps[: MAX_REPETITIONS + 5] == [1] * MAX_REPETITIONS + [2, 4, 8, 16, 32]
    assert set(gaps[MAX_REPETITIONS + 5 :]) == {COMMAND_BACKOFF.maximum_s}
    assert told == [(MAX_REPETITIONS - 1, 7), (MAX_REPETITIONS + 1, 8)]


def test_job_is_overdue_if_command_stays_pending_too_long() -> None:
    retries = CommandRetryTracker()
    reported = [(now_s, retries.update_overdue_jobs([7], now_s)) for now_s in range(1000, 1000 + 3 * OVERDUE_S)]
    assert [each for each in reported if each[1]] == [(1001 + OVERDUE_S, {7: OVERDUE_S + 1})]
    assert retries.overdue == {7}
    assert retries.update_overdue_jobs([], 2000) == {}
    assert retries.overdue == set()
    assert retries.update_overdue_jobs([7], 2001) == {}, "the time begins again"


def test_other_command_resets_count_and_is_due_at_once() -> None:
    retries = CommandRetryTracker()
    for now_s in range(8):
        retries.record_sent("hold", [7], now_s)
    assert not retries.is_due("hold", 7, 8)
    assert retries.is_due("hold", 7, 6), "the clock was set back"
    assert retries.is_due("hold", 8, 8), "another job"
    assert retries.is_due("start", 7, 8)
    retries.record_sent("start", [7], 8)
    assert retries.is_due("hold", 7, 9)
    assert retries.record_sent("hold", [7], 9) == []


def test_remembers_command_for_30_seconds_or_while_intended() -> None:
    for rest_s in (COMMAND_MEMORY_S - 1, COMMAND_MEMORY_S):
        retries = CommandRetryTracker()
        for now_s in range(MAX_REPETITIONS - 1):
            retries.record_sent("hold", [7, 8], now_s)
        retries.update_overdue_jobs([8], MAX_REPETITIONS - 2 + rest_s)
        assert retries.record_sent("hold", [7, 8], 100) == ([7, 8] if rest_s < COMMAND_MEMORY_S else [8])
