"""PBS's list of jobs, and the commands for their points."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from cpsched_bridge.adapters.pbs.pbs_boosts import MAX_BATCH, PbsBoosts
from cpsched_bridge.adapters.pbs.pbs_doctor import PbsCheckContext, run_checks
from cpsched_bridge.adapters.pbs.pbs_records import PbsCustomResource
from cpsched_bridge.errors import BackendTimeout, CommandRefused
from cpsched_bridge.ports import Check, PriorityBoost, SupportsBoost
from tests.unit.bridge.adapters.pbs.scenes import Site

FORMULA = "cpsched_points"


def a_site(formula: str = FORMULA, **points: int) -> Site:
    """Jobs 0, 2 and the array 3[] wait; `points` by name as in j0."""
    site = Site()
    site.seen.server["job_sort_formula"] = formula
    for name, count in points.items():
        site.wishes(f"{name[1:]}.vm")["cpsched_points"] = str(count)
    return site


def told(site: Site) -> list[tuple[str, ...]]:
    return [each[1:] for each in site.told if each[0] == "points"]


def test_each_waiting_job_of_the_queues_is_ranked_by_the_formula_without_its_points() -> None:
    site = a_site("10 * ncpus + cpsched_points", j0=7)
    site.seen.queues["managed"]["Priority"] = "40"
    backend = site.backend()
    assert isinstance(backend, SupportsBoost)
    ranks = {each.label: each for each in backend.ranks()}
    assert (ranks["0"].own - ranks["10"].own, ranks["0"].points, ranks["10"].points) == (10, 7, 0)
    assert {each.tier for each in ranks.values()} == {40}
    assert (ranks["0"].id, ranks["0"].jobs) == (0, (0,))
    assert not any(each.fixed or each.hidden for each in ranks.values())


def test_an_array_is_one_entry_for_all_subjobs_that_wait() -> None:
    ranks = {each.id: each for each in a_site().backend().ranks()}
    assert ranks[3].label == "3[]"
    assert set(ranks[3].jobs) >= {2 << 41 | 3, 3 << 41 | 3}
    assert 2 << 41 | 3 not in ranks


def test_values_below_1_are_raised_alike_so_that_their_order_stays() -> None:
    own = {each.label: each.own for each in a_site("-ncpus + cpsched_points").backend().ranks()}
    assert min(own.values()) == 1
    assert own["10"] > own["0"], "one processor before two"


def test_values_from_1_on_are_told_as_they_are() -> None:
    site = a_site("100 * ncpus + cpsched_points")
    own = {each.label: each.own for each in site.backend().ranks()}
    assert own["10"] == 100 * int(site.wishes("10.vm")["ncpus"])


def test_parts_below_1_do_not_count() -> None:
    own = {each.label: each.own for each in a_site("20.7 + cpsched_points").backend().ranks()}
    assert set(own.values()) == {20}


@pytest.mark.parametrize(("priority", "own"), [("40", 40), (None, 1)])
def test_the_queues_priority_is_a_tier_and_a_term(priority: str | None, own: int) -> None:
    site = a_site("queue_priority + cpsched_points")
    queue = site.seen.queues["managed"]
    queue.pop("Priority", None)
    if priority is not None:
        queue["Priority"] = priority
    (rank,) = (each for each in site.backend().ranks() if each.label == "0")
    assert (rank.tier, rank.own) == (int(priority or 0), own)


def test_a_record_whose_state_is_no_text_does_not_wait() -> None:
    site = a_site()
    site.seen.jobs["0.vm"]["job_state"] = {"Q": "Q"}
    assert "0" not in {each.label for each in site.backend().ranks()}


def test_an_array_that_has_begun_is_ranked_and_told_as_before() -> None:
    site = a_site()
    site.seen.jobs["3[].vm"]["job_state"] = "B"
    backend = site.backend()
    assert 3 in {each.id for each in backend.ranks()}
    assert [each.result for each in backend.set_boosts([PriorityBoost(3, 8)])] == ["done"]
    assert told(site) == [("cpsched_points", "8", "3[].vm")]


def test_a_job_of_another_queue_is_ranked_as_long_as_it_has_points() -> None:
    site = a_site(j0=5)
    site.seen.jobs["0.vm"]["queue"] = "leftq"
    assert {each.label: each.points for each in site.backend().ranks()}["0"] == 5
    site.wishes("0.vm").pop("cpsched_points")
    assert "0" not in {each.label for each in site.backend().ranks()}


@pytest.mark.parametrize("formula", ["", "ncpus", "2 * cpsched_points", "fairshare_perc + cpsched_points"])
def test_where_the_formula_heeds_no_points_all_are_fixed_and_can_be_taken_back(formula: str) -> None:
    site = a_site(formula, j0=5)
    backend = site.backend()
    assert all(each.fixed for each in backend.ranks())
    assert backend.set_boosts([PriorityBoost(0, 0, (5,))])[0].result == "done"
    assert told(site) == [("cpsched_points", "0", "0.vm")]


def test_the_formula_of_a_scheduler_counts_and_two_that_differ_do_not() -> None:
    site = a_site("")
    site.schedulers_seen = {"default": {"job_sort_formula": FORMULA}}
    assert not any(each.fixed for each in site.backend().ranks())
    site.schedulers_seen["other"] = {"job_sort_formula": "ncpus + cpsched_points"}
    assert all(each.fixed for each in site.backend().ranks())


def test_equal_points_are_told_together_and_nobody_elses_are_touched() -> None:
    site = a_site(j0=3, j10=99, j11=20)
    advice = [
        PriorityBoost(0, 20, (3,)),
        PriorityBoost(2, 20),
        PriorityBoost(10, 20, (3,)),
        PriorityBoost(11, 20, (20,)),
        PriorityBoost(3, 8),
        PriorityBoost(99, 5),
    ]
    outcomes = site.backend().set_boosts(advice)
    assert [each.job_id for each in outcomes] == [0, 2, 10, 11, 3, 99]
    assert [each.result for each in outcomes] == ["done", "done", "refused", "done", "done", "refused"]
    assert "somebody else's: 99" in outcomes[2].detail
    assert told(site) == [("cpsched_points", "20", "0.vm", "2.vm"), ("cpsched_points", "8", "3[].vm")]


def test_a_job_that_runs_is_not_told_and_has_nothing_to_be_taken_off() -> None:
    site = a_site(j0=3)
    site.seen.jobs["0.vm"] |= {"job_state": "R", "substate": "42"}
    backend = site.backend()
    assert [each.result for each in backend.set_boosts([PriorityBoost(0, 5, (3,))])] == ["refused"]
    assert [each.result for each in backend.set_boosts([PriorityBoost(0, 0, (3,)), PriorityBoost(99, 0, (3,))])] == [
        "done",
        "done",
    ]
    assert told(site) == []


def test_of_jobs_told_together_each_is_told_alone_where_one_is_refused() -> None:
    site = a_site()
    site.refuses = {"2.vm"}
    outcomes = site.backend().set_boosts([PriorityBoost(0, 5), PriorityBoost(2, 5), PriorityBoost(10, 5)])
    assert [each.result for each in outcomes] == ["done", "refused", "done"]
    assert told(site)[1:] == [("cpsched_points", "5", name) for name in ("0.vm", "2.vm", "10.vm")]


def test_after_points_without_an_answer_no_others_are_sent() -> None:
    site = a_site()
    site.fails = {"points": BackendTimeout("no answer")}
    lost, unsent = site.backend().set_boosts([PriorityBoost(0, 5), PriorityBoost(2, 6)])
    assert (lost.result, unsent.result) == ("unknown", "refused")
    assert unsent.code == "not_sent"
    assert len(told(site)) == 1


def test_of_two_jobs_one_that_is_refused_keeps_the_other_from_nothing_and_the_order_stays() -> None:
    site = a_site()
    site.refuses = {"0.vm"}
    outcomes = site.backend().set_boosts([PriorityBoost(0, 5), PriorityBoost(2, 5), PriorityBoost(10, 6)])
    assert [each.result for each in outcomes] == ["refused", "done", "done"]
    assert [each[2:] for each in told(site)] == [("0.vm", "2.vm"), ("0.vm",), ("2.vm",), ("10.vm",)]


def test_jobs_beyond_those_of_one_command_are_told_in_the_next() -> None:
    site = a_site()
    numbers = list(range(1000, 1000 + 2 * MAX_BATCH + 1))
    site.seen.jobs.update({f"{number}.vm": site.seen.jobs["0.vm"] for number in numbers})
    outcomes = site.backend().set_boosts([PriorityBoost(number, 5) for number in numbers])
    assert [(each.job_id, each.result) for each in outcomes] == [(number, "done") for number in numbers]
    commands = [each[2:] for each in told(site)]
    assert [len(names) for names in commands] == [MAX_BATCH, MAX_BATCH, 1]
    assert [name for names in commands for name in names] == [f"{number}.vm" for number in numbers]


def test_advice_takes_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command has the remaining time, at least a second; a late one is not sent."""
    at_s, given = 0.0, []

    class Slow:
        def set_boost_points(self, jobs: Sequence[str], resource: str, points: int, within_s: float) -> None:
            nonlocal at_s
            given.append(within_s)
            at_s += 6.5

    monkeypatch.setattr(time, "monotonic", lambda: at_s)
    advising = PbsBoosts(a_site(), Slow(), ("managed",), telling_s=13.5, command_s=10.0)  # type: ignore[arg-type]
    outcomes = advising.advise([PriorityBoost(0, 5), PriorityBoost(2, 6), PriorityBoost(10, 7), PriorityBoost(11, 8)])
    assert given == [10.0, 7.0, 1.0]
    assert [each.result for each in outcomes] == ["done", "done", "done", "refused"]
    assert (outcomes[3].detail, outcomes[3].code) == ("not sent: the time for advice is over", "not_sent")


