import pytest

from cpsched.dispatchers.expected_waits import ExpectedQueueWaits
from cpsched.dispatchers.priority_rule import WaitRatioDispatcher
from cpsched.errors import InvalidValue
from cpsched.model import EndedJob
from tests.builders import a_cluster, a_job, a_running, a_snapshot


def ended(queue, wait_s):
    return EndedJob(a_job(queue=queue), wait_s, wait_s + 5)


@pytest.mark.parametrize(
    ("queue", "order"),
    [
        # First is the job that is closest to exceeding its expected wait.
        ([a_job(1, queue="long", submit_s=0), a_job(2, queue="short", submit_s=90)], [1, 0]),
        # Ties are broken by demand, then by arrival.
        ([a_job(1, units=2), a_job(2, walltime_s=60), a_job(3, units=3, walltime_s=20)], [1, 2, 0]),
    ],
)
def test_orders_by_ratio_of_wait_then_demand(queue, order):
    dispatcher = WaitRatioDispatcher(waits_s={"short": 10, "long": 1000})
    assert dispatcher.queue_positions_by_urgency(a_snapshot(a_cluster(), queue, now_s=100)).tolist() == order


@pytest.mark.parametrize(("option", "started"), [("greedy", [2]), ("strict", [])])
def test_job_that_does_not_fit_is_skipped_or_stops_round(option, started):
    queue = [a_job(1, units=3), a_job(2, submit_s=5)]
    snapshot = a_snapshot(a_cluster(nodes=1, cores=3), queue, [a_running(a_job(9), ((0, 1),))], now_s=10)
    assert list(WaitRatioDispatcher(option).decide(snapshot).starts_by_job(snapshot)) == started


def test_learns_waits_by_queue_unless_given():
    learning, given = WaitRatioDispatcher(), WaitRatioDispatcher(waits_s={"a": 7})
    assert (learning.learns, given.learns) == (True, False)
    for dispatcher in (learning, given):
        dispatcher.learn(ended("a", 10))
        dispatcher.learn(ended("a", 30))
    assert (learning.expected_waits.expected_wait_s("a"), given.expected_waits.expected_wait_s("a")) == (20, 7)


def test_learned_waits_survive_memory_round_trip():
    first, second = WaitRatioDispatcher(), WaitRatioDispatcher()
    first.learn(ended("a", 10))
    first.learn(ended("b", 50))
    second.recall(first.memory())
    assert [second.expected_waits.expected_wait_s(queue) for queue in ("a", "b", "unknown")] == [10, 50, 30]


def test_expects_wait_of_1_second_initially():
    assert ExpectedQueueWaits().expected_wait_s("a") == 1
    assert ExpectedQueueWaits({"a": 0.5}).expected_wait_s("a") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": 0}, "a=0: must be a positive number of seconds"),
        ({"a": True}, "a=True: must be a positive number"),
        ({"a": "long"}, "a=long: must be a positive number"),
        ([1, 2], r"expected waits=\[1, 2\]: must map queue names to seconds"),
    ],
)
def test_validates_given_waits(given, message):
    with pytest.raises(InvalidValue, match=message):
        ExpectedQueueWaits(given)
