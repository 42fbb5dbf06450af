"""The loop with a cluster that fails in every way that the ports permit."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import EndedJob
from cpsched_bridge.cycle import bridge_loop, cycle_command_sender
from cpsched_bridge.cycle.leader_election import JOBS_RELEASED
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import Hold, Outcome, UnmanagedJob
from cpsched_bridge.store.ledger import LedgerState, make_transition
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.bridges import a_bridge, event_kinds, settle
from tests.builders import a_cluster, a_job
from tests.fakes import FakeCluster, FakePace, FirstFit
from tests.stores import no_room


def state(bridge, job_id=1):
    entry = bridge.ledger.get(job_id)
    return entry.state if entry else None


def test_starts_held_job_on_planned_nodes(bridge_at):
    cluster = FakeCluster.of(a_job(1, units=2, per_unit=3))
    bridge = bridge_at(cluster)
    first = bridge.cycle()
    assert (first.result, cluster.commands) == ("ok", [("start", (1,))])
    assert state(bridge) is LedgerState.STARTING
    bridge.pace.at_s += 0.5
    second = bridge.cycle()
    assert cluster.jobs[1].placement == ((0, 1), (1, 1))
    assert (bridge.ledger.get(1).why, second.latencies_s) == ("started on the planned nodes", [0.5])


def test_shadow_mode_decides_and_records_without_commands(bridge_at):
    cluster = FakeCluster.of(a_job(1), a_job(2))
    cluster.submit(a_job(3), hold=Hold.NONE)
    bridge = bridge_at(cluster, mode="shadow")
    for report in settle(bridge, cluster, 20):
        assert sorted(report.decided.starts) == [1, 2, 3]
    assert (cluster.commands, list(bridge.ledger.list_entries())) == ([], [])
    assert len(list(bridge.journal.iterate_round_numbers())) == 20
    assert bridge.stop() == []
    assert cluster.commands == []


def test_holds_ineligible_jobs_without_start(bridge_at):
    cluster = FakeCluster.of(a_job(1, ineligible="waits for job 9"))
    bridge = bridge_at(cluster, cycles=4)
    assert state(bridge) is LedgerState.HELD
    assert [(a.kind, a.reason) for a in bridge.journal.list_unscheduled_jobs()] == [("ineligible", "waits for job 9")]


def test_refused_start_is_retried(bridge_at):
    """The job is cancelled between decision and start, another one is not."""
    cluster = FakeCluster.of(a_job(1), a_job(2))
    cluster.before("start", lambda: cluster.cancel(1))
    bridge = bridge_at(cluster)
    reports = settle(bridge, cluster)
    assert (event_kinds(reports[0]), event_kinds(reports[1])) == (["start_refused"], [])
    assert state(bridge, 1) is LedgerState.GONE
    assert cluster.jobs[2].running


def test_timed_out_start_with_effect_is_not_repeated(bridge_at):
    cluster = FakeCluster.of(a_job(1))
    cluster.lose_answer("start")
    bridge = bridge_at(cluster)
    first, second, *_ = settle(bridge, cluster)
    assert first.result == "backend_timeout"
    assert ([outcome.result for _, outcome in first.outcomes], second.result) == (["unknown"], "ok")
    assert (state(bridge), cluster.jobs[1].starts) == (LedgerState.RUNNING, 1)


def test_start_on_drained_node_is_rolled_back_and_moved(bridge_at):
    cluster = FakeCluster.of(a_job(1))
    cluster.before("start", lambda: cluster.drained.add(0))
    bridge = bridge_at(cluster, start={"timeout_s": 2})
    reports = settle(bridge, cluster, 6)
    assert "start_failed" in [kind for report in reports for kind in event_kinds(report)]
    assert (cluster.jobs[1].placement, cluster.jobs[1].pin) == (((1, 1),), (("n1", 1),))


def test_slow_cycle_does_not_count_as_failed_start(bridge_at):
    """The bridge takes 28 s to decide and to send; then Slurm has 3 s to start the job, which its node refuses."""
    cluster = FakeCluster.of(a_job(1))
    bridge = bridge_at(cluster, start={"timeout_s": 3})

    def pass_time():
        bridge.pace.at_s += 28
        cluster.now_s += 28
        cluster.drained.add(0)

    cluster.before("start", pass_time)
    reports = settle(bridge, cluster, 5)
    assert ["start_failed" in event_kinds(report) for report in reports] == [False] * 4 + [True]


def test_nodes_of_starting_job_are_not_reused(bridge_at):
    cluster = FakeCluster.of(a_job(1, per_unit=4), cluster=a_cluster(nodes=1, cores=4), lazy=True)
    bridge = bridge_at(cluster, cycles=1)
    cluster.jobs[1].hold = Hold.NONE
    cluster.schedule = lambda: None  # a slow launch
    cluster.submit(a_job(2, per_unit=4))
    report = bridge.cycle()
    assert (report.starting, report.decided.starts) == (1, {})
    assert [job.id for job in report.decided.waiting] == [2]


@pytest.mark.parametrize("hold", [Hold.USER, Hold.ADMIN])
@pytest.mark.parametrize("mode", ["control", "paused"])
def test_job_held_after_start_loses_pin_and_stays_held(bridge_at, hold, mode):
    """What leaves the configuration later is no node of that job's."""
    cluster = FakeCluster.of(a_job(1), lazy=True)
    bridge = bridge_at(cluster, cycles=1)
    assert cluster.jobs[1].pin
    cluster.jobs[1].hold = hold
    if mode == "paused":
        bridge.pause.pause("for a while")
    bridge.cycle()
    assert (cluster.jobs[1].hold, cluster.jobs[1].pin) == (hold, ())
    settle(bridge, cluster, 3)
    assert [kind for kind, _ in cluster.commands] == ["start", "unpin"]
    assert not bridge.ledger.list_pinned_job_ids()


