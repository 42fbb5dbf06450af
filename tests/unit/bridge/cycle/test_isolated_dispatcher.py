"""A dispatcher in a separate process makes the same decisions, and its faults do not affect the bridge."""

import dataclasses
import os
import pickle
import signal
from functools import partial
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import LookaheadDispatcher
from cpsched.errors import PolicyError
from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.cycle.verified_decision import run_within_time_limit
from cpsched_bridge.errors import DecisionTimeout, DispatcherError
from tests import bad_dispatchers
from tests.builders import a_cluster, a_job, a_running, a_snapshot
from tests.forked import forks
from tests.patience import until

GATED = "tests.bad_dispatchers:Gated"


@pytest.fixture
def apart_anew():
    """For tests of how a child begins and ends: it imports everything, loads all kernels and has them to free."""
    found = []

    def begin(words):
        found.append(IsolatedDispatcher(PolicySpec(words)))
        return found[-1]

    yield begin
    for each in found:
        each.close()


@pytest.fixture
def apart(apart_anew, monkeypatch):
    """For tests of what it does then: its process is forked from this one."""
    forks(monkeypatch)
    return apart_anew


def a_scene(now_s=0, first=1, running=()):
    cluster = a_cluster(4, 4)
    return a_snapshot(cluster, [a_job(first + i, 1 + i % 2, 3, 50 + i) for i in range(8)], running, now_s)


def same(one, other, snapshot):
    return one.starts_by_job(snapshot) == other.starts_by_job(snapshot) and (
        one.plan_by_job(snapshot) == other.plan_by_job(snapshot) and one.waits == other.waits
    )


@pytest.mark.parametrize("protocol", [pickle.DEFAULT_PROTOCOL, 5])
@pytest.mark.parametrize(("words", "here"), [("easy", EasyDispatcher), ("lookahead", LookaheadDispatcher)])
def test_decides_same_with_any_pickle_protocol(apart, mocker, protocol, words, here):
    """Read-only arrays come out of protocol 5, the default since Python 3.14, as read-only ones."""
    scene = a_scene(9, running=[a_running(a_job(90, 1, 4, 50), ((0, 1),), start_s=0)])
    there = apart(words)
    mocker.patch.object(ForkingPickler, "dumps", partial(ForkingPickler.dumps, protocol=protocol))
    assert same(there.decide(scene), here().decide(scene), scene)


def test_decides_same_as_in_process_while_jobs_change(apart):
    there, here = apart("easy"), EasyDispatcher()
    cluster = a_cluster(4, 4)
    outlived = a_running(a_job(90, 1, 2, 5), ((3, 1),), start_s=0)
    for now_s, jobs in enumerate(
        [
            [a_job(i, 1, 3, 50) for i in range(1, 9)],
            [a_job(i, 1, 3, 50) for i in range(3, 12)],
            [a_job(i, 2, 3, 70) for i in range(3, 12)],
        ]
    ):
        running = [outlived, a_running(a_job(70 + now_s, 1, 4, 9), ((now_s, 1),), start_s=now_s)]
        snapshot = a_snapshot(cluster, jobs, running, now_s + 10, {90: 3})
        assert same(there.decide(snapshot), here.decide(snapshot), snapshot)
    other = a_scene(now_s=30, first=3)
    assert same(there.decide(other), here.decide(other), other), "on another cluster"
    assert there.starts == 1


def test_isolated_dispatcher_sees_weights_and_leaf_switches(apart):
    leaves = np.array([0, 0, 1, 2, 2])
    cluster = dataclasses.replace(a_cluster(5, 4), weights=np.array([3, 1, 1, 1, 1]), leaf_switches=leaves)
    snapshot = a_snapshot(cluster, [a_job(1), a_job(2, units=2, per_unit=4)])
    assert apart("easy").decide(snapshot).starts_by_job(snapshot) == {1: ((1, 1),), 2: ((3, 1), (4, 1))}


class Dated(EasyDispatcher):
    """Decides where times have a date, and fails elsewhere."""

    def decide(self, snapshot, need="plan"):
        assert snapshot.unix_s == 1_728_000_009
        return super().decide(snapshot, need)


def test_isolated_dispatcher_sees_date(apart):
    cluster = dataclasses.replace(a_cluster(4, 4), epoch_s=1_728_000_000)
    assert apart(f"{__name__}:Dated").decide(a_snapshot(cluster, [a_job(1)], now_s=9)).starts


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """The file that a dispatcher waits for before it begins."""
    monkeypatch.setenv("CPSCHED_TEST_GATE", str(tmp_path / "gate"))
    return tmp_path / "gate"


def test_reports_starting_child_without_waiting(apart_anew, gate):
    dispatcher = apart_anew(GATED)
    assert dispatcher.not_ready_reason() == "the dispatcher's process is starting"
    gate.touch()
    said = set()
    until(lambda: said.add(words := dispatcher.not_ready_reason()) or words is None)
    assert any("kernels are ready" in words for words in said if words)
    assert dispatcher.decide(a_scene()).starts
    assert dispatcher.starts == 1


