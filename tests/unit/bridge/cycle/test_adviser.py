"""Mode advise in the loop: what is told, whose points are whose, and how all of them are taken back."""

from __future__ import annotations

import pytest

from cpsched.model import NEVER, Decision
from cpsched_bridge.cycle.adviser import take_all_back
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import Hold
from cpsched_bridge.store.advice_book import AdviceBook
from tests.bridges import Metrics, a_bridge
from tests.builders import a_job
from tests.fakes import AdvisedCluster, FakePace, FirstFit


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
    site = AdvisedCluster()
    site.submit(a_job(99, per_unit=4, units=4, user="other"), hold=Hold.NONE)
    site.run_now(99, tuple((node, 1) for node in range(site.cluster.size)))
    site.submit(*(a_job(id, priority=10) for id in range(1, 5)), hold=Hold.NONE)
    return site


def advising(tmp_path, site, pace=None, **settings):
    return a_bridge(tmp_path, site, LargestFirst(), pace or FakePace(), mode="advise", **settings)


def order_of(site):
    waiting = [id for id, fake in site.jobs.items() if fake.pending]
    return sorted(waiting, key=lambda id: (-site.jobs[id].job.priority - site.points.get(id, 0), id))


def test_the_clusters_order_becomes_the_plans_and_nobody_is_held(tmp_path, site):
    metrics = Metrics()
    bridge = advising(tmp_path, site, listeners=(metrics,))
    report = bridge.cycle()
    assert report.mode == "advise"
    assert order_of(site) == [4, 3, 2, 1]
    assert {name for name, _ in site.commands} == {"advise"}
    assert all(fake.hold is Hold.NONE for fake in site.jobs.values())
    assert report.advised.in_order == 0.0
    assert metrics.value("cpsched_advice_changes_total") == len(site.told)
    assert metrics.value("cpsched_advice_order_ratio") == 0.0
    assert metrics.value("cpsched_advised_jobs") == 4
    assert metrics.value("cpsched_mode", mode="advise") == 1


def test_it_looks_again_after_every_s_and_then_tells_nobody_who_is_in_order(tmp_path, site):
    pace = FakePace()
    bridge = advising(tmp_path, site, pace, advise={"every_s": 30})
    bridge.cycle()
    told = len(site.told)
    site.submit(a_job(5, priority=10), hold=Hold.NONE)
    pace.at_s = 29
    bridge.cycle()
    assert len(site.told) == told
    pace.at_s = 30
    assert bridge.cycle().advised.in_order == 0.6
    assert order_of(site)[0] == 5
    assert [id for id, _ in site.told[told:]] == [5]


def test_an_administrators_points_are_never_touched(tmp_path, site):
    site.points[1] = 777
    bridge = advising(tmp_path, site)
    assert bridge.cycle().advised.theirs == 1
    assert 1 not in {id for id, _ in site.told}
    bridge.stop()
    assert {id: points for id, points in site.points.items() if points} == {1: 777}


def test_a_job_that_an_administrator_takes_over_is_left_and_keeps_his_points(tmp_path, site):
    pace = FakePace()
    bridge = advising(tmp_path, site, pace)
    bridge.cycle()
    site.points[4] = 123456
    told = len(site.told)
    pace.at_s = 60
    bridge.cycle()
    bridge.stop()
    assert site.points[4] == 123456
    assert 4 not in {id for id, _ in site.told[told:]}


def test_a_stop_takes_all_points_off(tmp_path, site):
    bridge = advising(tmp_path, site)
    bridge.cycle()
    assert any(site.points.values())
    assert bridge.stop() == []
    assert not any(site.points.values())


def test_a_stop_that_keeps_leaves_them_to_the_next_bridge(tmp_path, site):
    bridge = advising(tmp_path, site, on_stop="keep")
    bridge.cycle()
    before = dict(site.points)
    bridge.stop()
    assert site.points == before
    advising(tmp_path, site).cycle()
    assert site.points == before


def test_a_pause_takes_all_points_off_and_a_resume_puts_them_on(tmp_path, site):
    pace = FakePace()
    bridge = advising(tmp_path, site, pace)
    bridge.cycle()
    bridge.pause.pause("for a while")
    assert bridge.cycle().mode == "paused"
    assert not any(site.points.values())
    asked = len(site.commands)
    bridge.cycle()
    bridge.cycle()
    assert len(site.commands) == asked, "once nothing is left, nobody is asked"
    bridge.pause.resume()
    bridge.cycle()
    assert order_of(site) == [4, 3, 2, 1]


