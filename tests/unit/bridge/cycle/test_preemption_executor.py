"""Preemptions by the bridge: victims of least work, one start for each, and a crash at any point."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from cpsched_bridge.cycle.backoff import BackoffQueue
from cpsched_bridge.cycle.preemption_executor import (
    HOUR_S,
    PAUSE_S,
    VICTIMS_END_S,
    find_victim_choice_pause_end_s,
)
from cpsched_bridge.errors import BackendTimeout
from cpsched_bridge.ports import Hold, Lease, Outcome, Victim
from cpsched_bridge.store.ledger import LedgerState, make_transition
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_tables import PreemptionLedger
from tests.bridges import Metrics, a_bridge, settle
from tests.builders import a_job
from tests.fakes import FakePace, FirstFit
from tests.preempting_cluster import PreemptingCluster
from tests.stores import change, rows

START_S = 10_000
TIMEOUT_S = VICTIMS_END_S + 15
CHOOSE = {"preemption": {"choose": True}}


@pytest.fixture
def site():
    """Four nodes with a job of QOS low on each: 94 started last. Job 1 of QOS high needs two nodes."""
    site = PreemptingCluster.of(now_s=START_S)
    for node in range(4):
        low = a_job(91 + node, 1, 4, qos="low", user="ada")
        site.submit(low, hold=Hold.NONE)
        site.run_now(low.id, ((node, 1),))
        site.jobs[low.id].start_s = 1000 * (node + 1)
    site.submit(a_high(1))
    return site


def a_high(id, nodes=2, user="eve"):
    return a_job(id, nodes, 4, distinct=True, qos="high", user=user)


def choosing(tmp_path, site, **settings):
    return a_bridge(tmp_path, site, **{**CHOOSE, **settings})


def die_at_preemption(tmp_path, site):
    site.fail("preempt", SystemExit())
    with pytest.raises(SystemExit):
        choosing(tmp_path, site).cycle()


class Slow(FirstFit):
    """Decides after some seconds of the clock."""

    def __init__(self, pace, seconds):
        self.pace, self.seconds = pace, seconds

    def decide(self, snapshot, need="plan"):
        self.pace.at_s += self.seconds
        return super().decide(snapshot, need)


def stopped(site):
    return sorted(id for ids in site.sent("preempt") for id in ids)


def states(tmp_path):
    book = PreemptionLedger(StateFile(tmp_path / "state.sqlite"))
    return [each.state for each in book.entries]


def raising(error):
    def fail(*_):
        raise error

    return fail


def events(report):
    return {each.kind for each in report.bridge_events}


@pytest.mark.parametrize("mode", ["requeue", "cancel"])
def test_victims_of_least_work_make_room_for_one_start(tmp_path, site, mode):
    site.mode, metrics = mode, Metrics()
    bridge = choosing(tmp_path, site, listeners=(metrics,), cycles=3)
    assert stopped(site) == [93, 94]
    assert site.jobs[1].running
    assert (site.jobs[1].placement, site.sent("release")) == (((2, 1), (3, 1)), [])
    assert states(tmp_path) == ["started"]
    assert metrics.value("cpsched_events_total", kind="preemption") == 1
    if mode == "requeue":
        assert {bridge.ledger.get(id).state for id in (93, 94)} == {LedgerState.HELD}
        site.end(1)
        settle(bridge, site, 2)
        assert site.jobs[93].running
        assert site.jobs[94].running


@pytest.mark.parametrize(
    ("settings", "hold"),
    [
        ({"preemption": {}}, Hold.PLUGIN),
        ({"mode": "shadow"}, Hold.PLUGIN),
        ({"mode": "advise"}, Hold.PLUGIN),
        (CHOOSE, Hold.NONE),
    ],
    ids=["without the setting", "shadow", "advise", "job is not held"],
)
def test_job_is_left_to_slurm(tmp_path, site, settings, hold):
    site.jobs[1].hold = hold
    choosing(tmp_path, site, **settings, cycles=3)
    assert (stopped(site), rows(tmp_path / "state.sqlite", "select * from preemptions")) == ([], [])
    assert site.jobs[1].hold is (Hold.PLUGIN if settings.get("mode") == "shadow" else Hold.NONE)


def test_nodes_are_kept_while_victims_end(tmp_path, site):
    """Jobs that fit on the first free node wait, even in front of the queue."""
    site.ending_s = 5
    bridge = choosing(tmp_path, site, cycles=2)
    site.submit(a_job(2, 1, 4, priority=99))
    settle(bridge, site, 3)
    assert site.sent("preempt") == [(93, 94)] or site.sent("preempt") == [(94, 93)]
    assert not site.jobs[1].running
    settle(bridge, site, 4)
    assert site.jobs[1].placement == ((2, 1), (3, 1))
    assert not site.jobs[2].running


def test_no_victim_is_stopped_if_the_intent_cannot_be_written(tmp_path, site, monkeypatch):
    bridge = choosing(tmp_path, site)
    monkeypatch.setattr(PreemptionLedger, "record_intended", raising(sqlite3.OperationalError("disk is full")))
    reports = settle(bridge, site, 2)
    assert stopped(site) == []
    assert "preemption_failed" in events(reports[-1])


def die_between_victims(site):
    def fault(work):
        site.stop_one(Victim(94, 4000, "requeue"))
        raise SystemExit

    site.inject("preempt", fault)


CRASHES = {
    "before the intent is written": lambda site: None,
    "between the intent and the first command": lambda site: site.fail("preempt", SystemExit()),
    "between two victims": die_between_victims,
    "after the victims were stopped, before the answer": lambda site: site.lose_answer("preempt", SystemExit()),
    "between the intent of the start and the start": lambda site: site.fail("start", SystemExit()),
    "after the start, before its answer": lambda site: site.lose_answer("start", SystemExit()),
    "after the start of a job that is slow to launch": lambda site: (
        setattr(site, "launch_s", 4), site.lose_answer("start", SystemExit()))[0],
    "while the job runs, before that is recorded": lambda site: site.inject(
        "start", lambda work: (work(), site.fail("observe", SystemExit()))[0]),
}  # fmt: skip


@pytest.mark.parametrize("ending_s", [0, 3])
@pytest.mark.parametrize("crash", CRASHES)
def test_restarted_bridge_completes_preemption(tmp_path, site, monkeypatch, crash, ending_s):
    site.ending_s = ending_s
    with monkeypatch.context() as patch:
        if crash == "before the intent is written":
            patch.setattr(PreemptionLedger, "record_intended", raising(SystemExit()))
        CRASHES[crash](site)
        with pytest.raises(SystemExit):
            settle(choosing(tmp_path, site), site, 8)
    settle(choosing(tmp_path, site), site, 14)
    assert site.jobs[1].running
    assert (site.jobs[1].starts, site.jobs[1].placement) == (1, ((2, 1), (3, 1)))
    assert {id for id, fake in site.jobs.items() if fake.running} == {1, 91, 92}
    assert states(tmp_path) == ["started"]


def test_restarted_bridge_stops_no_later_run_of_a_victim(tmp_path, site):
    """The victim ended and started again while no bridge was running."""
    die_at_preemption(tmp_path, site)
    site.jobs[94].start_s = START_S
    settle(choosing(tmp_path, site), site, 2)
    assert site.jobs[94].running


def test_job_cancelled_after_the_crash_costs_no_victim(tmp_path, site):
    die_at_preemption(tmp_path, site)
    site.cancel(1)
    site.commands.clear()
    settle(choosing(tmp_path, site), site, 2)
    assert (stopped(site), states(tmp_path)) == ([], ["dropped"])


def test_lost_command_is_repeated_only_after_ten_seconds(tmp_path, site):
    site.fail("preempt", BackendTimeout("no response"))
    bridge = choosing(tmp_path, site)
    times = []
    for after_s in (0, 0, 9, 10):
        site.now_s = START_S + after_s
        bridge.cycle()
        times.append(len(stopped(site)))
    assert times == [2, 2, 2, 4]


@pytest.mark.parametrize(
    "answer", [Outcome(94, "unknown", "no response"), Outcome(94, "refused", "no more calls", "not_sent")]
)
def test_unknown_or_unsent_command_does_not_end_the_preemption(tmp_path, site, answer):
    """The limit on calls may be reached between two victims."""
    site.collect_output("preempt", [answer, Outcome(93, "done")])
    (report,) = settle(choosing(tmp_path, site), site, 1)
    assert (states(tmp_path), "preemption_dropped" in events(report)) == (["open"], False)


def test_requeues_are_sent_before_cancellations(tmp_path, site, monkeypatch):
    """A job may refuse its requeue. The other victim would then be cancelled for nothing."""
    change_offers(site, monkeypatch, victims=(Victim(94, 4000, "cancel"), Victim(93, 3000, "requeue")))
    settle(choosing(tmp_path, site), site, 1)
    assert site.sent("preempt") == [(93, 94)]


def test_job_that_the_bridge_leaves_costs_no_victim(tmp_path, site):
    bridge = choosing(tmp_path, site)
    bridge.ledger.record(
        [make_transition(None, LedgerState.HELD, START_S, "", job_id=1, unmanaged_reason="5 starts failed")]
    )
    settle(bridge, site, 1)
    assert stopped(site) == []


def test_time_for_victims_counts_from_the_command(tmp_path, site):
    """The decision before it took 90 s."""
    pace = FakePace()
    slow = Slow(pace, 90)
    site.stalls = 99
    bridge = choosing(tmp_path, site, pace=pace, dispatcher=slow, cycles=1)
    site.now_s = START_S + 90 + TIMEOUT_S
    assert "preemption_ineffective" not in events(bridge.cycle())


def test_only_the_preemption_itself_starts_its_job(tmp_path, site):
    """Other nodes become free before its own."""
    site.ending_s = 5
    bridge = choosing(tmp_path, site, cycles=1)
    site.end(91)
    site.end(92)
    settle(bridge, site, 8)
    assert site.jobs[1].placement == ((2, 1), (3, 1))


def test_preemption_goes_on_beside_another(tmp_path, site):
    site.ending_s = 5
    site.submit(a_high(1, 1))
    bridge = choosing(tmp_path, site, cycles=1)
    site.submit(a_high(2, 1))
    settle(bridge, site, 2)
    assert stopped(site) == [93, 94]
    assert not site.jobs[1].running


def test_refused_victim_ends_choosing_for_this_job(tmp_path, site):
    """Slurm may still preempt for it."""
    site.collect_output("preempt", [Outcome(94, "refused", "requeue is disabled"), Outcome(93, "refused", "")])
    bridge = choosing(tmp_path, site)
    reports = settle(bridge, site, 4)
    (dropped,) = [each for each in reports[0].bridge_events if each.kind == "preemption_dropped"]
    assert dropped.detail == "job 94 was not stopped: requeue is disabled"
    assert (site.jobs[1].hold, len(site.sent("preempt"))) == (Hold.NONE, 1)


@pytest.mark.parametrize(("after_s", "preemptions"), [(HOUR_S - 1, 1), (HOUR_S, 2), (2 * HOUR_S, 2)])
def test_dropped_preemption_is_followed_by_another_after_an_hour(tmp_path, site, after_s, preemptions):
    """The job may not start while its victims end. When it may again, others have its nodes."""
    site.ending_s = 5
    bridge = choosing(tmp_path, site, cycles=1)
    site.jobs[1].job = replace(site.jobs[1].job, ineligible="Dependency")
    settle(bridge, site, 6)
    assert states(tmp_path) == ["dropped"]
    for id in (93, 94):
        site.run_now(id, ((id - 91, 1),))
    site.jobs[1].job = replace(site.jobs[1].job, ineligible=None)
    site.now_s = START_S + 1 + after_s
    settle(bridge, site, 1)
    assert len(site.sent("preempt")) == preemptions


def test_ineffective_preemption_pauses_choosing(tmp_path, site):
    site.stalls = 99
    bridge = choosing(tmp_path, site, cycles=3)
    assert site.sent("start") == [(1,)]
    site.now_s = START_S + 1 + TIMEOUT_S
    assert "preemption_ineffective" not in events(bridge.cycle())
    (report,) = settle(bridge, site, 1)
    assert {"preemption_ineffective", "preemption_paused"} <= events(report)
    assert states(tmp_path) == ["ineffective"]
    site.stalls = 0
    for id in (93, 94):
        site.run_now(id, ((id - 91, 1),))
    site.submit(a_high(2))
    again = choosing(tmp_path, site)  # the pause survives a restart
    settle(again, site, 2)
    assert (len(site.sent("preempt")), site.jobs[2].hold) == (1, Hold.NONE)
    site.cancel(1)
    site.cancel(2)
    site.submit(a_high(3, 2))
    site.now_s += PAUSE_S
    settle(again, site, 2)
    assert len(site.sent("preempt")) == 2


@pytest.mark.parametrize(("after_s", "pauses"), [(-1, False), (0, True), (PAUSE_S - 1, True), (PAUSE_S, False)])
def test_pause_lasts_ten_minutes(tmp_path, site, after_s, pauses):
    site.stalls = 99
    settle(choosing(tmp_path, site), site, 3)
    book = PreemptionLedger(StateFile(tmp_path / "state.sqlite"))
    (entry,) = book.entries
    book.close_entry(entry, "ineffective", START_S)
    assert find_victim_choice_pause_end_s(book, START_S + after_s) == (START_S + PAUSE_S if pauses else None)


def test_new_leader_waits_for_the_victims_of_the_other_bridge(tmp_path, site):
    pace = FakePace()
    bridge = choosing(tmp_path, site, pace=pace)
    site.claimed = Lease("other", "run", 1, "elsewhere")
    settle(bridge, site, 2)
    site.claimed = None
    pace.at_s += 200
    (report,) = settle(bridge, site, 1)
    assert (report.role.mode, stopped(site), site.jobs[1].hold) == ("control", [], Hold.NONE)
    site.now_s += VICTIMS_END_S
    site.submit(a_high(2))
    site.cancel(1)
    settle(bridge, site, 3)
    assert stopped(site) == [93, 94]


DAMAGES = {
    "lost row": lambda path: change(path, "update preemptions set seal = 0"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:4096]),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_victim_is_stopped_while_those_of_a_lost_preemption_may_be_ending(tmp_path, site, damage):
    site.ending_s = 20
    bridge = choosing(tmp_path, site, cycles=2)
    assert stopped(site) == [93, 94]
    bridge.ledger.close()
    DAMAGES[damage](tmp_path / "state.sqlite")
    bridge = choosing(tmp_path, site)
    settle(bridge, site, VICTIMS_END_S)
    assert (stopped(site), site.jobs[1].hold, states(tmp_path)) == ([93, 94], Hold.NONE, [])
    site.submit(a_high(2, nodes=4))
    site.cancel(1)
    settle(bridge, site, 1)
    assert stopped(site) == [91, 92, 93, 94]


def test_limits_leave_further_jobs_to_slurm(tmp_path, site):
    """One per hour for each user, two for all. No other job gets the victim of job 2."""
    limits = {"choose": True, "max_per_user_per_hour": 1, "max_per_hour": 2}
    for id, user in enumerate(["eve", "eve", "bob", "dan"], start=1):
        site.submit(a_high(id, 1, user))
    bridge = a_bridge(tmp_path, site, preemption=limits, cycles=3)
    assert stopped(site) == [92, 94]
    assert [id for id in (1, 2, 3, 4) if site.jobs[id].running] == [1, 3]
    site.cancel(2)
    site.cancel(4)
    site.now_s += HOUR_S
    site.submit(a_high(5, 1, "eve"))
    settle(bridge, site, 3)
    assert site.jobs[5].running


@pytest.mark.parametrize("lower", ["max_per_user_per_hour", "max_per_hour"])
def test_lower_limit_counts_preemptions_of_last_hour(tmp_path, site, lower):
    """The limit is lowered below what the last hour had."""
    limits = {"choose": True, "max_per_user_per_hour": 2, "max_per_hour": 2}
    site.submit(a_high(1, 1), a_high(2, 1))
    settle(a_bridge(tmp_path, site, preemption=limits), site, 3)
    assert len(stopped(site)) == 2
    site.submit(a_high(3, 1))
    settle(a_bridge(tmp_path, site, preemption={**dict.fromkeys(limits, 9), "choose": True, lower: 1}), site, 3)
    assert len(stopped(site)) == 2


def test_job_is_stopped_at_most_so_often(tmp_path, site):
    limits = {"choose": True, "max_per_job": 1}
    site.submit(a_high(1, 1))
    bridge = a_bridge(tmp_path, site, preemption=limits, cycles=3)
    assert stopped(site) == [94]
    site.end(1)
    settle(bridge, site, 2)
    assert site.jobs[94].running
    site.submit(a_high(2, 1))
    settle(bridge, site, 3)
    assert stopped(site) == [93, 94]


def change_offers(site, monkeypatch, **changes):
    read = site.read

    def changed():
        seen = read()
        return replace(seen, preemptions=tuple(replace(each, **changes) for each in seen.preemptions))

    monkeypatch.setattr(site, "read", changed)


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": ((0, 1), (3, 1))},
        {"victims": (Victim(93, 3000, "requeue"),)},
        {"victims": (Victim(93, 3000, "requeue"), Victim(94, 3999, "requeue"))},
        {"victims": (Victim(93, 3000, "requeue"), Victim(99, 4000, "requeue"))},
    ],
)
def test_no_victim_is_stopped_if_the_verifier_rejects_the_start(tmp_path, site, monkeypatch, changes):
    """Another adapter's offer may be wrong: other nodes, too few victims, another run, an unknown job."""
    change_offers(site, monkeypatch, **changes)
    settle(choosing(tmp_path, site), site, 2)
    assert (stopped(site), site.jobs[1].hold) == ([], Hold.NONE)


