"""Advise mode in the loop: the boosts sent, their owner, and the withdrawal of all boosts."""

from __future__ import annotations

import pytest

from cpsched.model import NEVER, Decision
from cpsched_bridge.cycle import booster
from cpsched_bridge.cycle.boost_planning import RankedPendingJob
from cpsched_bridge.cycle.booster import PriorityBooster, plan_boost_removal, remove_all_boosts, split_ranks_by_plan
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle_report import PriorityBoostReport
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import BoostCommand, Hold, Outcome, QueueRank
from cpsched_bridge.settings import AdviseModeSettings
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_tables import BoostLedger
from tests.bridges import Metrics, a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster, FakePace, FirstFit


class LargestFirst(FirstFit):
    """Plans the jobs by number, the highest first, one a second from ten seconds on; starts none."""

    def decide(self, snapshot, need="plan"):
        found = super().decide(snapshot, need)
        ids = [snapshot.table.jobs[slot].id for slot in snapshot.queue.tolist()]
        place = {id: at for at, id in enumerate(sorted(ids, reverse=True))}
        plan = snapshot.queue.copy()
        plan[:] = [snapshot.now_s + 10 + place[id] for id in ids]
        assert NEVER not in plan
        return Decision(type(found.starts).of({}), found.effort, plan, found.waits)


@pytest.fixture
def site():
    """A full cluster, with the jobs 1 to 4 waiting in order of their numbers."""
    site = FakeCluster.of(a_job(99, per_unit=4, units=4, user="other"), hold=Hold.NONE, own_scheduler=True)
    site.run_now(99, tuple((node, 1) for node in range(site.cluster.size)))
    site.submit(*(a_job(id, priority=10) for id in range(1, 5)), hold=Hold.NONE)
    return site


def advising(tmp_path, site, dispatcher=None, mode="advise", **settings):
    return a_bridge(tmp_path, site, dispatcher or LargestFirst(), mode=mode, **settings)


def remove_all(tmp_path, site):
    return remove_all_boosts(site, BoostLedger(StateFile(tmp_path / "state.sqlite", read_only=True)))


def order_of(site):
    waiting = [id for id, fake in site.jobs.items() if fake.pending]
    return sorted(waiting, key=lambda id: (-site.jobs[id].job.priority - site.points.get(id, 0), id))


def test_cluster_follows_plan_order_without_holds(tmp_path, site):
    metrics = Metrics()
    report = advising(tmp_path, site, listeners=(metrics,)).cycle()
    assert (report.role.mode, order_of(site)) == ("advise", [4, 3, 2, 1])
    assert {name for name, _ in site.commands} == {"boost"}
    assert all(fake.hold is Hold.NONE for fake in site.jobs.values())
    assert report.boosts == PriorityBoostReport(jobs=4, in_order=0.0)
    assert metrics.value("cpsched_boost_changes_total") == len(site.boosts)
    assert (metrics.value("cpsched_boost_order_ratio"), metrics.value("cpsched_boost_ordered_jobs")) == (0.0, 4)
    assert metrics.value("cpsched_mode", mode="advise") == 1


def test_compares_order_periodically_and_changes_only_misplaced(tmp_path, site):
    bridge = advising(tmp_path, site, advise={"every_s": 30}, cycles=1)
    told = len(site.boosts)
    site.submit(a_job(5, priority=10), hold=Hold.NONE)
    bridge.pace.at_s = 29
    bridge.cycle()
    assert len(site.boosts) == told
    bridge.pace.at_s = 30
    assert bridge.cycle().boosts.in_order == 0.6
    assert (order_of(site)[0], [id for id, _ in site.boosts[told:]]) == (5, [5])


def test_keeps_points_of_administrator(tmp_path, site):
    site.jobs[1].points = 777
    bridge = advising(tmp_path, site)
    bridge.cycle()
    assert 1 not in {id for id, _ in site.boosts}
    bridge.stop()
    assert {id: points for id, points in site.points.items() if points} == {1: 777}


def test_keeps_points_of_job_taken_over_by_administrator(tmp_path, site):
    bridge = advising(tmp_path, site, cycles=1)
    site.jobs[4].points = 123456
    told = len(site.boosts)
    bridge.pace.at_s = 60
    bridge.cycle()
    bridge.stop()
    assert site.points[4] == 123456
    assert 4 not in {id for id, _ in site.boosts[told:]}


def test_stop_with_keep_leaves_points_to_next_bridge(tmp_path, site):
    bridge = advising(tmp_path, site, on_stop="keep", cycles=1)
    before = site.points
    bridge.stop()
    assert site.points == before
    advising(tmp_path, site).cycle()
    assert site.points == before