def test_replaces_child_that_died_at_startup(apart, gate):
    gate.write_text("die")
    dispatcher = apart(GATED)
    until(lambda: dispatcher.not_ready_reason() is None)
    with pytest.raises(DispatcherError, match=r"^its process died \(exit status 9\)"):
        dispatcher.decide(a_scene())
    gate.write_text("")
    until(lambda: dispatcher.not_ready_reason() is None)
    assert dispatcher.decide(a_scene()).starts
    assert dispatcher.starts == 2


def test_reuses_kernels_compiled_by_killed_child(apart_anew, tmp_path, monkeypatch):
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    compiled = lambda: {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.bin")}  # noqa: E731
    dispatcher = apart_anew("easy")
    until(lambda: len(compiled()) >= 3)
    os.kill(dispatcher.pid, signal.SIGKILL)
    until(lambda: dispatcher.not_ready_reason() is None)
    before = compiled()
    with pytest.raises(DispatcherError):
        dispatcher.memory()
    said = []
    until(lambda: said.append(dispatcher.not_ready_reason()) or (said[-1] or "").startswith("compiles kernels"))
    assert int(said[-1].split()[2]) >= 3, said[-1]
    assert before.items() <= compiled().items()


def test_child_error_is_error_here(apart_anew):
    policy = Policy(WalltimePredictor(), apart_anew("tests.bad_dispatchers:Moody"))
    words = (
        f"RuntimeError: no idea ({bad_dispatchers.__file__}:",
        "the decision cannot be sent",
        "its process died (exit status 7)",
        "its process died (exit status 3)",
    )
    for now_s, expected in enumerate(words):
        with pytest.raises(PolicyError) as raised:
            policy.decide(a_scene(now_s))
        assert expected in str(raised.value)
    assert policy.dispatcher.starts == 2, "one more after the first death; the second one is not replaced yet"


def test_kills_call_that_holds_gil(apart):
    dispatcher = apart("tests.bad_dispatchers:HangsInC")
    pid = dispatcher.pid
    until(lambda: dispatcher.not_ready_reason() is None)
    with pytest.raises(DecisionTimeout):
        run_within_time_limit(0.5, lambda: dispatcher.decide(a_scene()))
    assert dispatcher.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_new_process_receives_learned_jobs_and_memory(apart):
    dispatcher = apart("tests.bad_dispatchers:Counts")
    assert dispatcher.learns, "until it says otherwise"
    for id in range(3):
        dispatcher.learn(EndedJob(a_job(id), 0, 5))
    dispatcher.decide(a_scene())
    assert (dispatcher.learns, dispatcher.memory()) == (True, {"count": 3})
    dispatcher.learn(EndedJob(a_job(9), 0, 5))
    os.kill(dispatcher.pid, signal.SIGKILL)
    policy = Policy(WalltimePredictor(), dispatcher)
    with pytest.raises(PolicyError, match="its process died"):
        policy.decide(a_scene())
    policy.decide(a_scene())
    assert dispatcher.memory() == {"count": 4}, "the lesson that the dead one missed is sent again"
    assert dispatcher.starts == 2


def test_reads_memory_once_per_cycle_unless_job_ended(apart, monkeypatch):
    dispatcher = apart("tests.bad_dispatchers:Counts")
    messages, ask = [], dispatcher._send_and_await_response  # noqa: SLF001
    monkeypatch.setattr(
        dispatcher, "_send_and_await_response", lambda message: messages.append(message) or ask(message)
    )
    assert dispatcher.memory() == {"count": 0}
    dispatcher.decide(a_scene())
    assert dispatcher.memory() == {"count": 0}
    dispatcher.decide(a_scene())
    assert len(messages) == 3, "for its memory at the very first, then for decisions"
    dispatcher.learn(EndedJob(a_job(9), 0, 5))
    assert dispatcher.memory() == {"count": 1}
    assert len(messages) == 4


def test_recall_starts_from_given_memory(apart):
    dispatcher = apart("tests.bad_dispatchers:Counts")
    dispatcher.recall({"count": 40})
    assert dispatcher.memory() == {"count": 40}, "before any decision"
    dispatcher.learn(EndedJob(a_job(9), 0, 5))
    assert dispatcher.memory() == {"count": 41}, "what it has learned meanwhile is in it"
    dispatcher.decide(a_scene())
    assert dispatcher.memory() == {"count": 41}, "and is learned once"


def test_non_learning_dispatcher_has_no_memory(apart):
    dispatcher = apart("easy")
    dispatcher.decide(a_scene())
    assert (dispatcher.learns, dispatcher.memory()) == (False, None)


def test_measures_decision_time_in_child(monkeypatch):
    """Under a limit that nothing keeps, the next round is left less work."""
    spec = PolicySpec.of("lookahead", settings={"limit_s": "1e-9", "objective": "af"})
    forks(monkeypatch)
    there = IsolatedDispatcher(spec)
    try:
        most = there.memory()["work"]
        crowd = [a_job(i, 3, (1,), 50 + 37 * i % 90) for i in range(20)]
        there.decide(a_snapshot(a_cluster(1, 4), crowd))
        assert there.memory()["work"] < most
    finally:
        there.close()
