"""Work before the first decision is reported, holds no jobs, and does not count against any limit."""

import pytest

from cpsched_bridge.cycle import circuit_breaker
from cpsched_bridge.cycle.startup import (
    CHECK_INTERVAL_S,
    MAX_HELD_WAIT_S,
    BridgeStartupSteps,
    ThrottledProgressReporter,
)
from cpsched_bridge.ports import Hold
from cpsched_bridge.telemetry.loop_health import LoopHealth
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace


class Steps:
    """A beginning that takes until its `words` are empty."""

    def __init__(self, words="compiles kernels: 3 of 23 kernels are ready"):
        self.words, self.told = words, []
        self.startup = BridgeStartupSteps([lambda: self.words or None], [self.told.append])


@pytest.fixture
def steps():
    return Steps()


@pytest.fixture
def cluster():
    return FakeCluster.of(a_job(1, per_unit=3), a_job(2, per_unit=3))


def test_runs_steps_in_order_and_reports_them_until_end():
    left, told = {"first": ["a", "b"], "second": ["c"]}, []
    startup = BridgeStartupSteps([lambda: next_of("first"), lambda: next_of("second")], [told.append])

    def next_of(step):
        return left[step].pop(0) if left[step] else None

    assert [startup.poll_pending_step() for _ in range(5)] == ["a", "b", "c", None, None]
    startup.report_step("")
    startup.report_step("")
    assert told == ["a", "b", "c", ""], "its end is reported once"


def test_neither_decides_nor_holds_before_startup_ends(bridge_at, cluster, steps, monkeypatch):
    """A job that the submit plugin held, and one without a hold."""
    cluster.submit(a_job(3), hold=Hold.NONE)
    monkeypatch.setattr(circuit_breaker, "MAX_FAILED_DECISIONS", 1)
    bridge = bridge_at(cluster, startup=steps.startup)
    for _ in range(3):
        report = bridge.cycle()
        assert (report.result, report.role.mode, report.decided.decision) == ("ok", "paused", None)
        assert report.decided.waits_for == steps.words
    assert [kind for kind, _ in cluster.commands] == ["release"], "what the plugin holds does not wait for a compiler"
    assert bridge.pause.read_reason() is None, "no decision is no failed decision"
    assert bridge.settings.heartbeat_path.exists()
    steps.words = ""
    bridge.cycle()
    assert steps.told[-1] == ""
    assert bridge.cycle().role.mode == "control"
    bridge.cycle()
    assert cluster.jobs[3].starts == 1


def test_shadow_mode_reads_during_startup(bridge_at, cluster, steps):
    bridge = bridge_at(cluster, startup=steps.startup, mode="shadow")
    report = bridge.cycle()
    assert (report.result, report.role.mode, report.observation is None) == ("ok", "shadow", False)
    steps.words = ""
    assert bridge.cycle().decided.decision is not None


@pytest.mark.parametrize(
    ("takes_s", "released"),
    [(0.0, False), (MAX_HELD_WAIT_S - 1, False), (MAX_HELD_WAIT_S + 1, True), (10 * MAX_HELD_WAIT_S, True)],
)
def test_releases_jobs_of_previous_run_if_startup_is_slow(bridge_at, cluster, takes_s, released):
    """Before the end of the beginning, so that a bridge that never begins keeps no job."""
    former = bridge_at(cluster, on_stop="keep")
    cluster.submit(a_job(4, per_unit=99))
    former.cycle()
    cluster.commands.clear()
    pace = FakePace(cycles=1000)
    startup = BridgeStartupSteps([lambda: "compiles" if pace.at_s < takes_s else None])
    sent = []

    def look(report):
        sent.append((report.role.mode, [kind for kind, _ in cluster.commands]))
        if report.role.mode == "control":
            pace.cycles = 0

    bridge = bridge_at(cluster, startup=startup, pace=pace, listeners=(look,), on_stop="keep", cycle={})
    bridge.run()
    assert (("paused", ["release"]) in sent) == released
    assert sent[-1][0] == "control"
    assert pace.waited[0] == (CHECK_INTERVAL_S if takes_s else pytest.approx(1.0))


def test_writes_heartbeat_before_first_cycle(bridge_at, cluster, steps):
    """The dead-man timer must not take a compiler for a death."""
    pace = FakePace(cycles=3)
    bridge = bridge_at(cluster, startup=steps.startup, pace=pace, mode="shadow")
    bridge.run()
    assert pace.waited == [CHECK_INTERVAL_S] * 3, "no cycle has begun"
    assert bridge.settings.heartbeat_path.exists()


def test_signal_ends_startup_and_releases_held_jobs(bridge_at, cluster, steps):
    bridge_at(cluster, on_stop="keep").cycle()
    cluster.submit(a_job(5))
    bridge = bridge_at(cluster, startup=steps.startup, pace=FakePace(cycles=3))
    assert bridge.run() == []
    assert (cluster.commands[-1], bridge.pace.waited) == (("release", (5,)), [CHECK_INTERVAL_S] * 3)


@pytest.mark.parametrize(("takes_s", "at_s"), [(7.0, 7.0), (900.0, MAX_HELD_WAIT_S)])
def test_notifies_systemd_when_ready_or_continuing_without(bridge_at, cluster, takes_s, at_s):
    told, pace = [], FakePace(cycles=200)

    class Told:
        def notify(self, *words):
            told.append((pace.at_s, words))

    startup = BridgeStartupSteps([lambda: "compiles" if pace.at_s < takes_s else None])
    bridge_at(cluster, startup=startup, pace=pace, systemd=Told()).run()
    assert [when_s for when_s, words in told if "READY=1" in words] == [at_s]


def test_health_reports_startup_step_and_liveness(bridge_at, cluster, steps):
    now = [0.0]
    health = LoopHealth(bridge_at(cluster).settings.cycle, lambda: now[0])
    for _ in range(5):
        now[0] += health.max_cycle_gap_s - 1
        health.on_startup_step("compiles kernels")
        assert health.list_stall_reasons() == []
    assert health.list_unready_reasons() == ["no decision yet: compiles kernels", "no cycle has ended yet"]
    health.on_startup_step("")
    assert health.list_unready_reasons() == ["no cycle has ended yet"]
    bridge = bridge_at(cluster, startup=steps.startup, listeners=(health,), cycles=1)
    assert health.list_unready_reasons() == [f"no decision yet: {steps.words}"]
    steps.words = ""
    bridge.cycle()
    assert health.list_unready_reasons() == []


def test_throttles_repeated_steps_but_reports_first_and_end():
    told, now = [], [0.0]
    seldom = ThrottledProgressReporter(told.append, 10.0, lambda: now[0])
    for at_s, words in ((0.0, "a"), (9.9, "b"), (10.0, "c"), (10.1, ""), (10.2, "d")):
        now[0] = at_s
        seldom(words)
    assert told == ["a", "c", "", "d"]
