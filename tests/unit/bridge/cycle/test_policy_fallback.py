"""If the configured policy hangs or fails, the fallback decides in the same cycle."""

from functools import partial

import pytest

from cpsched.model import EndedJob
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_bridge.cycle import circuit_breaker
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.cycle.policy_fallback import MAX_CONSECUTIVE_FAILURES
from cpsched_bridge.cycle.startup import MAX_HELD_WAIT_S
from cpsched_bridge.effective_config import EffectiveConfig
from cpsched_bridge.store.round_replay import replay_round
from tests.bridges import event_kinds
from tests.builders import a_job
from tests.fakes import FakePace, FirstFit
from tests.unit.bridge.cycle.test_bad_policies import ALL, ENDLESS, Bad, Guess, raising

SHORT_S = 1.0
"""Only what never returns comes near it."""


class Tried(FirstFit):
    """Fails for a while, and counts its calls; may take its time."""

    def __init__(self, pace=None, seconds=0.0):
        self.bad, self.asked, self._pace, self._seconds = True, 0, pace, seconds

    def decide(self, snapshot, need="plan"):
        self.asked += 1
        if self._pace is not None:
            self._pace.at_s += self._seconds
        if self.bad:
            raise RuntimeError("no idea")
        return super().decide(snapshot, need)


@pytest.fixture
def at(at):
    return partial(at, fallback=Policy(WalltimePredictor(), FirstFit()))


SOME = ("an error", "recursion", "no Exception", "None", "a word", "a negative slot", "a job twice", *ENDLESS)
"""Each way of failing; what each of all that may go wrong is called is `test_bad_policies`' matter."""


@pytest.mark.parametrize("name", SOME)
def test_jobs_start_in_cycle_of_dispatcher_failure(at, name):
    limit = {"decide_timeout_s": SHORT_S} if name in ENDLESS else {}
    bridge, cluster, metric = at(dispatcher=Bad(ALL[name]), cycle=limit)
    report = bridge.cycle()
    assert (report.result, sorted(report.decided.starts)) == ("ok", [1, 2])
    assert event_kinds(report)[1:] == ["fallback"]
    assert event_kinds(report)[0] in {"decision_failed", "rule_broken", "decision_timeout"}
    assert (name in ENDLESS) == (event_kinds(report)[0] == "decision_timeout")
    assert report.decided.decision.effort.path == "fallback"
    assert metric("cpsched_solves_total", path="fallback", status="none") == 1
    assert metric("cpsched_fallback") == 1
    assert bridge.settings.heartbeat_path.exists()
    bridge.cycle()
    assert all(fake.running for fake in cluster.jobs.values())


def test_fallback_round_is_replayed_by_fallback(at):
    """It decides by the site's order on Slurm, and so must a replay of its rounds."""
    by_priority = PolicySpec("easy", dispatcher_settings={"order": "priority"})
    config = EffectiveConfig(PolicySpec("first-fit"), by_priority)
    bridge, _, _ = at(dispatcher=Tried(), fallback=by_priority.build(), config=config)
    record = bridge.journal.read_round(bridge.cycle().number)
    assert (record.policy, record.failure, record.effort.path) == (by_priority, "", "fallback")
    assert replay_round(record).is_same_decision


@pytest.mark.parametrize("part", ["answer", "lesson"])
def test_failing_predictor_delays_no_job(at, part):
    bridge, cluster, _ = at()
    cluster.past = [EndedJob(a_job(9), 0, 5)]
    bridge.policy.predictor = Guess(**{part: raising(RuntimeError("no idea"))})
    report = bridge.cycle()
    assert (report.result, sorted(report.decided.starts)) == ("ok", [1, 2])


def test_reports_begin_and_end_of_fallback_only(at):
    tried = Tried()
    bridge, _, metric = at(dispatcher=tried)
    told = [event_kinds(bridge.cycle()) for _ in range(2)]
    tried.bad = False
    told += [event_kinds(bridge.cycle()) for _ in range(2)]
    assert told == [["decision_failed", "fallback"], ["decision_failed"], ["fallback_ended"], []]
    assert metric("cpsched_fallback") == 0
    assert bridge.cycle().decided.decision.effort.path == "first-fit"


