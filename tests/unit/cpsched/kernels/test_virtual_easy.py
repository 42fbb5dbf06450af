import json
from dataclasses import replace

import numpy as np
import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.lookahead.run_times_and_easy_waits import RunTimesAndEasyWaits
from cpsched.kernels.virtual_easy import ENTRY_FIELDS, unfinished_entries
from cpsched.model import NEVER, EndedJob
from cpsched.planning import get_scheduling_state
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import replay
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def virtual_starts(snapshot, virtual):
    """Starts of the queued jobs in the virtual schedule, by queue position; `NEVER` where they wait there, too."""
    start_s = {row[0]: row[5] for row in unfinished_entries(virtual).reshape(-1, ENTRY_FIELDS).tolist()}
    return np.array([start_s.get(job.id, NEVER) for job in snapshot.queued_jobs()], np.int64)


def recalled(history):
    """What another process knows from the memory of `history`."""
    known = RunTimesAndEasyWaits()
    known.recall(json.loads(json.dumps(history.memory())))
    return known


class Beside(EasyDispatcher):
    """EASY, with the virtual schedule beside it; `forgetful`: what it knows goes through JSON before each round."""

    learns = True

    def __init__(self, forgetful=False):
        super().__init__()
        self.history, self.forgetful, self.virtual = RunTimesAndEasyWaits(), forgetful, {}

    def learn(self, ended):
        self.history.learn(ended)

    def decide(self, snapshot, need="plan"):
        if self.forgetful:
            self.history = recalled(self.history)
        self.history.advance_virtual_schedule(snapshot, get_scheduling_state(snapshot))
        found = virtual_starts(snapshot, self.history._virtual)  # noqa: SLF001
        for slot, start_s in zip(snapshot.queue.tolist(), found.tolist(), strict=True):
            if start_s != NEVER:
                self.virtual[snapshot.table.jobs[slot].id] = start_s
        return super().decide(snapshot, need)


def some_jobs(count=300, seed=3):
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 40_000, count))
    jobs = []
    for i in range(count):
        walltime_s = int(rng.integers(10, 3000))
        job = a_job(i, 1, (int(rng.integers(1, 9)),), walltime_s, int(submit_s[i]), user=f"u{i % 5}")
        jobs.append(TraceJob(job, int(rng.integers(1, walltime_s + 1))))
    return jobs


@pytest.mark.parametrize("forgetful", [False, True])
def test_virtual_schedule_equals_real_one_under_easy(forgetful):
    dispatcher = Beside(forgetful)
    jobs = some_jobs()
    schedule = replay(jobs, a_cluster(nodes=1, cores=10), Policy(WalltimePredictor(), dispatcher))
    real = {item.job.id: start_s for item, start_s in zip(jobs, schedule.start_s.tolist(), strict=True)}
    assert (len(dispatcher.virtual), dispatcher.virtual) == (len(jobs), real)
    assert (schedule.start_s > [item.job.submit_s for item in jobs]).sum() > 100


def following(history, snapshot):
    """What follows from a snapshot: the longest wait, and virtual starts by job."""
    site = get_scheduling_state(snapshot)
    _, longest_s = history.advance_virtual_schedule(snapshot, site)
    starts = virtual_starts(snapshot, history._virtual).tolist()  # noqa: SLF001
    jobs = [snapshot.table.jobs[slot].id for slot in snapshot.queue.tolist()]
    return longest_s, {id: start_s for id, start_s in zip(jobs, starts, strict=True) if start_s != NEVER}


def a_user_job(id, cores, walltime_s, submit_s=0, user=""):
    return a_job(id, 1, (cores,), walltime_s, submit_s, user=user)


CLUSTER = a_cluster(nodes=1, cores=4)


