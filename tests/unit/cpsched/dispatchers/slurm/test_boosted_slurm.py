"""Slurm's passes in an advised order: the boosts that maintain it, when advice is renewed, and new jobs."""

import dataclasses
import json

import numpy as np
import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.dispatchers.slurm.boosted_slurm import UNPLANNED_RANK, PlanAdvisedSlurmDispatcher, PriorityBoostTable
from cpsched.errors import InvalidValue
from cpsched.model import NEVER, NO_STARTS, Cluster, Decision, Effort
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import ReplayOptions, replay
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.properties.test_slurm import UNLIMITED

FULL = a_running(a_job(90, units=4, per_unit=4, walltime_s=1000), ((0, 1), (1, 1), (2, 1), (3, 1)))
AT_ONCE = "batch_sched_delay=0,sched_interval=1,bf_interval=1"


class Adviser(Dispatcher):
    """Plans the jobs in the order of `wanted`, the others not at all, and notes when it was asked."""

    def __init__(self, *wanted):
        self.wanted, self.asked_s = wanted, []

    def decide(self, snapshot, need="plan"):
        self.asked_s.append(snapshot.now_s)
        ids = [job.id for job in snapshot.queued_jobs()]
        places = [self.wanted.index(id) if id in self.wanted else None for id in ids]
        plan = [NEVER if at is None else snapshot.now_s + at for at in places]
        return Decision(NO_STARTS, Effort("wanted"), np.array(plan, np.int64))


def small(id, submit_s=0, **facts):
    return a_job(id, units=4, per_unit=4, walltime_s=50, submit_s=submit_s, **facts)


def starts(trace, dispatcher, cluster=None):
    """When each job of (job, run time) starts."""
    items = [TraceJob(job, run_s) for job, run_s in trace]
    schedule = replay(
        items, cluster or a_cluster(), Policy(WalltimePredictor(), dispatcher), ReplayOptions(strict=True)
    )
    return schedule.start_s.tolist()


def ids_in_order(points, snapshot):
    return [snapshot.queued_jobs()[at].id for at in points.boosted_order(snapshot)]


def given(points, snapshot, ids):
    """The advice to take the jobs in this order."""
    slots = np.array([snapshot.table.slot_of(id) for id in ids], np.int64)
    points.assign_boosts(snapshot.table, slots, snapshot.table.tier[slots], snapshot.table.priority[slots])


@pytest.mark.parametrize(
    ("queue", "advice", "later", "order", "points"),
    [
        # Points raise jobs as little as needed, and none above its tier.
        ([small(1, priority=5), small(2, priority=9), small(3, priority=2)], [3, 1, 2], [], [3, 1, 2],
         {"3": [7, 0], "1": [4, 1], "2": [0, 2]}),
        ([small(1), small(2, tier=1), small(3, tier=1)], [1, 3, 2], [], [3, 2, 1],
         {"1": [0, 0], "3": [0, 1], "2": [0, 2]}),
        # A new job is ordered by its own priority.
        ([small(1, priority=5), small(2, priority=9), small(3, priority=2)], [2, 3, 1],
         [small(4, priority=9), small(5, priority=7), small(6, priority=5)], [2, 4, 5, 3, 1, 6],
         {"2": [0, 0], "3": [3, 1], "1": [0, 2]}),
    ],
)  # fmt: skip
def test_points_give_advised_order(queue, advice, later, order, points):
    table = PriorityBoostTable()
    given(table, a_snapshot(a_cluster(), queue), advice)
    assert ids_in_order(table, a_snapshot(a_cluster(), [*queue, *later])) == order
    assert table.to_json() == points


def test_equally_growing_priorities_keep_order():
    queue = [small(1, priority=5), small(2, priority=9)]
    points = PriorityBoostTable()
    given(points, a_snapshot(a_cluster(), queue), [1, 2])
    older = a_snapshot(a_cluster(), [dataclasses.replace(job, priority=job.priority + 100) for job in queue])
    assert ids_in_order(points, older) == [1, 2]