def test_after_a_kill_the_next_bridge_goes_on_with_the_points_that_are_there(tmp_path, site):
    advising(tmp_path, site).cycle()
    told = len(site.told)
    advising(tmp_path, site).cycle()
    assert len(site.told) == told
    assert order_of(site) == [4, 3, 2, 1]


@pytest.mark.parametrize("after", [False, True])
def test_points_whose_answer_was_lost_are_known_as_ours(tmp_path, site, after):
    site.fail("advise", BackendTimeout("no answer"), after=after)
    first = advising(tmp_path, site)
    assert first.cycle().result == "backend_timeout"
    advising(tmp_path, site).stop()
    assert not any(site.points.values())


def test_control_after_a_killed_adviser_takes_the_points_off_and_back_again_holds_nobody(tmp_path, site):
    advising(tmp_path, site).cycle()
    control = a_bridge(tmp_path, site, FirstFit(), mode="control")
    for _ in range(4):
        site.now_s += 1
        control.cycle()
    assert not any(site.points.values())
    assert all(fake.hold is Hold.ADMIN for fake in site.jobs.values() if fake.pending)
    again = advising(tmp_path, site)  # the one in control is killed, too
    for _ in range(4):
        site.now_s += 1
        again.cycle()
    assert all(fake.hold is Hold.NONE for fake in site.jobs.values() if fake.pending)
    again.stop()
    assert not any(site.points.values())


def test_shadow_mode_changes_nothing(tmp_path, site):
    advising(tmp_path, site).cycle()
    before, asked = dict(site.points), len(site.commands)
    shadow = a_bridge(tmp_path, site, LargestFirst(), mode="shadow")
    shadow.cycle()
    shadow.stop()
    assert site.points == before
    assert len(site.commands) == asked


def test_a_cluster_that_cannot_tell_its_order_fails_the_cycle_and_the_advice_stands(tmp_path, site):
    pace = FakePace()
    bridge = advising(tmp_path, site, pace)
    bridge.cycle()
    before, pace.at_s = dict(site.points), 60
    site.fail("ranks", BackendUnavailable("sprio: no answer"))
    assert bridge.cycle().result == "backend_unavailable"
    assert site.points == before


def test_points_that_cannot_be_taken_off_fail_no_cycle_in_control_and_are_told(tmp_path, site):
    advising(tmp_path, site).cycle()
    site.fail("ranks", BackendUnavailable("sprio: no answer"))
    report = a_bridge(tmp_path, site, FirstFit(), mode="control").cycle()
    assert report.result == "ok"
    assert "points_left" in {happening.kind for happening in report.happenings}


def test_release_all_takes_off_what_a_dead_bridge_has_left_held_jobs_included(tmp_path, site):
    advising(tmp_path, site).cycle()
    site.jobs[3].hold = Hold.USER
    assert any(site.points.values())
    book = AdviceBook.readable(tmp_path / "advice.sqlite")
    assert take_all_back(site, book) == []
    assert not any(site.points.values())


def test_release_all_says_what_is_in_the_way(tmp_path, site):
    advising(tmp_path, site).cycle()
    for _ in range(3):
        site.fail("advise", BackendUnavailable("gone"))
    book = AdviceBook.readable(tmp_path / "advice.sqlite")
    assert take_all_back(site, book) == ["points may still be on jobs: gone"]


def test_a_job_that_nobody_decides_on_is_not_advised_and_loses_its_points(tmp_path, site):
    pace = FakePace()
    bridge = advising(tmp_path, site, pace)
    bridge.cycle()
    assert site.points[4]
    site.jobs[4].job = a_job(4, priority=10, ineligible="dependency")
    pace.at_s = 60
    bridge.cycle()
    assert site.points[4], "nodes that are just being freed leave a job without a plan, too"
    pace.at_s = 360
    bridge.cycle()
    assert site.points[4] == 0
    assert order_of(site)[:3] == [3, 2, 1]


def test_a_start_long_before_its_place_in_the_plan_is_told(tmp_path, site):
    class InAnHour(LargestFirst):
        def decide(self, snapshot, need="plan"):
            found = super().decide(snapshot, need)
            found.plan_s[:] += 3600
            return found

    bridge = a_bridge(tmp_path, site, InAnHour(), mode="advise")
    bridge.cycle()
    site.now_s = 5
    site.end(99)
    told = [each for each in bridge.cycle().happenings if each.kind == "started_otherwise"]
    assert {each.job_id for each in told} == {1, 2, 3, 4}
    assert "before the plan would have" in told[0].detail


def test_a_start_when_the_plan_would_have_it_is_no_news(tmp_path, site):
    bridge = advising(tmp_path, site)
    bridge.cycle()
    site.now_s = 5
    site.end(99)
    assert "started_otherwise" not in {each.kind for each in bridge.cycle().happenings}
