"""PBS's job list, and the commands that change job priorities."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from cpsched_bridge.adapters.pbs.pbs_boosts import MAX_BATCH, PbsBoostAccess
from cpsched_bridge.adapters.pbs.pbs_doctor import PbsDoctorContext, run_pbs_doctor_checks
from cpsched_bridge.adapters.pbs.pbs_objects import PbsCustomResource, Value
from cpsched_bridge.errors import BackendTimeout, CommandRefused
from cpsched_bridge.ports import BoostCommand, QueueRank, ReadinessCheck, SupportsBoost
from tests.unit.bridge.adapters.pbs.scenes import Site

FORMULA = "cpsched_boost"


def a_site(formula: str = FORMULA, **points: int) -> Site:
    """Jobs 0, 2 and the array 3[] wait; `points` by name as in j0."""
    site = Site()
    site.seen.server["job_sort_formula"] = formula
    for name, count in points.items():
        site.wishes(f"{name[1:]}.vm")["cpsched_boost"] = str(count)
    return site


def sent(site: Site) -> list[tuple[str, ...]]:
    return [each[1:] for each in site.sent if each[0] == "points"]


def ranks(site: Site) -> dict[str, QueueRank]:
    return {rank.label: rank for rank in site.backend().read_ranks()}


def boosted(site: Site, *commands: BoostCommand) -> list[str]:
    """The results of these commands."""
    return [each.result for each in site.backend().set_boosts(commands)]


def test_ranks_pending_jobs_by_formula_without_points() -> None:
    site = a_site("10 * ncpus + cpsched_boost", j0=7)
    site.seen.queues["managed"]["Priority"] = "40"
    assert isinstance(site.backend(), SupportsBoost)
    found = ranks(site)
    assert (found["0"], found["10"].points) == (QueueRank(0, (0,), found["10"].own + 10, 7, 40, "0"), 0)
    assert not any(each.fixed or each.hidden for each in found.values())


def test_array_is_one_rank_for_all_pending_subjobs() -> None:
    found = ranks(a_site())
    assert (found["3[]"].id, set(found["3[]"].jobs) >= {2 << 41 | 3, 3 << 41 | 3}) == (3, True)
    assert 2 << 41 | 3 not in {rank.id for rank in found.values()}


@pytest.mark.parametrize(
    ("formula", "own"), [("-ncpus", (399, 400, 1)), ("100 * ncpus", (200, 100, 40_000)), ("20.7", (20, 20, 20))]
)
def test_values_are_whole_numbers_of_at_least_1(formula: str, own: tuple[int, ...]) -> None:
    """All are raised if the lowest one is below 1. Jobs 0, 10 and 22 have 2, 1 and 400 processors."""
    found = ranks(a_site(f"{formula} + cpsched_boost"))
    assert tuple(found[label].own for label in ("0", "10", "22")) == own


@pytest.mark.parametrize(("priority", "expected"), [("40", (40, 40)), (None, (0, 1))])
def test_queue_priority_is_tier_and_formula_term(priority: str | None, expected: tuple[int, int]) -> None:
    site = a_site("queue_priority + cpsched_boost")
    site.seen.queues["managed"].pop("Priority", None)
    site.seen.queues["managed"].update({} if priority is None else {"Priority": priority})
    assert (ranks(site)["0"].tier, ranks(site)["0"].own) == expected


def test_job_with_non_text_state_is_not_pending() -> None:
    site = a_site()
    site.seen.jobs["0.vm"]["job_state"] = {"Q": "Q"}
    assert "0" not in ranks(site)


def test_ignores_and_keeps_invalid_points() -> None:
    site = a_site()
    site.wishes("0.vm")["cpsched_boost"] = "many"
    assert ("0" in ranks(site), boosted(site, BoostCommand(0, 5)), sent(site)) == (False, ["refused"], [])


def test_ranks_job_of_other_queue_while_it_has_points() -> None:
    site = a_site(j0=5)
    site.seen.jobs["0.vm"]["queue"] = "leftq"
    assert ranks(site)["0"].points == 5
    site.wishes("0.vm").pop("cpsched_boost")
    assert "0" not in ranks(site)


def test_ranks_and_boosts_array_with_started_subjobs() -> None:
    site = a_site()
    site.seen.jobs["3[].vm"]["job_state"] = "B"
    assert ("3[]" in ranks(site), boosted(site, BoostCommand(3, 8))) == (True, ["done"])
    assert sent(site) == [("cpsched_boost", "8", "3[].vm")]


@pytest.mark.parametrize(
    "formula", ["", "ncpus", "2 * cpsched_boost", "fairshare_perc + cpsched_boost", {"not": "text"}]
)
def test_points_missing_in_formula_are_fixed_but_removable(formula: str | dict[str, str]) -> None:
    site = a_site(j0=5)
    site.seen.server |= {"job_sort_formula": formula}
    assert all(each.fixed for each in ranks(site).values())
    assert boosted(site, BoostCommand(0, 0, (5,))) == ["done"]
    assert sent(site) == [("cpsched_boost", "0", "0.vm")]


def test_uses_scheduler_formula_unless_schedulers_differ() -> None:
    site = a_site("")
    site.schedulers_seen = {"default": {"job_sort_formula": FORMULA}}
    assert not any(each.fixed for each in ranks(site).values())
    site.schedulers_seen["other"] = {"job_sort_formula": "ncpus + cpsched_boost"}
    assert all(each.fixed for each in ranks(site).values())


def test_sets_equal_points_in_one_command_and_keeps_foreign_ones() -> None:
    site = a_site(j0=3, j10=99, j11=20)
    outcomes = site.backend().set_boosts([
        BoostCommand(0, 20, (3,)), BoostCommand(2, 20), BoostCommand(10, 20, (3,)), BoostCommand(11, 20, (20,)),
        BoostCommand(3, 8), BoostCommand(99, 5),
    ])  # fmt: skip
    assert [(each.job_id, each.result) for each in outcomes] == [
        (0, "done"), (2, "done"), (10, "refused"), (11, "done"), (3, "done"), (99, "refused"),
    ]  # fmt: skip
    assert outcomes[2].detail == "cpsched_boost=99 was set by another actor"
    assert sent(site) == [("cpsched_boost", "20", "0.vm", "2.vm"), ("cpsched_boost", "8", "3[].vm")]


def test_refuses_boost_of_running_job_but_accepts_removal() -> None:
    site = a_site(j0=3)
    site.seen.jobs["0.vm"] |= {"job_state": "R", "substate": "42"}
    assert boosted(site, BoostCommand(0, 5, (3,))) == ["refused"]
    assert boosted(site, BoostCommand(0, 0, (3,)), BoostCommand(99, 0, (3,))) == ["done", "done"]
    assert sent(site) == []


def test_sends_no_points_after_unanswered_command() -> None:
    site = a_site()
    site.fails = {"points": BackendTimeout("no answer")}
    outcomes = site.backend().set_boosts([BoostCommand(0, 5), BoostCommand(2, 6)])
    assert [(each.result, each.code) for each in outcomes] == [("unknown", ""), ("refused", "not_sent")]
    assert len(sent(site)) == 1


def test_refused_job_does_not_prevent_boosts_of_others() -> None:
    site = a_site()
    site.refuses = {"0.vm"}
    commands = BoostCommand(0, 5), BoostCommand(2, 5), BoostCommand(10, 6)
    assert boosted(site, *commands) == ["refused", "done", "done"]
    assert [each[2:] for each in sent(site)] == [("0.vm", "2.vm"), ("0.vm",), ("2.vm",), ("10.vm",)]


def test_splits_boosts_into_batches_of_maximum_size() -> None:
    site = a_site()
    numbers = list(range(1000, 1000 + 2 * MAX_BATCH + 1))
    site.seen.jobs.update({f"{number}.vm": site.seen.jobs["0.vm"] for number in numbers})
    outcomes = site.backend().set_boosts([BoostCommand(number, 5) for number in numbers])
    assert [(each.job_id, each.result) for each in outcomes] == [(number, "done") for number in numbers]
    names = [f"{number}.vm" for number in numbers]
    parts = names[:MAX_BATCH], names[MAX_BATCH : 2 * MAX_BATCH], names[2 * MAX_BATCH :]
    assert [each[2:] for each in sent(site)] == [tuple(part) for part in parts]


def test_boost_commands_respect_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command has the remaining time, at least a second; a late one is not sent."""
    at_s, given = 0.0, []

    class Slow:
        def set_boost_points(self, jobs: Sequence[str], resource: str, points: int, within_s: float) -> None:
            nonlocal at_s
            given.append(within_s)
            at_s += 6.5

    monkeypatch.setattr(time, "monotonic", lambda: at_s)
    advising = PbsBoostAccess(a_site(), Slow(), ("managed",), time_limit_s=13.5, command_s=10.0)  # type: ignore[arg-type]
    outcomes = advising.set_job_boosts([BoostCommand(number, at) for at, number in enumerate((0, 2, 10, 11), 5)])
    late = "not sent: the time limit for boosts was reached"
    assert given == [10.0, 7.0, 1.0]
    assert [(each.result, each.detail, each.code) for each in outcomes] == [
        ("done", "", ""), ("done", "", ""), ("done", "", ""), ("refused", late, "not_sent"),
    ]  # fmt: skip