def test_retries_bad_policy_ever_less_often_without_pause(at, monkeypatch):
    tried, pace = Tried(), FakePace()
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 2)
    bridge, _, _ = at(dispatcher=tried, pace=pace)
    asked = []
    for second in range(40):
        pace.at_s = float(second)
        before = tried.asked
        assert bridge.cycle().role.mode == "control"
        asked += [second] * (tried.asked - before)
    assert (MAX_CONSECUTIVE_FAILURES, asked) == (3, [0, 1, 2, 3, 5, 9, 17, 33])


@pytest.mark.parametrize(("cost_s", "again_s"), [(2.0, 22.0), (59.0, 649.0), (60.5, 660.5)])
def test_bounds_cost_of_bad_policy(at, cost_s, again_s):
    pace = FakePace()
    tried = Tried(pace, cost_s)
    bridge, _, _ = at(dispatcher=tried, pace=pace, cycle={"max_backoff_s": 1})
    bridge.cycle()
    pace.at_s = again_s - 0.5
    bridge.cycle()
    assert tried.asked == 1
    pace.at_s = again_s
    bridge.cycle()
    assert tried.asked == 2


def test_success_resets_failure_count(at):
    tried = Tried()
    bridge, _, _ = at(dispatcher=tried)
    for second, bad in enumerate([True] * 3 + [False] + [True] * 3):
        bridge.pace.at_s, tried.bad = float(second), bad
        bridge.cycle()
    assert tried.asked == 7


def test_pauses_if_policy_and_fallback_fail(at, monkeypatch):
    bad = Policy(WalltimePredictor(), Bad(raising(ValueError("nor I"))))
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 2)
    bridge, cluster, _ = at(dispatcher=Tried(), fallback=bad)
    report = bridge.cycle()
    assert (report.result, report.decided.starts) == ("decision_failed", {})
    assert "nor I" in report.bridge_events[-1].detail
    bridge.cycle()
    assert bridge.cycle().role.mode == "paused"
    assert cluster.commands == [("release", (1, 2))]


def test_cycle_fails_without_fallback(at):
    bridge, _, metric = at(dispatcher=Tried(), fallback=None)
    assert bridge.cycle().result == "decision_failed"
    assert metric("cpsched_fallback") == 0


class Starting(IsolatedDispatcher):
    """A dispatcher whose process takes a given time to begin; in-process it decides itself."""

    def __init__(self):
        self.words, self.asked, self._inner = "compiles kernels", 0, FirstFit()

    def not_ready_reason(self):
        return self.words

    @property
    def learns(self):
        return False

    def memory(self):
        return None

    def decide(self, snapshot, need="plan"):
        assert self.words is None, "asked while it begins"
        self.asked += 1
        return self._inner.decide(snapshot, need)


def test_fallback_decides_while_dispatcher_process_starts(at, monkeypatch):
    starting, pace = Starting(), FakePace()
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 1)
    bridge, _, metric = at(dispatcher=starting, pace=pace)
    told = []
    for second in range(MAX_CONSECUTIVE_FAILURES + 3):
        pace.at_s = float(second)
        report = bridge.cycle()
        assert (report.result, report.role.mode, report.decided.decision.effort.path) == ("ok", "control", "fallback")
        told.append(event_kinds(report))
    assert told == [["fallback"]] + [[]] * (MAX_CONSECUTIVE_FAILURES + 2)
    starting.words = None
    assert event_kinds(bridge.cycle()) == ["fallback_ended"]
    assert starting.asked == 1
    assert metric("cpsched_fallback") == 0


def test_releases_jobs_if_startup_is_slow_without_fallback(at, monkeypatch):
    starting, pace = Starting(), FakePace()
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 1)
    bridge, cluster, _ = at(dispatcher=starting, fallback=None, pace=pace)
    starting.words = None
    bridge.cycle()
    starting.words = "compiles kernels"
    cluster.submit(a_job(3))
    modes = []
    for second in (1.0, 2.0, MAX_HELD_WAIT_S, MAX_HELD_WAIT_S + 2.0):
        pace.at_s = second
        report = bridge.cycle()
        assert (report.result, report.decided.decision, report.decided.waits_for) == ("ok", None, "compiles kernels")
        modes.append(report.role.mode)
    assert modes == ["control", "control", "control", "paused"]
    assert cluster.commands[-1] == ("release", (3,))
    starting.words = None
    bridge.cycle()
    assert bridge.cycle().role.mode == "control"
