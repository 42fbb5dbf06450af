"""Two bridges on one cluster: the first stays in control, and the other is on standby, reports this, and takes over
later.
"""

import json
from dataclasses import asdict, replace
from typing import Self
from unittest.mock import Mock, call

import pytest

from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.leader_election import (
    JOBS_RELEASED,
    LINK_LOST_S,
    RELEASED,
    RENEWALS_PER_LEASE,
    SHORT_LEASE_S,
    LeaderElection,
    PeerMessage,
)
from cpsched_bridge.errors import BackendTimeout, CommandRefused
from cpsched_bridge.ports import FENCED_EPOCH, Hold, Lease
from cpsched_bridge.store.lock_and_request_files import LeadershipStatus
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster, FakePace

GONE_S = 120.0
MINE = Lease("aaaa", "1", 0, "one:/state")
OTHER = Lease("bbbb", "7", 4, "two:/state")


class Looking:
    """Claims over a fake cluster, looked at every second."""

    def __init__(self, claimed: Lease | None = None, mine: Lease = MINE) -> None:
        self.cluster = FakeCluster(claimed=claimed)
        self.asked = False
        self.leader_election = LeaderElection(self.cluster, mine, GONE_S, lambda: self.asked)
        self.now_s = 1000.0
        self.told: list[str] = []

    def look(self, after_s: float = 1.0, wanted: bool = True) -> Lease | None:
        """The rival after another look, this many seconds later."""
        self.now_s += after_s
        recorder = CycleRecorder(1, FakePace())
        other = self.leader_election.observe_and_renew_lease(self.cluster.claimed, wanted, self.now_s, recorder)
        self.told += [event.kind for event in recorder.bridge_events]
        assert other == self.leader_election.other_leader
        return other

    def for_seconds(self, seconds: float) -> set[Lease | None]:
        """The rivals of several looks."""
        return {self.look() for _ in range(int(seconds))}

    def after(self, seconds: float) -> Self:
        self.for_seconds(seconds)
        return self

    @property
    def in_control(self) -> bool:
        return self.cluster.claimed is not None and self.cluster.claimed.owner == self.leader_election.mine.owner


def test_renews_lease_six_times_per_lease_duration():
    bridge = Looking().after(1 + GONE_S)
    assert bridge.cluster.claimed == replace(MINE, beat=1 + RENEWALS_PER_LEASE)


def test_yields_to_other_lease_and_reports_once():
    bridge = Looking(OTHER)
    assert bridge.look() == OTHER
    assert bridge.leader_election.standby_reason() == "another bridge is in control of this cluster: two:/state"
    for beat in range(5, 100):
        bridge.cluster.claimed = replace(OTHER, beat=beat)
        assert bridge.look(GONE_S - 1) is not None
    assert bridge.told == ["other_bridge"]
    bridge.cluster.claimed = replace(OTHER, bridge="cccc", where="three:/state")
    bridge.look()
    assert bridge.told == ["other_bridge", "other_bridge"]
    assert not bridge.in_control


@pytest.mark.parametrize(("lease", "now_s"), [(OTHER, 1000.0), (OTHER, 1e9), (replace(OTHER, standby="cccc"), 1000.0)])
def test_takes_over_unchanged_lease_after_expiry_only(lease, now_s):
    """A count is written, no time: the same happens with monotonic clocks that began years apart."""
    bridge = Looking(lease)
    bridge.now_s = now_s
    assert (bridge.for_seconds(GONE_S), bridge.look()) == ({lease}, None)
    assert (bridge.in_control, bridge.told) == (True, ["other_bridge", "other_bridge_gone"])


def test_takes_over_deleted_lease_that_its_owner_does_not_write_again():
    bridge = Looking(replace(OTHER, epoch=30)).after(1)
    bridge.cluster.claimed = None
    assert None not in bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE - 1)
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=1, epoch=31)