def test_pause_removes_points_and_resume_sets_them(tmp_path, site):
    bridge = advising(tmp_path, site, cycles=1)
    bridge.pause.pause("for a while")
    assert bridge.cycle().role.mode == "paused"
    assert not any(site.points.values())
    asked = len(site.commands)
    bridge.cycle()
    bridge.cycle()
    assert len(site.commands) == asked, "once nothing is left, no command is sent"
    bridge.pause.resume()
    bridge.cycle()
    assert order_of(site) == [4, 3, 2, 1]


@pytest.mark.parametrize("after", [False, True])
def test_points_with_lost_answer_are_ours(tmp_path, site, after):
    site.lose_answer("boost") if after else site.fail("boost", BackendTimeout("no answer"))
    assert advising(tmp_path, site).cycle().result == "backend_timeout"
    assert (advising(tmp_path, site).stop(), any(site.points.values())) == ([], False)


def test_shadow_mode_changes_nothing(tmp_path, site):
    advising(tmp_path, site).cycle()
    before, asked = site.points, len(site.commands)
    advising(tmp_path, site, mode="shadow", cycles=1).stop()
    assert (site.points, len(site.commands)) == (before, asked)


def test_unreadable_order_fails_cycle_and_keeps_points(tmp_path, site):
    bridge = advising(tmp_path, site, cycles=1)
    before, bridge.pace.at_s = site.points, 60
    site.fail("read_ranks", BackendUnavailable("sprio: no answer"))
    assert bridge.cycle().result == "backend_unavailable"
    assert site.points == before


def test_reports_unremovable_points_without_failing_cycle(tmp_path, site):
    advising(tmp_path, site).cycle()
    site.fail("read_ranks", BackendUnavailable("sprio: no answer"))
    report = a_bridge(tmp_path, site, FirstFit(), mode="control").cycle()
    assert report.result == "ok"
    assert "boosts_remain" in {happening.kind for happening in report.bridge_events}


def test_release_all_removes_points_also_of_held_jobs(tmp_path, site):
    advising(tmp_path, site).cycle()
    site.jobs[3].hold = Hold.USER
    assert any(site.points.values())
    assert (remove_all(tmp_path, site), any(site.points.values())) == ([], False)


def test_release_all_reports_what_prevents_it(tmp_path, site):
    advising(tmp_path, site).cycle()
    site.fail("boost", BackendUnavailable("gone"), times=3)
    assert remove_all(tmp_path, site) == ["jobs may still have boosts: gone"]


def test_unmanaged_job_loses_points(tmp_path, site):
    bridge = advising(tmp_path, site, cycles=1)
    assert site.points[4]
    site.jobs[4].job = a_job(4, priority=10, ineligible="dependency")
    bridge.pace.at_s = 60
    bridge.cycle()
    assert site.points[4], "nodes that are just being freed leave a job without a plan, too"
    bridge.pace.at_s = 360
    bridge.cycle()
    assert (site.points[4], order_of(site)[:3]) == (0, [3, 2, 1])


class InAnHour(LargestFirst):
    """Plans everything one hour later."""

    def decide(self, snapshot, need="plan"):
        found = super().decide(snapshot, need)
        found.plan_s[:] += 3600
        return found


@pytest.mark.parametrize(("dispatcher", "early"), [(InAnHour(), {1, 2, 3, 4}), (LargestFirst(), set())])
def test_reports_start_long_before_planned_time(tmp_path, site, dispatcher, early):
    bridge = advising(tmp_path, site, dispatcher, cycles=1)
    site.now_s = 5
    site.end(99)
    told = [each for each in bridge.cycle().bridge_events if each.kind == "started_early"]
    assert {each.job_id for each in told} == early
    assert all("s earlier than planned" in each.detail for each in told)


class Ranked:
    """A cluster whose list is given, and which answers each advice with `result` and `code`."""

    def __init__(self, *ranks, result="done", code=""):
        self.list, self.result, self.code, self.asked, self.advised = list(ranks), result, code, 0, []

    def read_ranks(self):
        self.asked += 1
        return self.list

    def set_boosts(self, advice):
        self.advised.append([(each.id, each.points) for each in advice])
        return [Outcome(each.id, self.result, code=self.code) for each in advice]


def a_book(tmp_path, **points):
    book = BoostLedger(StateFile(tmp_path / "state.sqlite"))
    book.record_intended({int(id.removeprefix("j")): value for id, value in points.items()}, 0)
    return book


def taking_back(backend, book, **more):
    """An adviser that takes back, as a function of the monotonic second."""
    working = PriorityBooster(backend, book, AdviseModeSettings(every_s=30), **more)
    return working, lambda at_s: working.remove_boosts(0, at_s, CycleRecorder(1, FakePace()))