def test_releases_held_job_that_cannot_be_modelled(bridge_at):
    cluster = FakeCluster.of(a_job(1))
    cluster.unmanaged.append(UnmanagedJob(1, "heterogeneous job", held_for_bridge=True))
    bridge = bridge_at(cluster, cycles=4)
    assert cluster.commands == [("release", (1,))]
    assert [(a.job_id, a.reason) for a in bridge.journal.list_unscheduled_jobs("unmanaged")] == [
        (1, "heterogeneous job")
    ]


CORES = st.lists(st.integers(1, 4), max_size=4)


@scaled_example_settings(20)
@given(st.lists(st.tuples(CORES, CORES, st.booleans()), min_size=1, max_size=4))
@example([([1], [1], True), ([], [], True)])
def test_unmanaged_job_takes_no_nodes_of_starts(cycles):
    """The cluster starts what is released, the oldest first. Without an answer to starts a job waits for one cycle."""
    cluster = FakeCluster(cluster=a_cluster(nodes=2), own_scheduler=True)
    numbers, answered, left = count(1), True, []
    with TemporaryDirectory() as folder:
        bridge = a_bridge(Path(folder), cluster)
        for left_cores, held_cores, fails in cycles:
            new = [a_job(next(numbers), per_unit=cores) for cores in left_cores]
            cluster.submit(*new, *(a_job(next(numbers), per_unit=cores) for cores in held_cores))
            cluster.unmanaged += [UnmanagedJob(job.id, "heterogeneous job", held_for_bridge=True) for job in new]
            cluster.faults.clear()
            if fails:
                cluster.fail("start", BackendUnavailable("gone"))
            (report,) = settle(bridge, cluster, 1)
            answered = answered and report.result == "ok"
            left += [job.id for job in new] if report.result == "ok" else []
            assert [id for id in left if cluster.jobs[id].hold is not Hold.NONE] == []
            assert not answered or all(cluster.jobs[id].running for id in report.decided.starts)
            left += [job.id for job in new]


def test_failed_cycles_back_off_exponentially_until_success(bridge_at):
    cluster = FakeCluster()
    cluster.fail("observe", BackendUnavailable("connection refused"), times=5)
    cluster.submit(a_job(1))
    pace = FakePace(cycles=14)
    bridge = bridge_at(cluster, pace=pace, cycle={"max_backoff_s": 20.0, "interval_s": 1.0}, on_stop="keep")
    bridge.run()
    failing = [2.0, 4.0, 5.0, 3.0, 5.0, 5.0, 5.0, 1.0, 5.0, 5.0, 5.0, 5.0]
    assert pace.waited == [*failing, 1.0, 1.0], "slices of 5 s of 2, 4, 8, 16, 20 s; then the interval again"
    settle(bridge, cluster, 2)
    assert cluster.jobs[1].running


def test_pause_releases_all_jobs_and_resume_holds_them(bridge_at):
    cluster = FakeCluster.of(a_job(1), a_job(2), a_job(3), cluster=a_cluster(nodes=1, cores=1))
    bridge = bridge_at(cluster, cycles=2)
    bridge.pause.pause("maintenance")
    cluster.submit(a_job(4))
    reports = settle(bridge, cluster, 3)
    assert {report.role.mode for report in reports} == {"paused"}
    assert {id: fake.hold for id, fake in cluster.jobs.items() if fake.pending} == dict.fromkeys((2, 3, 4), Hold.NONE)
    bridge.pause.resume()
    settle(bridge, cluster, 2)
    assert {fake.hold for fake in cluster.jobs.values() if fake.pending} == {Hold.ADMIN}