def test_no_victim_is_stopped_after_an_outdated_observation(tmp_path, site):
    """The decision took so long that another bridge may be in control."""
    pace = FakePace()
    slow = Slow(pace, 1000)
    settle(choosing(tmp_path, site, pace=pace, dispatcher=slow), site, 2)
    assert stopped(site) == []


@pytest.mark.parametrize("ends", ["pause", "stop"])
def test_bridge_that_pauses_or_stops_drops_preemption_and_releases_job(tmp_path, site, ends):
    site.ending_s = 3
    bridge = choosing(tmp_path, site, cycles=2)
    if ends == "pause":
        bridge.pause.pause("for a while")
        settle(bridge, site, 2)
    else:
        assert bridge.stop() == []
    assert (site.jobs[1].hold, states(tmp_path)) == (Hold.NONE, ["dropped"])


def test_no_victim_is_stopped_after_the_nodes_were_taken(tmp_path, site):
    """Another node's job would not be enough: the plan must fit as it was recorded."""
    die_at_preemption(tmp_path, site)
    site.jobs[94] = replace(site.jobs[94], job=replace(site.jobs[94].job, qos="high"))
    site.commands.clear()
    settle(choosing(tmp_path, site), site, 3)
    assert stopped(site) == []


def start_bounces(site, tmp_path, **start):
    """A bridge whose job 1 starts on free nodes, and Slurm holds it again. Afterwards, only preemption makes room."""
    for node in range(2):
        site.requeue(91 + node, Hold.ADMIN)
    site.cancel(1)
    site.submit(a_high(1), stubborn="bounced")
    bridge = choosing(tmp_path, site, start=start, cycles=1)
    assert site.sent("start") == [(1,)]
    for node in range(2):
        site.run_now(91 + node, ((node, 1),))
    return bridge


