"""Pins from an earlier run are removed while the bridge starts up, before it does anything else."""

import pytest

from cpsched_bridge.cycle.startup import BridgeStartupSteps
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import Hold, Lease
from cpsched_bridge.store.ledger import LedgerState
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace
from tests.stores import full

TIMEOUT_S = 15


@pytest.fixture
def cluster():
    """The remains of a dead bridge: a failed start, a requeued job with its old pin, a held job."""
    return FakeCluster.of(a_job(1), a_job(2), a_job(3, per_unit=99), lazy=True)


@pytest.fixture
def left(bridge_at, cluster):
    """The next bridge; `looks` is the number of its readings."""
    former = bridge_at(cluster, on_stop="keep")
    former.cycle()
    cluster.drained.add(0)
    cluster.run_now(2, ((0, 1),))
    former.cycle()
    cluster.requeue(2)
    cluster.commands.clear()

    def begin(looks=4, **changes):
        pace = FakePace(cycles=looks)
        startup = BridgeStartupSteps([lambda: "compiles"])
        changes = {"on_stop": "keep", "start": {"timeout_s": TIMEOUT_S}, **changes}
        bridge = bridge_at(cluster, startup=startup, pace=pace, **changes)
        bridge.run()
        return bridge

    return begin


def test_removes_requeued_pin_at_once_and_leaves_recent_start(left, cluster):
    bridge = left()
    assert (cluster.commands, cluster.jobs[2].pin, cluster.jobs[2].hold) == ([("hold", (2,))], (), Hold.ADMIN)
    assert cluster.jobs[1].pin, "it may still run"
    states = {id: bridge.ledger.get(id).state for id in (1, 2, 3)}
    assert states == {1: LedgerState.STARTING, 2: LedgerState.HELD, 3: LedgerState.HELD}


def test_undoes_start_after_its_timeout(left, cluster):
    cluster.now_s = TIMEOUT_S + 1
    left()
    assert sorted(id for _, ids in cluster.commands for id in ids) == [1, 2]
    assert not cluster.jobs[1].pin


def test_reads_at_cycle_interval_and_only_if_ledger_has_pins(left, bridge_at, cluster):
    readings = []
    observe = cluster.observe
    cluster.observe = lambda pinned=(): readings.append(1) or observe(pinned)
    left(looks=9, cycle={"interval_s": 2.0})
    assert len(readings) == 3, "at 0, 2 and 4 s of 4.5 s"
    cluster.jobs = {3: cluster.jobs[3]}
    bridge_at(cluster).cycle()
    readings.clear()
    left()
    assert readings == []


@pytest.mark.parametrize("error", [BackendUnavailable("away"), BackendTimeout("slow")])
@pytest.mark.parametrize("call", ["observe", "hold"])
def test_retries_silent_cluster(left, cluster, call, error):
    cluster.fail(call, error)
    left(cycle={"interval_s": 0.5})
    assert cluster.commands[-1] == ("hold", (2,))
    assert not cluster.jobs[2].pin


def test_leaves_pins_to_first_cycle_if_disk_is_full(left, cluster, monkeypatch):
    monkeypatch.setattr("cpsched_bridge.store.ledger.Ledger.record", full)
    left()
    assert cluster.commands == []


def test_shadow_mode_removes_no_pin(left, cluster):
    left(mode="shadow")
    assert cluster.commands == []


def test_leaves_pins_to_other_bridge_in_control(left, cluster):
    cluster.claimed = Lease("other", "run", 3, "elsewhere")
    left()
    assert cluster.commands == []


def test_paused_bridge_releases_only_pinned_jobs(left, bridge_at, cluster):
    bridge_at(cluster).pause.pause("for a while")
    left()
    assert (cluster.commands, cluster.jobs[3].hold) == ([("release", (1, 2))], Hold.PLUGIN)


def test_leaves_successful_start_to_first_cycle(left, cluster):
    cluster.run_now(1, ((1, 1),))
    assert left().ledger.get(1).state is LedgerState.STARTING