def test_failed_starts_of_all_users_pause_bridge(bridge_at):
    cluster = FakeCluster(cluster=a_cluster(nodes=4, cores=16))
    cluster.submit(*(a_job(i, walltime_s=100 + i, user=f"u{i % 5}") for i in range(1, 21)), stubborn="bounced")
    bridge = bridge_at(cluster)
    reports = settle(bridge, cluster, 6)
    assert reports[-1].role.mode == "paused"
    assert {fake.hold for fake in cluster.jobs.values()} == {Hold.NONE}


def test_predictor_learns_each_ended_job_once(bridge_at):
    cluster = FakeCluster.of(a_job(1), past=[EndedJob(a_job(9), 0, 5)])
    bridge = bridge_at(cluster)
    learned = []
    bridge.policy.dispatcher.learn = learned.append
    settle(bridge, cluster, 2)
    cluster.end(1)
    cluster.tell_again()
    settle(bridge, cluster, 1)
    cluster.tell_again()
    settle(bridge, cluster, 1)
    assert [ended.job.id for ended in learned] == [9, 1]


def test_restart_reconciles_within_one_cycle(bridge_at):
    """Killed with jobs in every state: the next bridge knows after its first cycle."""
    cluster = FakeCluster.of(*(a_job(i) for i in range(1, 6)), cluster=a_cluster(nodes=1, cores=2))
    settle(bridge_at(cluster), cluster, 2)
    cluster.end(1)
    cluster.cancel(5)
    second = bridge_at(cluster, cycles=1)
    assert [state(second, id) for id in (1, 2, 5)] == [LedgerState.ENDED, LedgerState.RUNNING, LedgerState.GONE]
    assert cluster.jobs[3].running
    assert all(fake.starts <= 1 for fake in cluster.jobs.values())


def test_reads_failed_history_later_and_learns_ends_once(bridge_at):
    """Each end is taught once, and none of them counts as an end seen now."""
    cluster = FakeCluster(past=[EndedJob(a_job(8), 0, 5)])
    bridge = bridge_at(cluster)
    cluster.history_missing, learned = True, []
    bridge.policy.dispatcher.learn = lambda ended: learned.append(ended.job.id)
    bridge.cycle()
    cluster.past = [EndedJob(a_job(8), 0, 5), EndedJob(a_job(9), 0, 6)]
    for now_s, ids in ((1, [8]), (59, [8]), (60, [8, 9])):
        cluster.now_s = now_s
        assert (bridge.cycle().changes.ended, learned) == ([], ids)
    cluster.history_missing, cluster.past = False, [EndedJob(a_job(10), 0, 7)]
    cluster.now_s = 900
    bridge.cycle()
    assert learned == [8, 9], "complete records are not requested again"


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("stops", [True, False])
def test_removes_pins_unknown_to_ledger(bridge_at, adopt, stops):
    cluster = FakeCluster.of(a_job(1), hold=Hold.NONE, lazy=True)
    cluster.jobs[1].pin = (("n0", 1),)
    cluster.drained = {0, 1, 2, 3}
    bridge = bridge_at(cluster, start={"adopt": adopt}, cycles=0 if stops else 4)
    assert not stops or bridge.stop() == []
    assert cluster.jobs[1].pin == ()
    assert stops or state(bridge) is (LedgerState.HELD if adopt else LedgerState.FREE)


def test_stop_with_readonly_ledger_keeps_admin_hold(bridge_at, monkeypatch):
    cluster = FakeCluster.of(a_job(1), a_job(2), lazy=True)
    bridge = bridge_at(cluster, cycles=1)
    cluster.jobs[1].hold = Hold.ADMIN
    cluster.drained = {0, 1, 2, 3}

    no_room(monkeypatch)
    bridge.stop()
    assert [fake.hold for fake in cluster.jobs.values()] == [Hold.ADMIN, Hold.NONE]
    assert cluster.jobs[2].pin == (), "the other one is released"