def test_vanished_job_holds_no_virtual_place():
    history, first = RunTimesAndEasyWaits(), a_user_job(1, 4, 100)
    waiting = [a_user_job(2, 4, 100), a_user_job(3, 4, 100)]
    assert following(history, a_snapshot(CLUSTER, waiting, [a_running(first, ((0, 1),))], now_s=10)) == (200, {})
    history.learn(EndedJob(first, 0, 50))
    assert following(history, a_snapshot(CLUSTER, waiting[1:], now_s=60)) == (50, {3: 50})


def test_job_ahead_in_reality_keeps_virtual_place():
    """Job 3 went first in reality, and has ended; in the virtual schedule it waits until job 2 has run.

    There, job 2 runs from 50 s to 95 s, which is known only after its real end, and job 3 until 115 s.
    """
    history, first = RunTimesAndEasyWaits(), a_user_job(1, 4, 100)
    second, third, last = a_user_job(2, 4, 100, 1), a_user_job(3, 4, 100, 2), a_user_job(4, 4, 100, 3)
    following(history, a_snapshot(CLUSTER, [second, third, last], [a_running(first, ((0, 1),))], now_s=10))
    history.learn(EndedJob(first, 0, 50))
    following(history, a_snapshot(CLUSTER, [second, last], [a_running(third, ((0, 1),), 50)], now_s=50))
    history.learn(EndedJob(third, 50, 70))
    assert following(history, a_snapshot(CLUSTER, [second, last], now_s=70)) == (101, {2: 50})
    known = recalled(history)
    for each in (history, known):
        running = [a_running(second, ((0, 1),), 70)]
        assert following(each, a_snapshot(CLUSTER, [last], running, now_s=110)) == (108, {})
        each.learn(EndedJob(second, 70, 115))
        assert following(each, a_snapshot(CLUSTER, [last], now_s=116)) == (112, {4: 115})


CHANGES = {
    "requeued": lambda job: replace(job, submit_s=30),
    "shorter": lambda job: replace(job, walltime_s=10),
    "narrower": lambda job: replace(job, request=replace(job.request, per_unit=(2,))),
    "as it was": lambda job: job,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cores", [4, 8])
def test_changed_pending_job_waits_with_new_values(change, cores):
    """As in a schedule that knew nothing of it before, such as that of a bridge that was started in between."""
    history, first = RunTimesAndEasyWaits(), a_user_job(1, 4, 100)
    second, third = a_user_job(2, 4, 90, 1), a_user_job(3, 4, 80, 2)
    running = [a_running(first, ((0, 1),))]
    following(history, a_snapshot(CLUSTER, [second, third], running, now_s=10))
    known = recalled(history)
    changed = a_snapshot(a_cluster(nodes=1, cores=cores), [third, CHANGES[change](second)], running, now_s=40)
    assert following(history, changed) == following(known, changed)
    for each in (history, known):
        each.learn(EndedJob(first, 0, 50))
    later = a_snapshot(a_cluster(nodes=1, cores=cores), [third, CHANGES[change](second)], now_s=60)
    assert following(history, later) == following(known, later)
    assert sorted(history.memory()["virtual"]["jobs"]) == sorted(known.memory()["virtual"]["jobs"])


@pytest.mark.parametrize("change", CHANGES)
def test_changed_job_does_not_start_twice_virtually(change):
    history, second, third = RunTimesAndEasyWaits(), a_user_job(2, 4, 90), a_user_job(3, 4, 80)
    assert following(history, a_snapshot(CLUSTER, [second, third], now_s=0))[1] == {2: 0}
    assert following(history, a_snapshot(CLUSTER, [CHANGES[change](second), third], now_s=40))[1][2] == 0


def test_expected_run_times_use_user_shares():
    history = RunTimesAndEasyWaits()
    for id in range(100):
        history.learn(EndedJob(a_user_job(id, 1, 100, user="ada"), 0, 20))
    queue = [a_user_job(200, 1, 1000, user="ada"), a_user_job(201, 1, 10, user="bob")]
    snapshot = a_snapshot(CLUSTER, queue)
    expected_s, _ = history.advance_virtual_schedule(snapshot, get_scheduling_state(snapshot))
    assert expected_s == pytest.approx([200, 2])
