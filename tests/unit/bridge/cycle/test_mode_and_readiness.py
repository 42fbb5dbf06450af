"""The bridge's mode, and the causes of a pause: the operator, the circuit breaker, or a temporary fault."""

import pytest

from cpsched_bridge.cycle.circuit_breaker import MAX_FAILED_DECISIONS, CircuitBreaker
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle.mode_and_readiness import CurrentBridgeMode, require_ready
from cpsched_bridge.errors import NotReady
from cpsched_bridge.ports import Lease, ReadinessCheck
from cpsched_bridge.store.lock_and_request_files import PauseFile
from cpsched_bridge.telemetry.loop_health import SystemdNotifier
from tests.fakes import FakeCluster
from tests.unit.bridge.cycle.test_cycle_timing import a_recorder


@pytest.fixture
def pause(tmp_path):
    return PauseFile(tmp_path)


def a_switch(pause, mode="control", trouble=lambda: None):
    claims = LeaderElection(FakeCluster(), Lease("one", "run", 0, "here"), 120.0)
    return CurrentBridgeMode(mode, pause, claims, CircuitBreaker(3), SystemdNotifier(), trouble)


@pytest.fixture
def tripped(pause):
    switch = a_switch(pause)
    for _ in range(MAX_FAILED_DECISIONS):
        switch.breaker.record_decision(False)
    return switch


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("trouble", ["no heartbeat", None])
def test_operator_or_breaker_pauses_control_but_not_shadow(pause, paused, trouble):
    if paused:
        pause.pause("maintenance")
    control, shadow = (a_switch(pause, mode, lambda: trouble) for mode in ("control", "shadow"))
    reason = "maintenance" if paused else trouble
    assert control.pause_reason() == reason, "the person's word counts first"
    assert control.choose_mode() == ("control" if reason is None else "paused")
    assert shadow.choose_mode() == "shadow"


def test_reports_mode_on_change(pause):
    trouble, reported = {"paused": "no heartbeat"}, []
    switch = a_switch(pause, trouble=lambda: trouble.get(mode))
    for mode in ("control", "control", "paused", "paused", "control", "shadow"):
        recorder = a_recorder()
        paused = switch.report_mode_change(mode, recorder)
        reported.append(([event.detail for event in recorder.bridge_events], paused))
    why = "no heartbeat"
    assert reported == [
        (["control"], ""), ([], ""), ([f"paused {why}"], why), ([], why), (["control"], ""), (["shadow"], ""),
    ]  # fmt: skip


def test_tripped_breaker_pauses_on_disk_until_resume(pause, tripped):
    recorder = a_recorder()
    tripped.pause_if_breaker_tripped("control", 0.0, recorder)
    why = "circuit breaker: 5 consecutive decisions failed; run `cpsched resume` to resume"
    assert [(each.kind, each.detail) for each in recorder.bridge_events] == [
        ("circuit_breaker_tripped", "5 consecutive decisions failed")
    ]
    assert (tripped.choose_mode(), pause.read_reason()) == ("paused", why)
    pause.resume()
    tripped.report_mode_change("control", a_recorder())
    tripped.pause_if_breaker_tripped("control", 0.0, a_recorder())
    assert (tripped.choose_mode(), pause.read_reason()) == ("control", None), "it counts from zero"


def test_control_requires_every_required_check():
    warning = ReadinessCheck("clocks", False, "2 s apart", "use NTP", required=False)
    require_ready([ReadinessCheck("privilege", True, "operator"), warning])
    with pytest.raises(NotReady, match="privilege: none; add an operator"):
        require_ready([ReadinessCheck("privilege", False, "none", "add an operator"), warning])