def test_no_victim_is_stopped_for_a_job_that_is_given_up(tmp_path, site, monkeypatch):
    monkeypatch.setattr(BackoffQueue, "is_backed_off", lambda queue, job_id: False)
    bridge = start_bounces(site, tmp_path, max_failures=1)
    settle(bridge, site, 6)
    assert (site.sent("release"), stopped(site)) == ([(1,)], [])


def test_preemptor_backs_off_like_any_job_whose_start_fails(tmp_path, site):
    bridge = start_bounces(site, tmp_path, max_failures=9)
    starts_s = []
    for _ in range(15):
        before = len(site.sent("start"))
        settle(bridge, site, 1)
        if (1,) in site.sent("start")[before:]:
            starts_s.append(site.now_s)
    assert len(site.sent("preempt")) == 1
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(starts_s)]
    assert len(gaps_s) >= 1
    assert min(gaps_s) >= 3


@pytest.mark.parametrize(("kill_wait_s", "outcome"), [(30, "ineffective"), (40, "started")])
def test_victims_have_twice_the_kill_wait_to_end(tmp_path, site, kill_wait_s, outcome):
    site.ending_s = TIMEOUT_S + 5
    site.kill_wait_s = kill_wait_s
    settle(choosing(tmp_path, site), site, TIMEOUT_S + 12)
    assert states(tmp_path) == [outcome]


def test_ledger_that_cannot_be_written_stops_only_preemption(tmp_path, site, monkeypatch):
    site.ending_s = 3
    bridge = choosing(tmp_path, site, cycles=2)
    monkeypatch.setattr(PreemptionLedger, "close_entry", raising(sqlite3.OperationalError("disk is full")))
    site.cancel(1)
    site.submit(a_high(5, 1))
    site.end(91)
    reports = settle(bridge, site, 3)
    assert {report.result for report in reports} == {"ok"}
    assert "preemption_failed" in events(reports[-1])
    assert site.jobs[5].running
    assert len(site.sent("preempt")) == 1