def test_points_survive_serialization():
    snapshot = a_snapshot(a_cluster(), [small(1), small(2), small(3)])
    points, again = PriorityBoostTable(), PriorityBoostTable()
    given(points, snapshot, [3, 1])
    again.restore_json(points.to_json())
    assert ids_in_order(again, snapshot) == [3, 1, 2]
    assert again._rank.tolist() == [1, UNPLANNED_RANK, 0]  # noqa: SLF001


def test_asks_adviser_periodically_and_only_after_events():
    """Jobs arrive at 3, 7 and 12, and wait until 100; the adviser is asked at the next tens."""
    adviser = Adviser(4, 3, 2)
    trace = [(small(1), 100), (small(2, 3), 20), (small(3, 7), 20), (small(4, 12), 20)]
    assert starts(trace, PlanAdvisedSlurmDispatcher(adviser, 10, scheduler_parameters=AT_ONCE)) == [0, 140, 120, 100]
    assert adviser.asked_s == [0, 10, 20, 100, 110, 120, 130, 140]


@pytest.mark.parametrize(
    ("wanted", "every_s", "jobs", "expected"),
    [
        # Between advice, the order is kept, with new jobs last.
        ((4, 3, 2), 50, [(0, 103), (3, 20), (7, 20), (102, 20)], [0, 123, 103, 143]),
        ((4, 3, 2), 0, [(0, 103), (3, 20), (7, 20), (102, 20)], [0, 143, 123, 103]),
        # Jobs without a plan follow in Slurm's order.
        ((4,), 10, [(0, 100), (1, 20), (2, 20), (3, 20)], [0, 120, 140, 100]),
    ],
)
def test_starts_in_advised_order(wanted, every_s, jobs, expected):
    trace = [(small(id, submit_s), run_s) for id, (submit_s, run_s) in enumerate(jobs, start=1)]
    assert (
        starts(trace, PlanAdvisedSlurmDispatcher(Adviser(*wanted), every_s, scheduler_parameters=AT_ONCE)) == expected
    )


HELD = a_running(a_job(90, per_unit=4, walltime_s=1000), ((0, 1),))
PARTITIONS = Cluster.of([[4], [4]], ["cores"], node_sets={"p": [0, 1], "q": [0]})
BLOCKED_AND_FREE = [a_job(1, units=2, per_unit=4, queue="p"), a_job(2, per_unit=4, queue="p")]
NO_CLOCK = "bf_interval=-1,sched_interval=1000000,batch_sched_delay=0"
"""No clock of Slurm's is due at second 60, and nothing arrives or ends."""


def advised(*wanted):
    """Slurm with this advice, whose passes ran before second 60."""
    found = PlanAdvisedSlurmDispatcher(Adviser(*wanted), 60, scheduler_parameters=NO_CLOCK)
    found.twin.recall([[55, 55, 0, 55, 0, 1, 2, 0, 0, 0]] * 2)
    return found


@pytest.mark.parametrize(("wanted", "expected"), [((1, 2), []), ((2, 1), [2])])
def test_new_order_triggers_slurm_pass(wanted, expected):
    snapshot = a_snapshot(PARTITIONS, BLOCKED_AND_FREE, [HELD], now_s=60)
    assert list(advised(*wanted).decide(snapshot, "starts").starts_by_job(snapshot)) == expected


