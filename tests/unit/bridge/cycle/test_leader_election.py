"""Two bridges on one cluster: the first stays in control, and the other is on standby, reports this, and takes over
later.
"""

import json
from dataclasses import asdict, replace

import pytest

from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.leader_election import (
    JOBS_RELEASED,
    LINK_LOST_S,
    RELEASED,
    RENEWALS_PER_LEASE,
    SHORT_LEASE_S,
    LeaderElection,
)
from cpsched_bridge.cycle.peer_link import PeerMessage
from cpsched_bridge.cycle.reconcile import ReconcileOptions, reconcile
from cpsched_bridge.errors import BackendTimeout, CommandRefused
from cpsched_bridge.ports import FENCED_EPOCH, Hold, Lease, PendingJob, UnmanagedJob
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
from cpsched_bridge.store.lock_and_request_files import LeadershipStatus
from tests.bridges import Metrics, a_bridge
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

    @property
    def in_control(self) -> bool:
        return self.cluster.claimed is not None and self.cluster.claimed.owner == self.leader_election.mine.owner


def test_acquires_free_lease_at_first_check():
    bridge = Looking()
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=1)
    assert bridge.told == []


def test_renews_lease_six_times_per_lease_duration():
    bridge = Looking()
    bridge.for_seconds(1 + GONE_S)
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


def test_takes_over_unchanged_lease_after_expiry_only():
    bridge = Looking(OTHER)
    assert bridge.for_seconds(GONE_S) == {OTHER}
    assert bridge.look() is None
    assert bridge.in_control
    assert bridge.told == ["other_bridge", "other_bridge_gone"]


def test_clock_difference_of_hosts_does_not_matter():
    """A count is written, no time: the same happens with monotonic clocks that began years apart."""
    bridge = Looking(OTHER)
    bridge.now_s = 1e9
    assert bridge.for_seconds(GONE_S) == {OTHER}
    assert bridge.look() is None


def test_deleted_lease_still_belongs_to_owner():
    """After a killed controller forgets it, or an administrator deletes it, the owner writes it again."""
    bridge = Looking(OTHER)
    bridge.look()
    bridge.cluster.claimed = None
    assert bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE - 1) == {OTHER}
    bridge.cluster.claimed = replace(OTHER, beat=5)
    assert bridge.look() is not None
    assert not bridge.in_control


def test_takes_over_deleted_lease_that_its_owner_does_not_write_again():
    bridge = Looking(replace(OTHER, epoch=30))
    bridge.look()
    bridge.cluster.claimed = None
    assert None not in bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE - 1)
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=1, epoch=31)


@pytest.mark.parametrize("run", [RELEASED, JOBS_RELEASED])
def test_takes_over_at_once_after_orderly_stop_of_other_bridge(run):
    bridge = Looking(OTHER)
    bridge.look()
    bridge.cluster.claimed = replace(OTHER, run=run, beat=5, epoch=30)
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=1, epoch=31)


def test_each_takeover_increases_the_epoch_that_changes_carry():
    bridge = Looking(replace(OTHER, epoch=30))
    bridge.for_seconds(GONE_S)
    assert bridge.cluster.epoch == FENCED_EPOCH
    bridge.look()
    assert bridge.cluster.claimed.epoch == bridge.cluster.epoch == 31
    bridge.cluster.claimed = replace(OTHER, beat=9, epoch=32)
    bridge.look()
    assert bridge.cluster.epoch == FENCED_EPOCH


def test_paused_bridge_releases_jobs_with_its_last_epoch_until_another_leads():
    bridge = Looking(replace(OTHER, run=RELEASED, epoch=30))
    bridge.look()
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
    bridge = Linked()
    bridge.look()
    assert bridge.cluster.claimed == replace(MINE, beat=1)
    bridge.look()
    assert bridge.cluster.claimed == replace(MINE, beat=2, standby="bbbb")
    bridge.for_seconds(GONE_S - 1)
    assert bridge.cluster.claimed == replace(MINE, beat=1 + RENEWALS_PER_LEASE, standby="bbbb")


def test_leader_names_no_standby_that_cannot_lead():
    """Otherwise, an orderly stop would leave jobs to it."""
    bridge = Linked()
    bridge.for_seconds(2)
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
    bridge = Linked()
    bridge.for_seconds(2)
    bridge.cut = True
    for seconds in range(1, int(SHORT_LEASE_S)):
        bridge.leader_election.keep_link(bridge.now_s + seconds)
        assert (bridge.cluster.claimed.standby == "bbbb") == (seconds < LINK_LOST_S)
        assert not bridge.leader_election.is_lease_expired(bridge.now_s + seconds)
    assert not bridge.leader_election.is_lease_expired(bridge.now_s + GONE_S)
    assert bridge.leader_election.is_lease_expired(bridge.now_s + 3 + GONE_S)


def test_answer_renews_no_lease_that_expired_while_leader_was_suspended():
    bridge = Linked()
    bridge.for_seconds(2)
    bridge.cluster.claimed = OTHER
    bridge.leader_election.keep_link(bridge.now_s + SHORT_LEASE_S)
    assert bridge.leader_election.is_lease_expired(bridge.now_s + SHORT_LEASE_S)