@pytest.mark.parametrize("run", [RELEASED, JOBS_RELEASED])
def test_takes_over_at_once_after_orderly_stop_of_other_bridge(run):
    bridge = Looking(OTHER).after(1)
    bridge.cluster.claimed = replace(OTHER, run=run, beat=5, epoch=30)
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=1, epoch=31)


def test_each_takeover_increases_the_epoch_that_changes_carry():
    bridge = Looking(replace(OTHER, epoch=30)).after(GONE_S)
    assert bridge.cluster.epoch == FENCED_EPOCH
    bridge.look()
    assert bridge.cluster.claimed.epoch == bridge.cluster.epoch == 31
    bridge.cluster.claimed = replace(OTHER, beat=9, epoch=32)
    bridge.look()
    assert bridge.cluster.epoch == FENCED_EPOCH


def test_paused_bridge_releases_jobs_with_its_last_epoch_until_another_leads():
    bridge = Looking(replace(OTHER, run=RELEASED, epoch=30)).after(1)
    for _ in range(2):
        bridge.look(wanted=False)
        assert (bridge.cluster.claimed.run, bridge.cluster.epoch) == (RELEASED, 31)
    bridge.cluster.claimed = replace(OTHER, beat=9, epoch=32)
    bridge.look(wanted=False)
    assert bridge.cluster.epoch == FENCED_EPOCH
    bridge.cluster.claimed = replace(OTHER, run=RELEASED, beat=10, epoch=32)
    bridge.look(wanted=False)
    assert bridge.cluster.epoch == 32, "no bridge leads, and the submit plugin would refuse its own epoch"


def test_bridge_that_never_led_releases_jobs_with_the_epoch_of_the_last_leader():
    """Its own first epoch may be later than that of the next leader, whose changes the submit plugin would refuse."""
    for run in (RELEASED, "dead"):
        bridge = Looking(replace(OTHER, run=run, epoch=30))
        for _ in range(int(GONE_S) + 1):
            bridge.look(wanted=False)
        assert bridge.cluster.epoch == 30
    bridge.cluster.claimed = None
    bridge.look(GONE_S, wanted=False)
    assert bridge.cluster.epoch == 0


class Linked(Looking):
    """A leader with a link that is up, until `cut`."""

    def __init__(self, claimed: Lease | None = None) -> None:
        super().__init__(claimed)
        self.cut = False
        self.peer = PeerMessage(*OTHER.owner, OTHER.where, can_lead=True)
        self.leader_election.link.send = lambda message: None if self.cut else self.peer

    def look(self, after_s: float = 1.0, wanted: bool = True) -> Lease | None:
        self.leader_election.keep_link(self.now_s + after_s)
        return super().look(after_s, wanted)


def test_leader_names_standby_and_renews_as_rarely_as_before():
    bridge = Linked().after(1)
    assert bridge.cluster.claimed == replace(MINE, beat=1)
    bridge.look()
    assert bridge.cluster.claimed == replace(MINE, beat=2, standby="bbbb")
    bridge.for_seconds(GONE_S - 1)
    assert bridge.cluster.claimed == replace(MINE, beat=1 + RENEWALS_PER_LEASE, standby="bbbb")


def test_leader_names_no_standby_that_cannot_lead():
    """Otherwise, an orderly stop would leave jobs to it."""
    bridge = Linked().after(2)
    assert bridge.leader_election.has_standby(bridge.now_s)
    bridge.peer = replace(bridge.peer, can_lead=False)
    bridge.look()
    assert bridge.cluster.claimed == replace(MINE, beat=3)
    assert not bridge.leader_election.has_standby(bridge.now_s)


def test_paused_bridge_says_that_it_cannot_lead():
    bridge = Linked()
    for wanted in (False, True, False):
        bridge.look(wanted=wanted)
        bridge.leader_election.keep_link(bridge.now_s)
        assert bridge.leader_election.link.own == PeerMessage(*MINE.owner, MINE.where, wanted)


