"""Any fault of a dispatcher or predictor causes one failed cycle, which is counted and journalled.

The loop continues.
"""

import asyncio
import time
from functools import partial

import numpy as np
import pytest

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, Effort, EndedJob, Starts, Wait
from cpsched.predictors.base import Predictor
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.cycle import circuit_breaker
from cpsched_bridge.errors import UnknownRound
from cpsched_bridge.store.ledger import LedgerState
from cpsched_bridge.store.round_replay import replay_round
from tests.builders import a_job
from tests.fakes import FirstFit

LIMIT_S = 0.5
"""Only the policies that never return come near it."""


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Stubborn(BaseException):
    """No `Exception`, as a plug-in may define it."""


def raising(error):
    def decide(snapshot):
        raise error

    return decide


def starting(slots=(0,), offsets=(0, 1), nodes=(0,), units=(1,), dtype=np.int64):
    """Starts of whatever columns."""
    columns = [np.array(column, dtype=dtype) for column in (slots, offsets, nodes, units)]
    return lambda snapshot: Decision(Starts(*columns), Effort("bad"))


def answering(**parts):
    """A decision without starts, and whatever parts."""
    return lambda snapshot: Decision(**{"starts": Starts.of({}), "effort": Effort("bad"), **parts})


def loop_for_ever(snapshot):
    while True:
        pass


def swallow_everything(snapshot):
    """Catches what ends it, as a bare `except:` does, for a while."""
    until_s = time.monotonic() + 1.5 * LIMIT_S
    while True:
        try:
            while True:
                pass
        except BaseException:
            if time.monotonic() > until_s:
                raise


def recurse(snapshot):
    return recurse(snapshot)


class Bad(Dispatcher):
    def __init__(self, behaviour):
        self.behaviour = behaviour

    def decide(self, snapshot, need="plan"):
        return self.behaviour(snapshot)


RAISING = {
    "an error": raising(RuntimeError("no idea")),
    "an error without words": raising(Unspeakable()),
    "a long error": raising(ValueError("x" * 100_000)),
    "cancelled": raising(asyncio.CancelledError()),
    "no Exception": raising(Stubborn()),
    "an exit": raising(SystemExit(3)),
    "recursion": recurse,
}
NONSENSE = {
    "None": lambda snapshot: None,
    "a word": lambda snapshot: "start them all",
    "a dictionary": lambda snapshot: {0: ((0, 1),)},
    "a tuple": lambda snapshot: (Starts.of({}), Effort("bad")),
    "no starts": answering(starts=None),
    "starts of a list": answering(starts=[(0, 0, 1)]),
    "no effort": answering(effort=None),
    "waits are a word": answering(waits="soon"),
    "a wait that is a word": answering(waits={1: "soon"}),
    "a wait behind an object": answering(waits={1: Wait("resources", (object(),))}),
    "a plan that is too long": answering(plan_s=np.zeros(99, np.int64)),
    "a plan that is a word": answering(plan_s="soon"),
}
GARBAGE = {
    "a slot that does not exist": starting(slots=(99,)),
    "a negative slot": starting(slots=(-1,)),
    "a node that does not exist": starting(nodes=(77,)),
    "a negative node": starting(nodes=(-1,)),
    "a job twice": starting((0, 0), (0, 1, 2), (0, 1), (1, 1)),
    "a job that fits nowhere": starting(nodes=(0,), units=(9,)),
    "no units": starting(units=(0,)),
    "more units than there are integers": starting(units=(2**62,)),
    "offsets that lead nowhere": starting(offsets=(5, 2)),
    "too few offsets": starting(offsets=()),
    "no nodes": starting(nodes=(), units=()),
    "words": starting(("a",), ("b", "c"), ("d",), ("e",), dtype=object),
    "two dimensions": starting(((0,),), ((0, 1),), ((0,),), ((1,),)),
}
ENDLESS = {
    "a loop": loop_for_ever,
    "a sleep": lambda snapshot: time.sleep(600),
    "a loop that swallows what ends it": swallow_everything,
}
KINDS = [
    (RAISING, {"decision_failed"}),
    (NONSENSE, {"decision_failed"}),
    (GARBAGE, {"rule_broken", "decision_failed"}),
    (ENDLESS, {"decision_timeout"}),
]
ALL = {**RAISING, **NONSENSE, **GARBAGE, **ENDLESS}


@pytest.fixture
def at(at):
    return partial(at, cycle={"decide_timeout_s": LIMIT_S})


def assert_failed(bridge, report, metric, kinds):
    """One failed cycle: in the report, the journal and the metrics; nothing was sent, nothing forgotten."""
    assert report.result in kinds
    assert (report.decided.starts, report.decided.decision) == ({}, None)
    assert [(e.round, e.kind) for e in bridge.journal.list_events() if e.kind != "mode"] == [
        (report.number, report.result)
    ]
    assert len(bridge.journal.list_events()[-1].detail) < 1000
    counts = metric("cpsched_cycles_total", result=report.result), metric("cpsched_events_total", kind=report.result)
    assert (counts, [bridge.ledger.get(id).state for id in (1, 2)]) == ((1, 1), [LedgerState.HELD, LedgerState.HELD])
    assert not bridge.settings.heartbeat_path.exists()


def assert_works_again(bridge, cluster):
    report = bridge.cycle()
    assert report.result == "ok", report.bridge_events
    assert sorted(report.decided.starts) == [1, 2]
    assert bridge.cycle().result == "ok"
    assert all(fake.running and fake.starts == 1 for fake in cluster.jobs.values())