def test_leader_whose_long_lease_cannot_be_written_sends_nothing():
    bridge = Linked()
    bridge.for_seconds(2)
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
    standby = Looking(replace(MINE, beat=1, standby=OTHER.bridge), mine=OTHER)
    standby.for_seconds(5)
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


def test_standby_waits_for_long_lease_if_the_leader_does_not_name_it():
    bridge = Looking(replace(OTHER, standby="cccc"))
    assert bridge.for_seconds(GONE_S) == {replace(OTHER, standby="cccc")}
    assert bridge.look() is None


def test_hung_cycle_sends_no_messages():
    bridge = Linked()
    bridge.look()
    sent = []
    bridge.leader_election.link.send = sent.append
    bridge.leader_election.keep_link(bridge.now_s + GONE_S - 1)
    bridge.leader_election.keep_link(bridge.now_s + GONE_S)
    assert sent == [PeerMessage(*MINE.owner, MINE.where, True)]
    assert bridge.leader_election.link.receive(PeerMessage("bbbb", "7"), 0.0) == PeerMessage()


def test_hung_cycle_does_not_renew_its_lease():
    """Otherwise, the other bridge would wait for the long lease once more."""
    bridge = Linked()
    bridge.for_seconds(2)
    before = bridge.cluster.claimed
    assert before.standby == "bbbb"
    for seconds in range(1, 2 * int(GONE_S)):
        bridge.leader_election.keep_link(bridge.now_s + seconds)
    assert bridge.cluster.claimed == before


def test_restarted_bridge_reacquires_own_lease_at_once():
    bridge = Looking(replace(MINE, run="0", beat=30))
    assert bridge.look() is None
    assert bridge.in_control
    assert bridge.told == []


def test_only_lease_owner_of_two_clones_continues():
    """As where a whole machine was cloned."""
    bridge, clone = Looking(), replace(MINE, run="2", beat=1)
    bridge.look()
    bridge.cluster.claimed = clone
    assert bridge.look() == clone
    assert bridge.for_seconds(GONE_S - 1) == {clone}
    assert not bridge.in_control


def test_yields_after_losing_lease():
    bridge = Looking()
    bridge.look()
    bridge.cluster.claimed = OTHER
    assert bridge.look(1000.0) == OTHER
    assert not bridge.in_control


def test_owner_rewrites_lost_lease_at_once():
    bridge = Looking()
    bridge.look()
    bridge.cluster.claimed = None
    assert bridge.look() is None
    assert bridge.in_control


def test_takeover_request_survives_concurrent_renewal():
    """As where a reading takes nearly as long as the time between two beats."""
    bridge = Looking(OTHER)
    bridge.look()
    bridge.asked = True
    bridge.cluster.before("claim", lambda: setattr(bridge.cluster, "claimed", replace(OTHER, beat=5)))
    assert bridge.look() is not None
    bridge.asked = False
    assert bridge.look() is None
    assert bridge.in_control
    bridge.cluster.claimed = replace(OTHER, beat=6)
    assert bridge.look() is not None, "it was asked once, and has taken over once"


def test_takeover_request_replaces_living_bridge():
    bridge = Looking(OTHER)
    assert bridge.look() == OTHER
    bridge.asked = True
    assert bridge.look() is None
    assert bridge.in_control


def test_simultaneous_acquires_do_not_both_succeed():
    bridge = Looking()
    bridge.cluster.before("claim", lambda: setattr(bridge.cluster, "claimed", OTHER))
    assert bridge.look() is not None
    assert bridge.look() == OTHER
    assert not bridge.in_control


def test_unwanted_control_reports_owner_without_lease():
    bridge = Looking()
    assert bridge.look(wanted=False) is None
    assert bridge.cluster.claimed is None
    bridge.cluster.claimed = OTHER
    assert bridge.look(wanted=False) == OTHER
    assert bridge.told == ["other_bridge"]


def test_paused_bridge_releases_lease():
    bridge = Looking()
    bridge.look()
    bridge.look(wanted=False)
    assert bridge.cluster.claimed == replace(MINE, run=RELEASED, beat=2)
    found = bridge.leader_election.describe(bridge.now_s, 5000.0)
    assert found == LeadershipStatus("", False, 5000.0, "", None, GONE_S, 0)


def test_observation_from_before_a_renewal_is_not_the_last_lease():
    bridge = Looking()
    bridge.look()
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
    assert bridge.told == ["lease_unwritable"]
    assert len(bridge.cluster.faults["claim"]) == 99 - 3
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


# what a bridge that steps back does with jobs ---------------------------------------------------------------------


def one_left_to(hold: Hold, state: LedgerState | None, pinned: bool = False) -> tuple[LedgerState, str] | None:
    """What becomes of a pending job in a ledger beside another bridge; None: nothing."""
    known = {} if state is None else {7: ManagedJobEntry(7, state, 0, pinned)}
    seen = FakeCluster().observe()
    seen = replace(seen, pending=(PendingJob(a_job(7), hold, pinned),))
    found = reconcile(known, frozenset(known), seen, ReconcileOptions(controlling=False, other_in_control=True))
    return (found[0].entry.state, found[0].entry.why) if found else None