def test_a_formula_that_is_no_text_heeds_no_points() -> None:
    site = a_site(j0=5)
    site.seen.server["job_sort_formula"] = {"a": "b"}  # type: ignore[index]
    assert all(each.fixed for each in site.backend().ranks())


def test_points_that_make_no_sense_are_nobodys_to_change() -> None:
    site = a_site()
    site.wishes("0.vm")["cpsched_points"] = "many"
    assert "0" not in {each.label for each in site.backend().ranks()}
    assert site.backend().set_boosts([PriorityBoost(0, 5)])[0].result == "refused"
    assert told(site) == []


def checked(site: Site) -> dict[str, Check]:
    around = PbsCheckContext(("managed",), "leftq", "root", ("vm",))
    return {each.name: each for each in run_checks(site.seen, around)}


def test_the_doctor_wants_a_resource_that_managers_alone_write() -> None:
    site = a_site()
    resources = dict(site.seen.resources)
    for kind, ok in (
        (PbsCustomResource("long", "r"), True),
        (PbsCustomResource("long", "i"), True),
        (PbsCustomResource("long", ""), False),
        (PbsCustomResource("long", "rh"), False),
        (PbsCustomResource("string", "r"), False),
    ):
        site.with_resources(resources | {"cpsched_points": kind})
        assert checked(site)["points"].ok is ok
    site.with_resources(resources)
    assert "create resource cpsched_points type=long,flag=r" in checked(site)["points"].mend