@pytest.mark.parametrize("name", ALL)
def test_bad_dispatcher_costs_one_cycle(at, name):
    bridge, cluster, metric = at(dispatcher=Bad(ALL[name]))
    report = bridge.cycle()
    kinds = [kinds for zoo, kinds in KINDS if name in zoo]
    assert_failed(bridge, report, metric, kinds[0])
    assert cluster.commands == []
    record = bridge.journal.read_round(report.number)
    assert [job.id for job in record.queue] == [1, 2], "the failed round can be looked at"
    assert record.failure in ("", report.result)
    if record.failure:
        assert replay_round(record).skipped == f"the decision failed ({report.result})"
    bridge.policy.dispatcher = FirstFit()
    assert_works_again(bridge, cluster)


@pytest.mark.parametrize("name", [next(iter(zoo)) for zoo, _ in KINDS])
def test_persistently_bad_dispatcher_pauses_and_releases(at, name, monkeypatch):
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 2)
    bridge, cluster, _ = at(dispatcher=Bad(ALL[name]))
    modes = [bridge.cycle().role.mode for _ in range(3)]
    assert (modes, cluster.commands) == (["control", "control", "paused"], [("release", (1, 2))])
    assert bridge.pause.read_reason().startswith("circuit breaker: 2 consecutive decisions failed")


class Guess(Predictor):
    """Predicts what `answer` says; learns by `lesson`."""

    def __init__(self, answer=lambda job: 10, lesson=lambda ended: None):
        self.answer, self.lesson = answer, lesson

    def predict(self, job):
        return self.answer(job)

    def learn(self, ended):
        self.lesson(ended)


PREDICTORS = {
    "raises": raising(RuntimeError("no idea")),
    "raises without words": raising(Unspeakable()),
    "no Exception": raising(Stubborn()),
    "None": lambda job: None,
    "a word": lambda job: "soon",
    "nothing": lambda job: 0,
    "the past": lambda job: -5,
    "beyond all time": lambda job: 2**62,
    "not a number": lambda job: float("nan"),
    "infinite": lambda job: float("inf"),
    "more than an integer holds": lambda job: 2**70,
    "a loop": loop_for_ever,
}


@pytest.mark.parametrize("name", PREDICTORS)
def test_bad_predictor_costs_one_cycle(at, name):
    bridge, cluster, metric = at()
    bridge.policy.predictor = Guess(PREDICTORS[name])
    report = bridge.cycle()
    assert_failed(bridge, report, metric, {"decision_failed", "decision_timeout"})
    with pytest.raises(UnknownRound):
        bridge.journal.read_round(report.number)
    bridge.policy.predictor = WalltimePredictor()
    assert_works_again(bridge, cluster)


@pytest.mark.parametrize("lesson", [raising(RuntimeError("no idea")), raising(Stubborn()), loop_for_ever])
def test_failing_learning_costs_only_cycles_with_ended_jobs(at, lesson):
    bridge, cluster, metric = at()
    bridge.policy.predictor = Guess(lesson=lesson)
    cluster.past = [EndedJob(a_job(9), 0, 5)]
    report = bridge.cycle()
    assert_failed(bridge, report, metric, {"learning_failed", "decision_timeout"})
    assert_works_again(bridge, cluster)


def test_unlearnable_job_does_not_prevent_learning_of_others(at):
    bridge, cluster, _ = at()
    learned = []

    def lesson(ended):
        learned.append(ended.job.id)
        if ended.job.id == 8:
            raise RuntimeError("no idea")

    bridge.policy.predictor = Guess(lesson=lesson)
    cluster.past = [EndedJob(a_job(id), 0, 5) for id in (7, 8, 9)]
    report = bridge.cycle()
    assert report.result == "learning_failed"
    told = "learning from 1 ended job failed; first error: job 8: predictor Guess: RuntimeError: no idea ("
    assert report.bridge_events[-1].detail.startswith(told)
    assert report.bridge_events[-1].detail.endswith(", in lesson)"), "where its author should look"
    bridge.cycle()
    assert learned == [7, 8, 9], "each once"


class Forgetful(FirstFit):
    """Learns, and returns the given answers for its memory and for whether it learns."""

    def __init__(self, memory, learns=lambda: True):
        super().__init__()
        self._memory, self._learns, self.asked = memory, learns, 0

    @property
    def learns(self):
        return self._learns()

    def memory(self):
        self.asked += 1
        return self._memory()


def no_idea():
    raise Unspeakable


MEMORIES = {
    "raises": (no_idea,),
    "a set": (lambda: {1, 2},),
    "an object": (object,),
    "keys of two kinds": (lambda: {1: 1, "a": 2},),
    "recursion": (lambda: recurse(None),),
    "learns raises": (lambda: None, no_idea),
    "learns is ambiguous": (lambda: None, lambda: np.zeros(2)),
}


@pytest.mark.parametrize("name", MEMORIES)
def test_dispatcher_with_broken_memory_costs_one_cycle(at, name):
    bridge, cluster, metric = at(dispatcher=Forgetful(*MEMORIES[name]))
    report = bridge.cycle()
    assert_failed(bridge, report, metric, {"decision_failed"})
    assert cluster.commands == []
    assert bridge.journal.read_round(report.number).failure == "decision_failed"
    bridge.policy.dispatcher = FirstFit()
    assert_works_again(bridge, cluster)


def test_reads_dispatcher_memory_once_per_cycle(at):
    dispatcher = Forgetful(dict)
    bridge, _, _ = at(dispatcher=dispatcher)
    assert bridge.cycle().result == "ok"
    assert dispatcher.asked == 1


def test_exit_exception_ends_loop_and_releases_jobs(at):
    bridge, cluster, _ = at(dispatcher=Bad(raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        bridge.run()
    assert (cluster.commands, bridge.ledger.list_managed_job_ids()) == ([("release", (1, 2))], [])
