"""Walltimes of shrink-to-fit jobs, and the time from which a job counts as waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cpsched.model import Job, PendingCode, PendingReason
from cpsched_bridge.adapters.pbs.pbs_backend import PbsBackend
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import MAX_TRIED_WALLTIMES
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.errors import BackendError, BackendTimeout, CommandRefused
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S, Hold, PendingJob, StartOrder
from tests.builders import words
from tests.unit.bridge.adapters.pbs.scenes import NOW_S, Site

STF = "19.vm"
"""A job with walltimes from 1 to 10 minutes, of one processor."""
ALL = ("vm[0]", "vm[1]", "vm[2]")


def reserve(site: Site, begins_in_s: int, *vnodes: str, name: str = "R1.vm", lasts_s: int = 600) -> None:
    record: dict[str, Any] = {
        "reserve_state": "RESV_CONFIRMED", "reserve_start": str(NOW_S + begins_in_s),
        "reserve_end": str(NOW_S + begins_in_s + lasts_s),
        "resv_nodes": "+".join(f"({each}:ncpus=4)" for each in vnodes or ALL),
    }  # fmt: skip
    site.seen = replace(site.seen, reservations={**site.seen.reservations, name: record})


def take(site: Site, *vnodes: str) -> None:
    for each in vnodes:
        site.seen.vnodes[each]["resources_assigned"] = {"ncpus": "4"}


def seen(site: Site, label: str = "19") -> PendingJob:
    return next(each for each in site.backend().observe().pending if each.label == label)


def members(site: Site, label: str = "19") -> str:
    """The rows of the vnodes on which a job may run; row 0 is the natural vnode, which has nothing."""
    found = site.backend().observe()
    job = next(each.job for each in found.pending if each.label == label)
    mask = found.cluster.node_sets[job.request.node_set].tolist()
    return "".join(name for name, member in zip("-012", mask, strict=True) if member).removeprefix("-")


def test_shrinkable_job_has_maximum_walltime() -> None:
    assert seen(Site()).job.walltime_s == 600
    assert seen(Site()).job.ineligible is None


@pytest.mark.parametrize(
    ("begins_in_s", "walltime_s", "waits"),
    [
        (601, 600, False), (600, 600, False), (599, 540, False), (330, 300, False), (120, 120, False),
        (119, 60, False), (60, 60, False), (59, 600, True), (-5, 600, True),
    ],
)  # fmt: skip
def test_shrinks_to_whole_minutes_before_reservation(begins_in_s: int, walltime_s: int, waits: bool) -> None:
    site = Site()
    reserve(site, begins_in_s)
    job = seen(site).job
    assert (job.walltime_s, job.ineligible is not None) == (walltime_s, waits)


def test_minimum_walltime_may_have_seconds() -> None:
    site = Site()
    site.wishes(STF)["min_walltime"] = "00:01:30"
    reserve(site, 100)
    assert seen(site).job.walltime_s == 90


def test_job_of_all_vnodes_waits_for_reservation_of_one() -> None:
    """It does not fit beside the reservation, which is another question than whether it ever fits."""
    site = Site()
    site.seen.jobs[STF]["schedselect"] = "3:ncpus=3"
    site.wishes(STF)["place"] = "vscatter"
    reserve(site, -5, "vm[0]")
    job = seen(site).job
    assert (job.ineligible, members(site)) == (PendingReason(PendingCode.NO_GAP), "012")


def test_shrinks_only_to_start_now() -> None:
    site = Site()
    reserve(site, 330, "vm[0]")
    assert (seen(site).job.walltime_s, members(site)) == (600, "12")
    take(site, "vm[1]", "vm[2]")
    assert (seen(site).job.walltime_s, members(site)) == (300, "012")
    take(site, "vm[0]")
    assert (seen(site).job.walltime_s, members(site)) == (600, "12")


def test_shrinks_if_all_chunks_then_fit_now() -> None:
    """Two chunks of three processors: each vnode has room for one of them."""
    site = Site()
    site.seen.jobs[STF]["schedselect"] = "2:ncpus=3"
    site.wishes(STF)["place"] = "free"
    reserve(site, 330, "vm[0]")
    take(site, "vm[1]")
    assert seen(site).job.walltime_s == 300, "vm[0] and vm[2] hold it, if it is short"


def test_shrinks_for_latest_reservation_that_leaves_capacity() -> None:
    site = Site()
    for at, name in enumerate(ALL):
        reserve(site, 180 + 120 * at, name, name=f"R{at}.vm")
    assert (seen(site).job.walltime_s, members(site)) == (420, "2")
    take(site, "vm[2]")
    assert (seen(site).job.walltime_s, members(site)) == (300, "12")


def test_tries_longest_and_minimum_walltime_of_many() -> None:
    site = Site()
    site.wishes(STF)["max_walltime"] = "10:00:00"
    for at in range(5 * MAX_TRIED_WALLTIMES):
        reserve(site, 600 * (at + 1), name=f"R{at}.vm")
    assert seen(site).job.walltime_s == 60
    reserve(site, 7200 * 10)
    assert seen(site).job.ineligible is None


def test_uses_own_walltime_if_maximum_is_missing() -> None:
    site = Site()
    del site.wishes(STF)["max_walltime"]
    assert seen(site).job.walltime_s == UNLIMITED_WALLTIME_S
    site.wishes(STF)["walltime"] = "00:05:00"
    assert seen(site).job.walltime_s == 300
    site.wishes(STF)["walltime"] = "00:00:30"
    assert seen(site).job.walltime_s == 60, "not less than it needs"


def test_ignores_previously_written_walltime() -> None:
    site = Site()
    site.wishes(STF)["walltime"] = "00:02:00"
    assert seen(site).job.walltime_s == 600


@pytest.mark.parametrize("name", ["min_walltime", "max_walltime"])
def test_leaves_job_with_unreadable_walltime(name: str) -> None:
    site = Site()
    site.wishes(STF)[name] = "soon"
    left = {each.label: words(each.reason) for each in site.backend().observe().unmanaged}
    assert "duration=soon: must be a time" in left["19"]


def ordered(site: Site, change: Any = lambda: None) -> tuple[Any, list[tuple[str, ...]]]:
    """Decide on the job, let something happen, send the start; return its outcome and PBS's commands."""
    backend = site.backend()
    job = next(each.job for each in backend.observe().pending if each.label == "19")
    change()
    (outcome,) = backend.start([StartOrder(job, (("vm[0]", 1),))])
    return outcome, site.told