def checked(site: Site) -> dict[str, ReadinessCheck]:
    around = PbsDoctorContext(("managed",), "leftq", "root", ("vm",))
    return {each.name: each for each in run_pbs_doctor_checks(site.read(), around)}


@pytest.mark.parametrize(
    ("kind", "ok"),
    [
        (PbsCustomResource("long", "r"), True),
        (PbsCustomResource("long", "i"), True),
        (PbsCustomResource("long", ""), False),
        (PbsCustomResource("long", "rh"), False),
        (PbsCustomResource("string", "r"), False),
        (None, False),
    ],
)
def test_doctor_requires_points_resource_for_managers_only(kind: PbsCustomResource | None, ok: bool) -> None:
    site = a_site()
    site.with_resources(dict(site.seen.resources) | ({} if kind is None else {"cpsched_boost": kind}))
    check = checked(site)["boosts"]
    assert (check.ok, kind is None and "create resource cpsched_boost type=long,flag=r" in check.fix) == (
        ok,
        kind is None,
    )


@pytest.mark.parametrize(
    ("formula", "ok", "fix"),
    [
        (FORMULA, True, ""),
        ("", False, 'job_sort_formula = "cpsched_boost"'),
        ("10 * ncpus", False, 'job_sort_formula = "(10 * ncpus) + cpsched_boost"'),
        ("10 * ncpus + cpsched_boost", True, ""),
        ("fairshare_perc + cpsched_boost", False, "with only arithmetic, eligible_time, priorities and requests"),
    ],
)
def test_doctor_proposes_addition_to_site_formula(formula: str, ok: bool, fix: str) -> None:
    check = checked(a_site(formula))["formula"]
    assert (check.ok, check.mode, fix in check.fix) == (ok, "advise", True)