def test_leader_returns_to_long_lease_before_the_short_one_ends():
    """It does so during a cycle, without an observation."""
    bridge = Linked().after(2)
    bridge.cut = True
    for seconds in range(1, int(SHORT_LEASE_S)):
        bridge.leader_election.keep_link(bridge.now_s + seconds)
        assert (bridge.cluster.claimed.standby == "bbbb") == (seconds < LINK_LOST_S)
        assert not bridge.leader_election.is_lease_expired(bridge.now_s + seconds)
    assert not bridge.leader_election.is_lease_expired(bridge.now_s + GONE_S)
    assert bridge.leader_election.is_lease_expired(bridge.now_s + 3 + GONE_S)


def test_answer_renews_no_lease_that_expired_while_leader_was_suspended():
    bridge = Linked().after(2)
    bridge.cluster.claimed = OTHER
    bridge.leader_election.keep_link(bridge.now_s + SHORT_LEASE_S)
    assert bridge.leader_election.is_lease_expired(bridge.now_s + SHORT_LEASE_S)


def test_leader_whose_long_lease_cannot_be_written_sends_nothing():
    bridge = Linked().after(2)
    bridge.cut = True
    bridge.cluster.fail("claim", BackendTimeout("no answer"), times=9)
    expired = []
    for seconds in range(1, 9):
        bridge.leader_election.keep_link(bridge.now_s + seconds)
        expired.append(bridge.leader_election.is_lease_expired(bridge.now_s + seconds))
    assert expired == [False] * 5 + [True] * 3


def test_both_bridges_describe_leader_other_bridge_and_takeover():
    leader = Linked()
    found = leader.leader_election.describe(1600.0, 5000.0)
    assert found == LeadershipStatus("", False, 5000.0 - 1600.0, "", None, GONE_S, 0)
    leader.for_seconds(10)
    found = leader.leader_election.describe(leader.now_s + 2.0, 5000.0)
    assert found == LeadershipStatus("one:/state", True, 5000.0 - 11.0, "two:/state", 4998.0, SHORT_LEASE_S, 0)
    standby = Looking(replace(MINE, beat=1, standby=OTHER.bridge), mine=OTHER).after(5)
    link = standby.leader_election.link
    link.receive(PeerMessage(*MINE.owner, MINE.where, True), standby.now_s - 2.0)
    found = standby.leader_election.describe(standby.now_s, 5000.0)
    assert found == LeadershipStatus("one:/state", False, 5000.0 - 4.0, "one:/state", 4998.0, SHORT_LEASE_S, 0)
    standby.cluster.claimed = replace(MINE, beat=2)
    standby.look()
    assert standby.leader_election.describe(standby.now_s, 5000.0).takeover_s == GONE_S


def test_standby_takes_over_soon_after_last_message():
    there = replace(OTHER, standby=MINE.bridge)
    bridge = Looking(there)
    link = bridge.leader_election.link
    for _ in range(int(GONE_S)):
        link.receive(PeerMessage(OTHER.bridge, OTHER.run), bridge.now_s + 1.0)
        assert bridge.look() == there
    assert bridge.for_seconds(SHORT_LEASE_S - 1) == {there}
    assert bridge.look() is None


def test_hung_cycle_sends_no_messages_and_does_not_renew_its_lease():
    """Otherwise, the other bridge would wait for the long lease once more."""
    bridge = Linked().after(2)
    before = bridge.cluster.claimed
    send = bridge.leader_election.link.send = Mock(return_value=bridge.peer)
    for seconds in range(1, 2 * int(GONE_S)):
        bridge.leader_election.keep_link(bridge.now_s + seconds)
    assert (before.standby, bridge.cluster.claimed) == ("bbbb", before)
    assert send.call_args_list == [call(PeerMessage(*MINE.owner, MINE.where, True))] * int(GONE_S - 1)
    assert bridge.leader_election.link.receive(PeerMessage("bbbb", "7"), 0.0) == PeerMessage()


def test_only_lease_owner_of_two_clones_continues():
    """As where a whole machine was cloned."""
    bridge, clone = Looking(), replace(MINE, run="2", beat=1)
    bridge.look()
    bridge.cluster.claimed = clone
    assert bridge.look() == clone
    assert bridge.for_seconds(GONE_S - 1) == {clone}
    assert not bridge.in_control