@pytest.mark.parametrize(
    ("formula", "ok", "mend"),
    [
        (FORMULA, True, ""),
        ("", False, 'job_sort_formula = "cpsched_points"'),
        ("10 * ncpus", False, 'job_sort_formula = "(10 * ncpus) + cpsched_points"'),
        ("10 * ncpus + cpsched_points", True, ""),
        ("fairshare_perc + cpsched_points", False, "a formula of arithmetic"),
    ],
)
def test_the_doctor_says_what_to_add_to_the_sites_own_formula(formula: str, ok: bool, mend: str) -> None:
    check = checked(a_site(formula))["formula"]
    assert (check.ok, check.mode) == (ok, "advise")
    assert mend in check.mend


def test_the_doctor_refuses_a_threshold_which_points_would_lift_jobs_over() -> None:
    site = a_site()
    assert checked(site)["threshold"].ok
    site.with_schedulers({"default": {"job_sort_formula_threshold": "5.0"}})
    assert not checked(site)["threshold"].ok


def test_the_doctor_tells_of_a_vnode_that_pbs_keeps_for_a_job_that_is_not_there() -> None:
    site = a_site()
    assert checked(site)["vnodes"].ok
    site.seen.vnodes["vm[1]"]["state"] = "job-exclusive"
    check = checked(site)["vnodes"]
    found = "vm[1]: job-exclusive, and without a job that runs"
    assert (check.ok, check.required, check.detail) == (False, False, found)
    site.seen.vnodes["vm[1]"]["jobs"] = ("0.vm", "999.vm")
    assert not checked(site)["vnodes"].ok, "one waits, and the other is over: PBS lists both all the same"
    site.seen.jobs["0.vm"]["job_state"] = "R"
    assert checked(site)["vnodes"].ok
    site.seen.jobs["0.vm"]["job_state"] = "Q"
    site.seen.vnodes["vm[1]"]["state"] = "job-exclusive,resv-exclusive"
    assert checked(site)["vnodes"].ok


def test_the_backends_own_checks_ask_for_the_schedulers() -> None:
    site = a_site("")
    site.schedulers_seen = {"default": {"job_sort_formula": FORMULA}}
    backend = site.backend()
    backend._programs.list_missing_programs = list  # type: ignore[method-assign]  # noqa: SLF001
    assert {each.name: each for each in backend.checks()}["formula"].ok
    site.fails = {"schedulers": CommandRefused("Unauthorized Request")}
    assert [each.ok for each in backend.checks()] == [False]