def test_doctor_rejects_formula_threshold_that_points_exceed() -> None:
    site = a_site()
    assert checked(site)["threshold"].ok
    site.with_schedulers({"default": {"job_sort_formula_threshold": "5.0"}})
    assert not checked(site)["threshold"].ok


@pytest.mark.parametrize(
    ("facts", "state", "ok"),
    [
        ({}, "Q", True),
        ({"state": "job-exclusive"}, "Q", False),
        # One waits, and the other is over: PBS lists both all the same.
        ({"state": "job-exclusive", "jobs": ("0.vm", "999.vm")}, "Q", False),
        ({"state": "job-exclusive", "jobs": ("0.vm", "999.vm")}, "R", True),
        ({"state": "job-exclusive,resv-exclusive", "jobs": ("0.vm", "999.vm")}, "Q", True),
    ],
)
def test_doctor_reports_vnode_reserved_for_absent_job(facts: dict[str, Value], state: str, ok: bool) -> None:
    site = a_site()
    site.seen.vnodes["vm[1]"] |= facts
    site.seen.jobs["0.vm"]["job_state"] = state
    check = checked(site)["vnodes"]
    found = "vm[1]: job-exclusive without a running job"
    assert (check.ok, check.required, check.detail == found) == (ok, False, not ok)


def test_backend_checks_need_scheduler_records() -> None:
    site = a_site("")
    site.schedulers_seen = {"default": {"job_sort_formula": FORMULA}}
    backend = site.backend()
    backend._programs.list_missing_programs = list  # type: ignore[method-assign]  # noqa: SLF001
    assert {each.name: each for each in backend.run_checks()}["formula"].ok
    site.fails = {"schedulers": CommandRefused("Unauthorized Request")}
    assert [each.ok for each in backend.run_checks()] == [False]