LEFT = (LedgerState.FREE, "left to the bridge that is in control")


def test_leaves_plugin_holds_to_other_bridge():
    assert one_left_to(Hold.PLUGIN, None) is None
    assert one_left_to(Hold.PLUGIN, LedgerState.HELD) == LEFT
    assert one_left_to(Hold.PLUGIN, LedgerState.ROLLING_BACK, pinned=True) == LEFT
    assert one_left_to(Hold.PLUGIN, LedgerState.FREE) is None


def test_releases_hold_known_only_to_own_ledger():
    assert one_left_to(Hold.ADMIN, LedgerState.HELD) == (LedgerState.RELEASING, "not in control")
    assert one_left_to(Hold.ADMIN, None) is None


def test_leaves_released_job_to_other_bridge_unless_pinned():
    assert one_left_to(Hold.NONE, LedgerState.HELD) == LEFT
    assert one_left_to(Hold.NONE, None, pinned=True) is None
    assert one_left_to(Hold.NONE, LedgerState.STARTING, pinned=True) == (LedgerState.RELEASING, "not in control")


def test_leaves_owner_hold():
    assert one_left_to(Hold.USER, LedgerState.HELD) == (LedgerState.FREE, "held by its owner")


@pytest.mark.parametrize("state", [None, LedgerState.HELD, LedgerState.RELEASING])
def test_other_bridge_releases_unmodelled_plugin_hold(state):
    known = {} if state is None else {7: ManagedJobEntry(7, state, 0)}
    seen = replace(FakeCluster().observe(), unmanaged=(UnmanagedJob(7, "requests licenses", held_for_bridge=True),))
    found = reconcile(known, frozenset(known), seen, ReconcileOptions(controlling=False, other_in_control=True))
    assert [each.entry.state for each in found] == ([] if state is None else [LedgerState.FREE])


# two whole bridges -------------------------------------------------------------------------------------------------


def two(tmp_path, cluster):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    metrics = Metrics()
    pace = FakePace()
    first = a_bridge(tmp_path / "one", cluster, pace=pace)
    return first, a_bridge(tmp_path / "two", cluster, pace=pace, listeners=(metrics,)), pace, metrics


def test_stop_after_takeover_leaves_jobs_to_other_bridge(tmp_path):
    cluster = FakeCluster(cluster=a_cluster(nodes=1, cores=1))
    first, second, _, _ = two(tmp_path, cluster)
    cluster.submit(a_job(1, walltime_s=1000), a_job(2))
    first.cycle()
    (tmp_path / "two" / "take-over").touch()
    second.cycle()
    sent = list(cluster.commands)
    assert first.stop() == []
    assert cluster.commands == sent
    assert cluster.jobs[2].hold is Hold.PLUGIN


def test_bridge_stalled_during_cycle_sends_no_old_decision(tmp_path):
    cluster = FakeCluster()
    first, _, pace, _ = two(tmp_path, cluster)
    first.cycle()
    cluster.submit(a_job(1))

    class Slow(type(first.policy.dispatcher)):
        def decide(self, snapshot, need="plan"):
            pace.at_s += GONE_S
            return super().decide(snapshot, need)

    first.policy.dispatcher = Slow()
    assert first.cycle().result == "outdated"
    assert cluster.commands == []


def test_bridge_stalled_during_hold_sends_no_start(tmp_path, monkeypatch):
    cluster = FakeCluster(cluster=a_cluster(nodes=1, cores=1))
    first, _, pace, _ = two(tmp_path, cluster)
    first.cycle()
    cluster.submit(a_job(1))
    cluster.submit(a_job(2), hold=Hold.NONE)
    hold = cluster.hold

    def hold_slowly(orders):
        pace.at_s += GONE_S
        return hold(orders)

    monkeypatch.setattr(cluster, "hold", hold_slowly)
    assert first.cycle().result == "outdated"
    assert cluster.commands == [("hold", (2,))]


def test_pause_that_ends_while_lease_is_released_sends_no_start(tmp_path, monkeypatch):
    cluster = FakeCluster()
    bridge = a_bridge(tmp_path, cluster)
    bridge.cycle()
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


@pytest.mark.parametrize("damage", [('"epoch": 9', '"epoch": "9"'), ('"epoch": 9', '"epoch": null'), ("}", "")])
def test_damaged_leadership_file_does_not_affect_the_epoch(tmp_path, damage):
    cluster = FakeCluster()
    status = json.dumps(asdict(LeadershipStatus("a", True, 0.0, "", None, 6.0, 9)))
    (tmp_path / "leadership").write_text(status.replace(*damage))
    a_bridge(tmp_path, cluster).cycle()
    assert cluster.claimed.epoch == 10**9


def test_keeps_lease_over_restart_that_keeps_jobs(tmp_path):
    cluster = FakeCluster()
    bridge = a_bridge(tmp_path, cluster, on_stop="keep")
    bridge.cycle()
    bridge.stop()
    assert cluster.claimed is not None
    assert a_bridge(tmp_path, cluster).cycle().role.mode == "control"