def test_prunes_long_ended_jobs_periodically(bridge_at, monkeypatch):
    monkeypatch.setattr(cycle_command_sender, "PRUNE_EVERY_CYCLES", 3)
    cluster = FakeCluster.of(a_job(1), a_job(2))
    bridge = bridge_at(cluster, journal={"keep_jobs_days": 2})
    bridge.cycle()
    cluster.end(1)
    bridge.cycle()
    cluster.now_s = 2 * 86400 + 1
    known = []
    for _ in range(4):
        bridge.cycle()
        known.append(sorted(bridge.ledger.by_id))
        cluster.now_s += 1
    assert known == [[2], [2], [2], [2]], "in round 3, for the first is over for more than two days and the second runs"
    assert bridge.ledger.read_transitions(1) == []


def test_reports_policy_notes_of_reading(bridge_at):
    told = [
        (h.kind, h.detail)
        for h in bridge_at(FakeCluster(notes=["sacctmgr refused", "sshare silent"])).cycle().bridge_events
        if h.kind != "mode"
    ]
    assert told == [("site_policy", "sacctmgr refused"), ("site_policy", "sshare silent")]


def test_notifies_systemd_of_readiness_mode_and_stop(bridge_at):
    told = Mock()
    bridge_at(FakeCluster(), systemd=told).run()
    messages = [call.args for call in told.notify.call_args_list]
    stops = ("STOPPING=1", "WATCHDOG=1", f"EXTEND_TIMEOUT_USEC={int(1e6 * bridge_loop.STOP_TIMEOUT_S)}")
    assert messages[:2] == [("READY=1", "STATUS=control"), ("STATUS=control",)]
    assert set(messages[2:]) == {("WATCHDOG=1",), stops}


class Watching(Dispatcher):
    """Notes what had been sent, and which jobs could be started, when it was asked."""

    def __init__(self, cluster):
        self.cluster, self.asked = cluster, []

    def decide(self, snapshot, target="plan"):
        queue = [snapshot.table.jobs[slot].id for slot in snapshot.queue.tolist()]
        self.asked.append((list(self.cluster.commands), queue))
        return FirstFit().decide(snapshot, target)


def requeued(bridge_at, cluster, dispatcher=None, **settings):
    """A bridge whose one job runs on n0 until it is requeued, with the old pin on it."""
    cluster.submit(a_job(1))
    bridge = bridge_at(cluster, dispatcher=dispatcher, **settings, cycles=2)
    cluster.drained.add(0)
    cluster.requeue(1)
    cluster.commands.clear()
    return bridge


@pytest.mark.parametrize("hold", [Hold.NONE, Hold.PLUGIN])
def test_removes_old_pin_before_deciding_job(bridge_at, hold):
    """A held job could be started at once, but the decision would use a reading with the old node list."""
    cluster = FakeCluster()
    dispatcher = Watching(cluster)
    bridge = requeued(bridge_at, cluster, dispatcher)
    cluster.jobs[1].hold = hold
    dispatcher.asked.clear()
    settle(bridge, cluster, 2)
    assert dispatcher.asked == [([("hold", (1,))], []), ([("hold", (1,))], [1])]
    assert cluster.jobs[1].placement == ((1, 1),)


def test_failed_decision_leaves_no_pin(bridge_at):
    class Broken(Watching):
        def decide(self, snapshot, target="plan"):
            if self.cluster.drained:
                raise ValueError("no idea")
            return super().decide(snapshot, target)

    cluster = FakeCluster()
    bridge = requeued(bridge_at, cluster, Broken(cluster))
    assert settle(bridge, cluster, 1)[0].result == "decision_failed"
    assert (cluster.jobs[1].hold, cluster.jobs[1].pin) == (Hold.ADMIN, ())


def test_unpins_use_half_of_command_budget_and_are_sent_once(bridge_at):
    """What is due besides waits for the pins, and starts have their half."""
    cluster = FakeCluster.of(*(a_job(id) for id in range(1, 7)), cluster=a_cluster(nodes=6, cores=1))
    bridge = bridge_at(cluster, cycle={"max_commands": 4}, cycles=3)
    for id in range(1, 6):
        cluster.requeue(id)
    cluster.drained.update(range(5))
    cluster.commands.clear()
    settle(bridge, cluster, 1)
    assert cluster.commands == [("hold", (1, 2)), ("hold", (3, 4))]
    settle(bridge, cluster, 1)
    assert cluster.commands[2:] == [("hold", (5,))]


def test_tries_uncleared_pin_once_per_cycle(bridge_at):
    cluster = FakeCluster()
    bridge = requeued(bridge_at, cluster)
    cluster.collect_output("hold", [Outcome(1, "unknown", "held, but its pin is not cleared")])
    settle(bridge, cluster, 1)
    assert cluster.commands == [("hold", (1,))]