def test_decides_same_second_again_after_recall():
    """The passes that a new order calls for belong to the second of the advice, also for who reads the memory."""
    snapshot = a_snapshot(PARTITIONS, BLOCKED_AND_FREE, [HELD], now_s=60)
    first, again = advised(2, 1), PlanAdvisedSlurmDispatcher(Adviser(2, 1), 60, scheduler_parameters=NO_CLOCK)
    decided = first.decide(snapshot, "starts")
    memory = json.loads(json.dumps(first.memory()))
    assert memory == {
        "points": {"2": [0, 0], "1": [0, 1]}, "seen": [1, 0, 2], "clock": [120, 60], "adviser": None,
        "twin": [[60, 60, 0, 60, 0, 2, 1, 0, 1, 0], [55, 55, 0, 55, 0, 1, 2, 1, 1, 0]],
    }  # fmt: skip
    again.recall(memory)
    assert again.memory() == memory
    assert again.decide(snapshot, "starts").starts_by_job(snapshot) == decided.starts_by_job(snapshot) == {2: ((1, 1),)}


def test_catches_up_missed_advice_at_next_decision():
    """The first decision asks whatever the second is; then a multiple that passed without a decision counts."""
    adviser = Adviser(1)
    advised = PlanAdvisedSlurmDispatcher(adviser, 10, scheduler_parameters="")
    for now_s, count in ((3, 1), (4, 1), (5, 2), (9, 2), (13, 2), (14, 3), (20, 3), (21, 3)):
        queue = [small(id) for id in range(1, count + 1)]
        advised.decide(a_snapshot(a_cluster(), queue, [FULL], now_s))
    assert adviser.asked_s == [3, 13, 20]


def test_rejects_adviser_without_plan():
    class Silent(Dispatcher):
        def decide(self, snapshot, need="plan"):
            return Decision(NO_STARTS, Effort("silent"))

    with pytest.raises(InvalidValue, match=r"adviser=Silent: must return planned starts"):
        PlanAdvisedSlurmDispatcher(Silent()).decide(a_snapshot(a_cluster(), [small(1)], [FULL]))
    with pytest.raises(InvalidValue, match="every_s"):
        PlanAdvisedSlurmDispatcher(every_s=-1)


def random_trace(count, seed):
    """Jobs of one to eight cores on a pool of twelve, at a load above 1."""
    random = np.random.default_rng(seed)
    found, now_s = [], 0
    for i in range(count):
        now_s += int(random.integers(0, 60))
        walltime_s = int(random.integers(30, 400))
        job = a_job(i, int(random.integers(1, 9)), 1, walltime_s, now_s)
        found.append((job, int(random.integers(10, walltime_s + 1))))
    return found


def test_advice_at_every_event_nearly_equals_lookahead():
    """With an endless window of single seconds and no clocks of its own, Slurm starts what lookahead would."""
    pool, trace = Cluster.of([[12]], ["cores"]), random_trace(300, 1)
    objective = "large-jobs"  # one that does not learn: a single other start would change all prices behind it
    alone = np.array(starts(trace, LookaheadDispatcher(objective), pool))
    led = np.array(starts(trace, PlanAdvisedSlurmDispatcher(None, 0, objective, scheduler_parameters=UNLIMITED), pool))
    rarely = np.array(
        starts(trace, PlanAdvisedSlurmDispatcher(None, 100_000, objective, scheduler_parameters=UNLIMITED), pool)
    )
    submit_s = np.array([job.submit_s for job, _ in trace])
    wait_s, led_s, rarely_s = ((each - submit_s).mean() for each in (alone, led, rarely))
    assert (alone == led).mean() > 0.95
    assert abs(led_s / wait_s - 1) < 0.02
    assert rarely_s > 1.2 * wait_s


def test_work_bound_applies_to_adviser():
    """With next to no work the best of a few orders is the plan: some jobs start at other times."""
    nodes, trace = a_cluster(3), random_trace(120, 2)
    trace = [(dataclasses.replace(job, request=a_job(1, min(3, job.request.units), 2).request), s) for job, s in trace]
    much, little = (
        starts(
            trace, PlanAdvisedSlurmDispatcher(None, 0, "large-jobs", work=work, scheduler_parameters=UNLIMITED), nodes
        )
        for work in (1500, 1)
    )
    assert much != little
    with pytest.raises(InvalidValue, match="work=0"):
        PlanAdvisedSlurmDispatcher(work=0)
