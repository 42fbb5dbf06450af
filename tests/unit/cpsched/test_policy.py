from cpsched.dispatchers.base import Dispatcher
from cpsched.model import NO_STARTS, Decision, Effort, EndedJob, Scene
from cpsched.policy import Policy
from cpsched.predictors.last_two import LastTwoPredictor
from tests.builders import a_cluster, a_job, a_running


class Spy(Dispatcher):
    """A dispatcher that starts nothing and remembers what it was asked."""

    def decide(self, snapshot, need="plan"):
        self.seen = snapshot
        return Decision(NO_STARTS, Effort("spy"))


def decide(policy, queue, running=(), now_s=0):
    cluster = a_cluster()
    policy.decide(policy.estimated(Scene(now_s, cluster, cluster.capacity, tuple(queue), tuple(running))))
    table = policy.dispatcher.seen.table
    return {job.id: estimate for job, estimate in zip(table.jobs, table.estimate_s.tolist(), strict=True)}


def test_every_job_has_an_estimate_when_the_dispatcher_is_asked():
    policy = Policy(LastTwoPredictor(), Spy())
    assert decide(policy, [a_job(1, walltime_s=50)], [a_running(a_job(2, walltime_s=70), ((0, 1),))]) == {1: 50, 2: 70}


def test_a_job_keeps_the_estimate_it_was_first_given():
    policy = Policy(LastTwoPredictor(), Spy())
    old, new = a_job(1, user="ada", walltime_s=50), a_job(3, user="ada", walltime_s=50)
    decide(policy, [old])
    policy.learn(EndedJob(a_job(9, user="ada"), 0, 20))
    assert decide(policy, [old, new]) == {1: 50, 3: 20}


def test_running_jobs_come_in_order_of_their_expected_ends():
    policy = Policy(LastTwoPredictor(), Spy())
    running = [a_running(a_job(i, walltime_s=w), ((i, 1),)) for i, w in ((1, 90), (2, 5), (3, 40))]
    decide(policy, [], running, now_s=10)
    seen = policy.dispatcher.seen
    assert [r.job.id for r in seen.running_jobs()] == [2, 3, 1]
    assert seen.table.end_s[seen.running].tolist() == [11, 40, 90], "the overdue job is given one more second"


def test_estimates_of_jobs_that_left_without_ending_do_not_pile_up():
    policy = Policy(LastTwoPredictor(), Spy())
    kept = a_job(1, walltime_s=50)
    for first in range(2, 40_000, 1_000):
        decide(policy, [kept, *(a_job(id, walltime_s=60) for id in range(first, first + 1_000))])
    policy.learn(EndedJob(a_job(99, user=""), 0, 20))
    assert len(policy._estimates) < 14_000
    assert decide(policy, [kept]) == {1: 50}