def test_takeover_request_survives_concurrent_renewal():
    """As where a reading takes nearly as long as the time between two beats."""
    bridge = Looking(OTHER).after(1)
    bridge.asked = True
    bridge.cluster.before("claim", lambda: setattr(bridge.cluster, "claimed", replace(OTHER, beat=5)))
    assert bridge.look() is not None
    bridge.asked = False
    assert bridge.look() is None
    assert bridge.in_control
    bridge.cluster.claimed = replace(OTHER, beat=6)
    assert bridge.look() is not None, "it was asked once, and has taken over once"


def test_simultaneous_acquires_do_not_both_succeed():
    bridge = Looking()
    bridge.cluster.before("claim", lambda: setattr(bridge.cluster, "claimed", OTHER))
    assert bridge.look() is not None
    assert bridge.look() == OTHER
    assert not bridge.in_control


def test_paused_bridge_releases_lease():
    bridge = Looking().after(1)
    bridge.look(wanted=False)
    assert bridge.cluster.claimed == replace(MINE, run=RELEASED, beat=2)
    found = bridge.leader_election.describe(bridge.now_s, 5000.0)
    assert found == LeadershipStatus("", False, 5000.0, "", None, GONE_S, 0)


def test_observation_from_before_a_renewal_is_not_the_last_lease():
    bridge = Looking().after(1)
    before = bridge.cluster.claimed
    bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE)
    bridge.leader_election.observe_and_renew_lease(before, True, bridge.now_s, CycleRecorder(1, FakePace()))
    assert bridge.leader_election.mine == bridge.cluster.claimed == replace(MINE, beat=2)


def refused(work):
    raise CommandRefused("no such privilege")


def test_controls_without_lease_if_unsupported_and_reports_once():
    """And tried again as often as a lease would be written."""
    bridge = Looking()
    bridge.cluster.inject("claim", refused, times=99)
    assert bridge.for_seconds(3 * GONE_S / RENEWALS_PER_LEASE) == {None}
    assert (bridge.told, len(bridge.cluster.faults["claim"])) == (["lease_unwritable"], 99 - 3)
    bridge.cluster.faults.clear()
    bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE)
    assert bridge.in_control


def test_lease_with_lost_answer_is_found_at_next_check():
    bridge = Looking()
    bridge.cluster.lose_answer("claim")
    with pytest.raises(BackendTimeout):
        bridge.look()
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=2)
    bridge.look(wanted=False)
    assert bridge.cluster.claimed == replace(MINE, run=RELEASED, beat=3)


# two whole bridges -------------------------------------------------------------------------------------------------


def two(tmp_path, cluster):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    pace = FakePace()
    return [a_bridge(tmp_path / name, cluster, pace=pace) for name in ("one", "two")]


def test_stop_after_takeover_leaves_jobs_to_other_bridge(tmp_path):
    cluster = FakeCluster(cluster=a_cluster(nodes=1, cores=1))
    first, second = two(tmp_path, cluster)
    cluster.submit(a_job(1, walltime_s=1000), a_job(2))
    first.cycle()
    (tmp_path / "two" / "take-over").touch()
    second.cycle()
    sent = list(cluster.commands)
    assert first.stop() == []
    assert (cluster.commands, cluster.jobs[2].hold) == (sent, Hold.PLUGIN)


def test_bridge_stalled_during_cycle_sends_no_old_decision(tmp_path):
    cluster = FakeCluster()
    first = a_bridge(tmp_path, cluster, cycles=1)
    cluster.submit(a_job(1))

    class Slow(type(first.policy.dispatcher)):
        def decide(self, snapshot, need="plan"):
            first.pace.at_s += GONE_S
            return super().decide(snapshot, need)

    first.policy.dispatcher = Slow()
    assert first.cycle().result == "outdated"
    assert cluster.commands == []


