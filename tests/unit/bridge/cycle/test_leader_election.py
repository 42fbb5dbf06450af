"""Two bridges beside one cluster: the first stays in control, the other steps back, says so, and takes over later."""

from dataclasses import replace

import pytest

from cpsched_bridge.cycle.leader_election import RENEWALS_PER_LEASE, LeaderElection
from cpsched_bridge.cycle.reconcile import ReconcileOptions, reconcile
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import BackendTimeout, CommandRefused
from cpsched_bridge.ports import Hold, Lease, PendingJob, UnmanagedJob
from cpsched_bridge.store.ledger import LedgerState, ManagedJobEntry
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
        self.claims = LeaderElection(self.cluster, mine, GONE_S, lambda: self.asked)
        self.now_s = 1000.0
        self.told: list[str] = []

    def look(self, after_s: float = 1.0, wanted: bool = True) -> Lease | None:
        """The rival after another look, this many seconds later."""
        self.now_s += after_s
        report = CycleReport(1, "control", 0.0)
        self.claims.observe_lease(self.cluster.claimed, wanted, self.now_s, report)
        self.told += [happening.kind for happening in report.happenings]
        assert report.rival == self.claims.other_leader
        return self.claims.other_leader

    def for_seconds(self, seconds: float) -> set[Lease | None]:
        """The rivals of several looks."""
        return {self.look() for _ in range(int(seconds))}

    @property
    def in_control(self) -> bool:
        return self.cluster.claimed is not None and self.cluster.claimed.owner == self.claims.mine.owner


def test_a_cluster_without_a_claim_is_claimed_with_the_first_look():
    bridge = Looking()
    assert bridge.look() is None
    assert bridge.cluster.claimed == replace(MINE, beat=1)
    assert bridge.told == []


def test_the_claim_is_written_anew_six_times_before_it_would_count_as_gone_and_not_in_every_cycle():
    bridge = Looking()
    bridge.for_seconds(1 + GONE_S)
    assert bridge.cluster.claimed == replace(MINE, beat=1 + RENEWALS_PER_LEASE)


def test_a_bridge_that_finds_another_ones_claim_steps_back_and_says_so_once():
    bridge = Looking(OTHER)
    assert bridge.look() == OTHER
    assert bridge.claims.standby_reason() == "another bridge is in control of this cluster: two:/state"
    for beat in range(5, 100):
        bridge.cluster.claimed = replace(OTHER, beat=beat)
        assert bridge.look(GONE_S - 1) is not None
    assert bridge.told == ["other_bridge"]
    assert not bridge.in_control


def test_a_claim_that_does_not_change_is_taken_over_after_its_time_and_not_before():
    bridge = Looking(OTHER)
    assert bridge.for_seconds(GONE_S) == {OTHER}
    assert bridge.look() is None
    assert bridge.in_control
    assert bridge.told == ["other_bridge", "other_bridge_gone"]


def test_what_the_clocks_of_two_hosts_show_makes_no_difference():
    """A count is written, no time: the same happens with monotonic clocks that began years apart."""
    bridge = Looking(OTHER)
    bridge.now_s = 1e9
    assert bridge.for_seconds(GONE_S) == {OTHER}
    assert bridge.look() is None


def test_a_claim_that_vanishes_for_a_moment_is_still_its_owners():
    """After a killed controller forgets it, or an administrator deletes it, the owner writes it again."""
    bridge = Looking(OTHER)
    bridge.look()
    bridge.cluster.claimed = None
    assert bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE - 1) == {OTHER}
    bridge.cluster.claimed = replace(OTHER, beat=5)
    assert bridge.look() is not None
    assert not bridge.in_control


def test_after_an_orderly_stop_of_the_other_bridge_the_one_that_waits_takes_over_soon():
    bridge = Looking(OTHER)
    bridge.look()
    bridge.cluster.claimed = None
    bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE)
    assert bridge.in_control


def test_a_bridge_started_again_takes_the_claim_of_its_dead_predecessor_at_once():
    bridge = Looking(replace(MINE, run="0", beat=30))
    assert bridge.look() is None
    assert bridge.in_control
    assert bridge.told == []


def test_of_two_living_processes_with_one_name_the_one_whose_claim_stands_goes_on():
    """As where a whole machine was cloned."""
    bridge, clone = Looking(), replace(MINE, run="2", beat=1)
    bridge.look()
    bridge.cluster.claimed = clone
    assert bridge.look() == clone
    assert bridge.for_seconds(GONE_S - 1) == {clone}
    assert not bridge.in_control


def test_a_bridge_that_lost_its_claim_meanwhile_steps_back():
    bridge = Looking()
    bridge.look()
    bridge.cluster.claimed = OTHER
    assert bridge.look(1000.0) == OTHER
    assert not bridge.in_control


def test_the_owner_writes_a_lost_claim_anew_at_once():
    bridge = Looking()
    bridge.look()
    bridge.cluster.claimed = None
    assert bridge.look() is None
    assert bridge.in_control


def test_a_wish_to_take_over_is_not_forgotten_where_the_other_bridge_beats_between_reading_and_claim():
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


def test_whoever_is_asked_to_takes_over_from_a_living_bridge():
    bridge = Looking(OTHER)
    assert bridge.look() == OTHER
    bridge.asked = True
    assert bridge.look() is None
    assert bridge.in_control


def test_two_that_claim_at_the_same_moment_do_not_both_begin():
    bridge = Looking()
    bridge.cluster.before("claim", lambda: setattr(bridge.cluster, "claimed", OTHER))
    assert bridge.look() is not None
    assert bridge.look() == OTHER
    assert not bridge.in_control