def test_writes_walltime_longer_than_one_year() -> None:
    site = Site()
    site.wishes(STF).update({"min_walltime": "9000:00:00", "max_walltime": "90000:00:00"})
    assert ordered(site)[1][0] == ("walltime", STF, str(90000 * 3600))


def test_writes_walltime_before_start_of_shrinkable_job_only() -> None:
    site = Site()
    outcome, told = ordered(site)
    assert (outcome.result, told) == ("done", [("walltime", STF, "600"), ("run", STF, "(vm[0]:ncpus=1)")])
    plain = Site()
    backend = plain.backend()
    job = next(each.job for each in backend.observe().pending if each.label == "0")
    assert backend.start([StartOrder(job, (("vm[0]", 1),))])[0].result == "done"
    assert [words[0] for words in plain.told] == ["run"]


def test_starts_unlimited_job_without_walltime() -> None:
    site = Site()
    del site.wishes(STF)["max_walltime"]
    outcome, told = ordered(site)
    assert (outcome.result, [words[0] for words in told]) == ("done", ["run"])


def test_nearer_reservation_shortens_decided_job() -> None:
    site = Site()
    reserve(site, 330)
    outcome, told = ordered(site, lambda: reserve(site, 290))
    assert (outcome.result, told[0]) == ("done", ("walltime", STF, "240"))


@pytest.mark.parametrize("begins_in_s", [30, 420])
def test_refuses_start_if_reservation_change_needs_new_decision(begins_in_s: int) -> None:
    site = Site()
    reserve(site, 330)
    outcome, told = ordered(site, lambda: reserve(site, begins_in_s))
    assert (outcome.result, told) == ("refused", [])


@pytest.mark.parametrize(
    ("error", "code"), [(BackendTimeout("no answer"), "not_sent"), (CommandRefused("Unauthorized Request"), "")]
)
def test_refuses_start_if_walltime_write_fails(error: BackendError, code: str) -> None:
    outcome, told = ordered(Site(fails={"walltime": error}))
    assert (outcome.result, outcome.code) == ("refused", code)
    assert [words[0] for words in told] == ["walltime"]


def test_sends_no_start_after_unanswered_walltime() -> None:
    site = Site(fails={"walltime": BackendTimeout("no answer")})
    backend = site.backend()
    jobs = {each.label: each.job for each in backend.observe().pending}
    outcomes = backend.start([StartOrder(jobs["19"], (("vm[0]", 1),)), StartOrder(jobs["0"], (("vm[1]", 1),))])
    assert [(each.detail, each.code) for each in outcomes] == [("not sent: no answer", "not_sent")] * 2
    assert [words[0] for words in site.told] == ["walltime"]


def test_refuses_start_of_job_moved_to_another_managed_queue() -> None:
    site = Site()
    site.seen.queues["second"] = dict(site.seen.queues["managed"])  # type: ignore[index]
    backend = PbsBackend(PbsProgramRunner(), ("managed", "second"), "leftq", reader=site, commands=site)  # type: ignore[arg-type]
    job = next(each.job for each in backend.observe().pending if each.label == "0")
    site.seen.jobs["0.vm"]["queue"] = "second"
    assert backend.start([StartOrder(job, (("vm[0]", 1),))])[0].result == "refused"
    assert not site.told