def test_bridge_stalled_during_hold_sends_no_start(tmp_path, monkeypatch):
    cluster = FakeCluster(cluster=a_cluster(nodes=1, cores=1))
    first = a_bridge(tmp_path, cluster, cycles=1)
    cluster.submit(a_job(1))
    cluster.submit(a_job(2), hold=Hold.NONE)
    hold = cluster.hold

    def hold_slowly(orders):
        first.pace.at_s += GONE_S
        return hold(orders)

    monkeypatch.setattr(cluster, "hold", hold_slowly)
    assert first.cycle().result == "outdated"
    assert cluster.commands == [("hold", (2,))]


def test_pause_that_ends_while_lease_is_released_sends_no_start(tmp_path, monkeypatch):
    cluster = FakeCluster()
    bridge = a_bridge(tmp_path, cluster, cycles=1)
    cluster.submit(a_job(1))
    bridge.pause.pause("an operator")
    acquire_lease = cluster.acquire_lease

    def release_slowly(lease, expected):
        bridge.pause.resume()
        return acquire_lease(lease, expected)

    monkeypatch.setattr(cluster, "acquire_lease", release_slowly)
    assert bridge.cycle().role.mode == "paused"
    assert [name for name, _ in cluster.commands] == ["release"]
    assert bridge.cycle().role.mode == "control"


def test_shadow_bridge_reports_owner_without_lease(tmp_path):
    cluster = FakeCluster()
    shadow = a_bridge(tmp_path, cluster, mode="shadow")
    assert shadow.cycle().role.other_leader is None
    assert cluster.claimed is None
    cluster.claimed = OTHER
    report = shadow.cycle()
    assert (report.role.mode, report.role.other_leader) == ("shadow", OTHER)
    assert [h.detail for h in report.bridge_events if h.kind == "other_bridge"] == [
        "another bridge is in control of this cluster: two:/state"
    ]


def test_epoch_exceeds_that_of_lost_lease_which_was_never_seen():
    """While this bridge was suspended, another one led, whose lease was then deleted."""
    bridge = Looking(mine=replace(MINE, epoch=1000))
    bridge.leader_election.unix_s = lambda: bridge.now_s
    bridge.for_seconds(2)
    assert bridge.cluster.claimed.epoch == 1001
    bridge.cluster.claimed = None
    bridge.look(after_s=500)
    assert bridge.in_control
    assert bridge.cluster.claimed.epoch == bridge.cluster.epoch == 1502


@pytest.mark.parametrize("seen_epoch", [0, 10**10])
def test_epoch_increases_although_lease_is_lost_and_clock_set_back(tmp_path, seen_epoch):
    """The submit plugin has seen the epochs of this bridge, and those of the other one."""
    cluster = FakeCluster(claimed=replace(OTHER, epoch=seen_epoch) if seen_epoch else None)
    a_bridge(tmp_path, cluster, pace=FakePace(at_s=5000.0)).cycle()
    before = cluster.claimed.epoch
    cluster.claimed = None
    a_bridge(tmp_path, cluster, pace=FakePace(at_s=-5000.0)).cycle()
    assert cluster.claimed.epoch == before + 1


@pytest.mark.parametrize(
    "damage",
    [('"epoch": 9', '"epoch": "9"'), ('"epoch": 9', '"epoch": null'), ('"epoch": 9', '"term": 9000000000'), ("}", "")],
)
def test_damaged_leadership_file_does_not_affect_the_epoch(tmp_path, damage):
    cluster = FakeCluster()
    status = json.dumps(asdict(LeadershipStatus("a", True, 0.0, "", None, 6.0, 9)))
    (tmp_path / "leadership").write_text(status.replace(*damage))
    a_bridge(tmp_path, cluster).cycle()
    assert cluster.claimed.epoch == 10**9


def test_keeps_lease_over_restart_that_keeps_jobs(tmp_path):
    cluster = FakeCluster()
    bridge = a_bridge(tmp_path, cluster, on_stop="keep", cycles=1)
    bridge.stop()
    assert cluster.claimed is not None
    assert a_bridge(tmp_path, cluster).cycle().role.mode == "control"