def test_reports_transport_once_and_after_change(bridge_at):
    cluster = FakeCluster()
    bridge, told = bridge_at(cluster, cycles=1), []
    for name in ("cli", "cli", "pyslurm", "pyslurm", "cli"):
        cluster.transport_info = f"{name}: as configured"
        told.append([h.detail for h in bridge.cycle().bridge_events if h.kind == "transport"])
    assert told == [["cli: as configured"], [], ["pyslurm: as configured"], [], ["cli: as configured"]]


def test_unanswered_release_of_start_is_rolled_back_and_retried(bridge_at):
    """The bridge died between pin and release, without a plugin that marks its holds."""
    cluster = FakeCluster.of(a_job(1), hold=Hold.ADMIN, starts_in_one_change=False)
    bridge = bridge_at(cluster)
    bridge.ledger.record([make_transition(None, LedgerState.HELD, 0, "held", job_id=1)], 0)

    def dies(_):
        cluster.jobs[1].pin = (("n0", 1),)
        raise BackendTimeout("died")

    cluster.inject("start", dies)
    bridge.cycle()
    assert (cluster.jobs[1].hold, cluster.jobs[1].pin) == (Hold.ADMIN, (("n0", 1),))
    settle(bridge, cluster)
    assert cluster.jobs[1].running
    assert cluster.jobs[1].starts == 1


@pytest.mark.parametrize("word", [True, False])
def test_hold_after_unrecorded_release_is_administrators(bridge_at, monkeypatch, word):
    """Without the submit plugin it looks like the bridge's own: only the word on the cluster distinguishes them."""
    cluster = FakeCluster.of(a_job(1), hold=Hold.NONE, drained={0, 1, 2, 3})
    bridge = bridge_at(cluster, cycles=4)
    assert (cluster.jobs[1].hold, state(bridge)) == (Hold.ADMIN, LedgerState.HELD)
    with monkeypatch.context() as patched:
        no_room(patched)
        assert [problem.split(":")[0] for problem in bridge.stop()][:1] == ["the ledger cannot be written"]
    assert (cluster.jobs[1].hold, cluster.claimed.run) == (Hold.NONE, JOBS_RELEASED)
    if not word:
        cluster.claimed = None
    cluster.jobs[1].hold, cluster.drained = Hold.ADMIN, set()
    after = bridge_at(cluster, cycles=4)
    assert (cluster.jobs[1].hold is Hold.ADMIN) == word
    assert (1 in [id for kind, ids in cluster.commands if kind == "start" for id in ids]) != word
    assert cluster.claimed.run != JOBS_RELEASED
    if word:
        cluster.claimed = replace(cluster.claimed, run=JOBS_RELEASED)
        assert "released" not in event_kinds(after.cycle()), "the word is of now, not of an earlier process"
        cluster.jobs[1].hold = Hold.NONE
        settle(after, cluster)
        assert state(after) is LedgerState.RUNNING, "it is taken up again when the administrator lets go"


@pytest.mark.parametrize("requeued_later", [False, True])
def test_job_that_ran_during_unrecorded_release_is_unpinned(bridge_at, monkeypatch, requeued_later):
    """A stop releases no running job, so its node list stays when it is requeued and held."""
    cluster = FakeCluster.of(a_job(1), lazy=True)
    bridge = bridge_at(cluster, cycles=1)
    assert state(bridge) is LedgerState.STARTING
    cluster.schedule()
    with monkeypatch.context() as patched:
        no_room(patched)
        bridge.stop()
    if requeued_later:
        after = bridge_at(cluster, cycles=4)
        cluster.requeue(1, Hold.ADMIN)
    else:
        cluster.requeue(1, Hold.ADMIN)
        after = bridge_at(cluster)
    assert cluster.jobs[1].pin == (("n0", 1),)
    settle(after, cluster)
    assert (cluster.jobs[1].hold, cluster.jobs[1].pin, after.ledger.get(1).pinned) == (Hold.ADMIN, (), False)


def test_release_mark_stays_until_ledger_has_recorded_it(bridge_at, monkeypatch):
    """A disk that is still read-only keeps the word where it is."""
    cluster = FakeCluster.of(a_job(1), hold=Hold.NONE, drained={0, 1, 2, 3})
    bridge = bridge_at(cluster, cycles=4)
    with monkeypatch.context() as patched:
        no_room(patched)
        bridge.stop()
        after = bridge_at(cluster, cycles=1)
        assert cluster.claimed.run == JOBS_RELEASED
    settle(after, cluster)
    assert (cluster.jobs[1].hold, state(after)) == (Hold.ADMIN, LedgerState.HELD), "it had no hold: adopted again"