def test_running_job_has_current_walltime() -> None:
    """A manager may lengthen it, and a job that shrinks gets it when it starts."""
    site = Site()
    backend = site.backend()
    before = backend.observe()
    assert next(each.job.walltime_s for each in before.pending if each.label == "0") == 3600
    site.seen.jobs["0.vm"].update(
        {"job_state": "R", "substate": "42", "exec_vnode": "(vm[0]:ncpus=2:mem=1048576kb)", "stime": str(NOW_S)}
    )
    site.wishes("0.vm")["walltime"] = "02:00:00"
    now = backend.observe()
    (run,) = [each for each in now.running if each.job.id == 0]
    assert (run.job.walltime_s, run.job.request.units) == (7200, 1)
    assert now.otherwise == {}, "it has what it asked for"


@pytest.mark.parametrize(
    ("status", "runs"), [("-3", False), ("-16", False), ("-22", False), ("0", True), ("-11", True), ("271", True)]
)
def test_exiting_job_has_run_unless_host_rejected_it(status: str, runs: bool) -> None:
    site = Site()
    site.seen.jobs["0.vm"] |= {"job_state": "E", "exec_vnode": "(vm[0]:ncpus=2)", "Exit_status": status}
    found = site.backend().observe()
    assert (0 in {each.job.id for each in found.running}) is runs
    assert [each.hold for each in found.pending if each.label == "0"] == ([] if runs else [Hold.NONE])


@pytest.mark.parametrize(("state", "listed"), [("Z", True), ("X", False), ("M", False)])
def test_job_in_unknown_state_is_listed(state: str, listed: bool) -> None:
    site = Site()
    site.seen.jobs["0.vm"]["job_state"] = state
    found = site.backend().observe()
    reasons = {each.label: words(each.reason) for each in found.unmanaged}
    assert reasons.get("0") == ("job_state=Z: this version has no rule for this state" if listed else None)
    assert "0" not in {each.label for each in found.pending}


def test_rejected_job_runs_after_host_accepts_it() -> None:
    """Its exit status is still that of the time before."""
    site = Site()
    site.seen.jobs["0.vm"] |= {"job_state": "R", "substate": "42", "exec_vnode": "(vm[0]:ncpus=2)", "Exit_status": "-3"}
    assert 0 in {each.job.id for each in site.backend().observe().running}


def test_unreadable_running_job_has_amount_of_each_resource() -> None:
    """Else no decision could be made beside it."""
    site = Site()
    site.seen.jobs["0.vm"].update({"job_state": "R", "substate": "42", "exec_vnode": "(gone:ncpus=2)"})
    found = site.backend().observe()
    (run,) = [each for each in found.running if each.job.id == 0]
    assert (len(run.job.request.per_unit), run.placement) == (len(found.cluster.resources), ())


def test_submit_time_follows_eligible_time() -> None:
    site = Site()
    submitted_s = seen(site, "0").job.submit_s
    site.seen.jobs["0.vm"]["eligible_time"] = "00:01:00"
    assert seen(site, "0").job.submit_s == submitted_s, "it is not counted"
    site.seen.server["eligible_time_enable"] = "True"
    assert seen(site, "0").job.submit_s == NOW_S - 60
    site.seen.jobs["0.vm"]["eligible_time"] = "long"
    assert seen(site, "0").job.submit_s == submitted_s
    site.seen.jobs["0.vm"]["eligible_time"] = "9999999:00:00"
    assert seen(site, "0").job.submit_s == 0


def test_sorts_jobs_by_eligible_time() -> None:
    site = Site()
    site.seen.server["eligible_time_enable"] = "True"
    for name, record in site.seen.jobs.items():
        record["eligible_time"] = "02:00:00" if name == STF else "01:00:00"
    assert site.backend().observe().pending[0].label == "19"


def test_subjobs_inherit_eligible_time_of_array() -> None:
    site = Site()
    site.seen.server["eligible_time_enable"] = "True"
    site.seen.jobs["3[].vm"]["eligible_time"] = "00:02:00"
    site.seen.jobs["3[2].vm"]["eligible_time"] = "00:01:00"
    found = {each.label: each.job.submit_s for each in site.backend().observe().pending}
    assert (found["3[1]"], found["3[2]"]) == (NOW_S - 120, NOW_S - 60)


@pytest.mark.parametrize(("later_s", "moves"), [(-3, True), (-2, False), (0, False), (2, False), (3, True)])
def test_one_second_of_eligible_time_changes_no_job(later_s: int, moves: bool) -> None:
    """Clocks of two hosts always differ, and a planner would take the job for a changed one."""
    site = Site()
    site.seen.server["eligible_time_enable"] = "True"
    site.seen.jobs["0.vm"]["eligible_time"] = "00:01:00"
    backend = site.backend()

    def job() -> Job:
        return next(each.job for each in backend.observe().pending if each.label == "0")

    before = job()
    site.seen = replace(site.seen, now_s=site.seen.now_s + later_s)
    assert (job().submit_s != before.submit_s) is moves