def test_builds_complete_list_in_plan_order(tmp_path):
    """Tasks of an array stand where the first of them is planned; points of others and set priorities do not move."""
    ranks = [
        QueueRank(7, (70, 71, 72), 5, 40, tier=2, array_id=0), QueueRank(8, (8,), 6, 3), QueueRank(9, (9,), 7, 0, fixed=True),  # noqa: E501
        QueueRank(10, (10,), 0, 0, hidden=True), QueueRank(11, (11,), 8, 40, array_id=7), QueueRank(12, (12,), 9, 0),
        QueueRank(13, (13, 14), 4, 0),
    ]  # fmt: skip
    planned, others = split_ranks_by_plan(ranks, [9, 72, 8, 13, 11, 70, 71], a_book(tmp_path, j7=40))
    assert planned == [
        RankedPendingJob(9, 7, 0, 0, movable=False), RankedPendingJob(7, 5, 40, 2),
        RankedPendingJob(8, 6, 3, movable=False),
        RankedPendingJob(13, 4, 0), RankedPendingJob(11, 8, 40),
    ]  # fmt: skip
    assert others == [RankedPendingJob(12, 9, 0)]


def test_removes_only_points_that_may_be_ours(tmp_path):
    """Points of ours that show, and whatever does not show of jobs in the book; nothing that others gave."""
    ranks = [
        QueueRank(1, (1,), 5, 40), QueueRank(2, (2,), 5, 41), QueueRank(3, (3,), 0, 0, hidden=True), QueueRank(4, (4,), 5, 0, fixed=True),  # noqa: E501
        QueueRank(5, (5,), 5, 0), QueueRank(6, (6,), 0, 0, hidden=True), QueueRank(7, (7,), 5, 40, array_id=1), QueueRank(8, (8,), 5, 40),  # noqa: E501
        QueueRank(9, (9,), 0, 0, hidden=True),
    ]  # fmt: skip
    book = a_book(tmp_path, j1=40, j2=40, j3=9, j4=9, j5=9, j9=0)
    assert plan_boost_removal(ranks, book) == [
        BoostCommand(1, 0, (40,)), BoostCommand(3, 0, (9,)), BoostCommand(4, 0, (9,)), BoostCommand(7, 0, (40,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("result", "code", "asked"), [("done", "", 1), ("refused", "", 1), ("refused", "not_sent", 4), ("unknown", "", 4)]
)
def test_sends_0_to_hidden_job_until_answered(tmp_path, result, code, asked):
    """Its points do not show, so that 0 is sent once; a refusal is an answer, too."""
    backend = Ranked(QueueRank(1, (1,), 0, 0, hidden=True), result=result, code=code)
    working, look = taking_back(backend, a_book(tmp_path, j1=40))
    for at_s in (0, 1, 2, 31):
        look(at_s)
    assert backend.advised == [[(1, 0)]] * asked
    assert working.count_boosted_jobs() == (0 if asked == 1 else 1)


def test_sends_0_again_after_new_points(tmp_path, site):
    """A cluster that hides its points: once for the points of before, once for those of the second advice."""
    bridge = advising(tmp_path, site)
    for _ in range(2):
        bridge.pause.resume()
        bridge.pace.at_s += 60
        bridge.cycle()
        assert site.points[4]
        site.jobs[4].hold = Hold.USER
        bridge.pause.pause("for a while")
        bridge.cycle()
        assert not any(site.points.values())
        site.jobs[4].hold = Hold.NONE


def test_checks_rarely_or_never_once_no_points_are_left(tmp_path):
    """And none at all where the book has no entry, or none any more: those of jobs that are gone for long go."""
    backend = Ranked(QueueRank(1, (1,), 5, 40))
    working, look = taking_back(backend, a_book(tmp_path, j1=40), keep_s=-1)
    look(0)
    assert (backend.advised, working.count_boosted_jobs()) == ([[(1, 0)]], 1)
    backend.list = [QueueRank(1, (1,), 5, 0)]
    for at_s, asked in ((1, 2), (30.9, 2), (31, 3), (61, 4)):
        look(at_s)
        assert (backend.asked, working.count_boosted_jobs()) == (asked, 0)
    backend.list = []
    for at_s in (91, 200):
        look(at_s)
    assert (backend.asked, working.book.by_id) == (5, {})


def test_entry_outlives_job_by_keep_s(tmp_path):
    working, look = taking_back(Ranked(), a_book(tmp_path, j1=40), keep_s=0)
    look(0)
    assert set(working.book.by_id) == {1}


def test_bounds_removals_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(booster, "MAX_REMOVED_BOOSTS", 2)
    backend = Ranked(*(QueueRank(id, (id,), 5, 40) for id in (1, 2, 3)))
    _, look = taking_back(backend, a_book(tmp_path, j1=40, j2=40, j3=40))
    look(0)
    assert backend.advised == [[(1, 0), (2, 0)]]