def test_who_does_not_want_control_claims_nothing_and_tells_who_has_it():
    bridge = Looking()
    assert bridge.look(wanted=False) is None
    assert bridge.cluster.claimed is None
    bridge.cluster.claimed = OTHER
    assert bridge.look(wanted=False) == OTHER
    assert bridge.told == ["other_bridge"]


def test_a_bridge_that_is_paused_gives_its_claim_away():
    bridge = Looking()
    bridge.look()
    bridge.look(wanted=False)
    assert bridge.cluster.claimed is None


def refused(work):
    raise CommandRefused("no such privilege")


def test_a_cluster_that_takes_no_claim_is_controlled_without_one_and_that_is_told_once():
    """And tried again as often as a claim would be written."""
    bridge = Looking()
    bridge.cluster.inject("claim", refused, times=99)
    assert bridge.for_seconds(3 * GONE_S / RENEWALS_PER_LEASE) == {None}
    assert bridge.told == ["no_claim"]
    assert len(bridge.cluster.faults["claim"]) == 99 - 3
    bridge.cluster.faults.clear()
    bridge.for_seconds(GONE_S / RENEWALS_PER_LEASE)
    assert bridge.in_control


def test_a_claim_whose_answer_is_lost_is_found_by_the_next_look():
    bridge = Looking()
    bridge.cluster.lose_answer("claim")
    with pytest.raises(BackendTimeout):
        bridge.look()
    assert bridge.look() is None
    assert bridge.in_control


# what a bridge that steps back does with jobs ---------------------------------------------------------------------


def one_left_to(hold: Hold, state: LedgerState | None, pinned: bool = False) -> tuple[LedgerState, str] | None:
    """What becomes of a pending job in a ledger beside another bridge; None: nothing."""
    known = {} if state is None else {7: ManagedJobEntry(7, state, 0, pinned)}
    seen = FakeCluster().observe()
    seen = replace(seen, pending=(PendingJob(a_job(7), hold, pinned),))
    found = reconcile(known, frozenset(known), seen, ReconcileOptions(controlling=False, beside=True))
    return (found[0].entry.state, found[0].entry.why) if found else None


LEFT = (LedgerState.FREE, "left to another bridge, which is in control")


def test_what_the_submit_plugin_holds_is_the_other_bridges():
    assert one_left_to(Hold.PLUGIN, None) is None
    assert one_left_to(Hold.PLUGIN, LedgerState.HELD) == LEFT
    assert one_left_to(Hold.PLUGIN, LedgerState.ROLLING_BACK, pinned=True) == LEFT
    assert one_left_to(Hold.PLUGIN, LedgerState.FREE) is None


def test_a_hold_that_only_this_ledger_knows_is_given_back():
    assert one_left_to(Hold.ADMIN, LedgerState.HELD) == (LedgerState.HANDING_BACK, "not in control")
    assert one_left_to(Hold.ADMIN, None) is None


def test_a_job_that_was_released_meanwhile_is_the_other_bridges_unless_our_pin_is_on_it():
    assert one_left_to(Hold.NONE, LedgerState.HELD) == LEFT
    assert one_left_to(Hold.NONE, None, pinned=True) is None
    assert one_left_to(Hold.NONE, LedgerState.STARTING, pinned=True) == (LedgerState.HANDING_BACK, "not in control")


def test_an_owners_hold_is_left_to_its_owner():
    assert one_left_to(Hold.USER, LedgerState.HELD) == (LedgerState.FREE, "held by its owner")


@pytest.mark.parametrize("state", [None, LedgerState.HELD, LedgerState.HANDING_BACK])
def test_an_unmodelled_job_that_the_plugin_holds_is_given_back_by_the_other_bridge(state):
    known = {} if state is None else {7: ManagedJobEntry(7, state, 0)}
    seen = replace(FakeCluster().observe(), left=(UnmanagedJob(7, "asks for licenses", held_for_us=True),))
    found = reconcile(known, frozenset(known), seen, ReconcileOptions(controlling=False, beside=True))
    assert [each.entry.state for each in found] == ([] if state is None else [LedgerState.FREE])


# two whole bridges -------------------------------------------------------------------------------------------------


def two(tmp_path, cluster):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    metrics = Metrics()
    pace = FakePace()
    first = a_bridge(tmp_path / "one", cluster, pace=pace)
    return first, a_bridge(tmp_path / "two", cluster, pace=pace, listeners=(metrics,)), pace, metrics


def test_a_bridge_that_stops_right_after_another_took_over_leaves_the_jobs_to_that_one(tmp_path):
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


def test_a_bridge_that_stood_still_in_the_middle_of_a_cycle_sends_nothing_of_its_old_decision(tmp_path):
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


def test_a_bridge_in_shadow_mode_claims_nothing_and_tells_who_is_in_control(tmp_path):
    cluster = FakeCluster()
    shadow = a_bridge(tmp_path, cluster, mode="shadow")
    assert shadow.cycle().rival is None
    assert cluster.claimed is None
    cluster.claimed = OTHER
    report = shadow.cycle()
    assert (report.mode, report.rival) == ("shadow", OTHER)
    assert [h.detail for h in report.happenings if h.kind == "other_bridge"] == [
        "in control of this cluster: two:/state"
    ]


def test_a_bridge_that_is_to_keep_its_jobs_over_a_restart_keeps_its_claim(tmp_path):
    cluster = FakeCluster()
    bridge = a_bridge(tmp_path, cluster, on_stop="keep")
    bridge.cycle()
    bridge.stop()
    assert cluster.claimed is not None
    assert a_bridge(tmp_path, cluster).cycle().mode == "control"
