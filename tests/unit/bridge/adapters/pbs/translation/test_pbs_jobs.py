"""Walltimes of shrink-to-fit jobs, and the time from which a job counts as waiting."""

from __future__ import annotations

from collections.abc import Callable
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


def seen(site: Site, label: str = "19") -> PendingJob:
    return next(each for each in site.backend().observe().pending if each.label == label)


def planned(site: Site) -> tuple[int, str, bool]:
    """The job's walltime, the rows of its vnodes without the natural vnode, which has nothing, and whether it waits."""
    found = site.backend().observe()
    job = next(each.job for each in found.pending if each.label == "19")
    mask = found.cluster.node_sets[job.request.node_set].tolist()
    rows = "".join(name for name, member in zip("-012", mask, strict=True) if member).removeprefix("-")
    assert job.ineligible in (None, PendingReason(PendingCode.NO_GAP))
    return job.walltime_s, rows, job.ineligible is not None


TWO_CHUNKS = {"schedselect": "2:ncpus=3", "place": "free"}
ALL_VNODES = {"schedselect": "3:ncpus=3", "place": "vscatter"}
IN_TURN = [(180, "0"), (300, "1"), (420, "2")]
MANY = [(600 * (at + 1), "012") for at in range(5 * MAX_TRIED_WALLTIMES)]


@pytest.mark.parametrize(
    ("wishes", "reservations", "taken", "expected"),
    [
        ({}, [], "", (600, "012", False)),
        # It shrinks to whole minutes before a reservation, but not below its minimum, which may have seconds.
        ({}, [(601, "012")], "", (600, "012", False)),
        ({}, [(600, "012")], "", (600, "012", False)),
        ({}, [(599, "012")], "", (540, "012", False)),
        ({}, [(330, "012")], "", (300, "012", False)),
        ({}, [(120, "012")], "", (120, "012", False)),
        ({}, [(119, "012")], "", (60, "012", False)),
        ({}, [(60, "012")], "", (60, "012", False)),
        ({}, [(59, "012")], "", (600, "012", True)),
        ({}, [(-5, "012")], "", (600, "012", True)),
        ({"min_walltime": "00:01:30"}, [(100, "012")], "", (90, "012", False)),
        # It shrinks only to start now, with all of its chunks.
        ({}, [(330, "0")], "", (600, "12", False)),
        ({}, [(330, "0")], "12", (300, "012", False)),
        ({}, [(330, "0")], "012", (600, "12", False)),
        (TWO_CHUNKS, [(330, "0")], "1", (300, "012", False)),
        # A job of all vnodes waits for a reservation of one, which is another question than whether it ever fits.
        (ALL_VNODES, [(-5, "0")], "", (600, "012", True)),
        # It shrinks for the latest reservation that leaves capacity. Of many, the longest and the minimum are tried.
        ({}, IN_TURN, "", (420, "2", False)),
        ({}, IN_TURN, "2", (300, "12", False)),
        ({"max_walltime": "10:00:00"}, MANY, "", (60, "012", False)),
        ({"max_walltime": "10:00:00"}, [*MANY, (7200 * 10, "012")], "", (60, "012", False)),
        # Its own walltime counts without a maximum, and at least its minimum. Otherwise, the bridge wrote it.
        ({"max_walltime": None}, [], "", (UNLIMITED_WALLTIME_S, "012", False)),
        ({"max_walltime": None, "walltime": "00:05:00"}, [], "", (300, "012", False)),
        ({"max_walltime": None, "walltime": "00:00:30"}, [], "", (60, "012", False)),
        ({"walltime": "00:02:00"}, [], "", (600, "012", False)),
    ],
)
def test_walltime_of_shrink_to_fit_job(
    wishes: dict[str, str | None],
    reservations: list[tuple[int, str]],
    taken: str,
    expected: tuple[int, str, bool],
) -> None:
    site = Site()
    record = {name: value for name, value in {**site.wishes(STF), **wishes}.items() if value is not None}
    site.seen.jobs[STF]["schedselect"] = record.pop("schedselect", site.seen.jobs[STF]["schedselect"])
    site.seen.jobs[STF]["Resource_List"] = record
    for at, (begins_in_s, rows) in enumerate(reservations):
        reserve(site, begins_in_s, *(f"vm[{row}]" for row in rows), name=f"R{at}.vm")
    for row in taken:
        site.seen.vnodes[f"vm[{row}]"]["resources_assigned"] = {"ncpus": "4"}
    assert planned(site) == expected


@pytest.mark.parametrize("name", ["min_walltime", "max_walltime"])
def test_leaves_job_with_unreadable_walltime(name: str) -> None:
    site = Site()
    site.wishes(STF)[name] = "soon"
    left = {each.label: words(each.reason) for each in site.backend().observe().unmanaged}
    assert "duration=soon: must be a time" in left["19"]


def started(site: Site, label: str, change: Callable[[], object] = list) -> tuple[str, str, list[tuple[str, ...]]]:
    """Decide on the job, let something happen, send the start; return its outcome and PBS's commands."""
    backend = site.backend()
    job = next(each.job for each in backend.observe().pending if each.label == label)
    change()
    (outcome,) = backend.start([StartOrder(job, (("vm[0]", 1),))])
    return outcome.result, outcome.code, site.sent


RUN = ("run", STF, "(vm[0]:ncpus=1)")
LONG = {"min_walltime": "9000:00:00", "max_walltime": "90000:00:00"}


@pytest.mark.parametrize(
    ("wishes", "fails", "expected"),
    [
        ({}, None, ("done", "", [("walltime", STF, "600"), RUN])),
        (LONG, None, ("done", "", [("walltime", STF, str(90000 * 3600)), RUN])),
        ({}, BackendTimeout("no answer"), ("refused", "not_sent", [("walltime", STF, "600")])),
        ({}, CommandRefused("Unauthorized Request"), ("refused", "", [("walltime", STF, "600")])),
    ],
)
def test_writes_walltime_before_start(
    wishes: dict[str, str], fails: BackendError | None, expected: tuple[str, str, list[tuple[str, ...]]]
) -> None:
    site = Site(fails={} if fails is None else {"walltime": fails})
    site.wishes(STF).update(wishes)
    assert started(site, "19") == expected


def test_writes_no_walltime_of_other_or_unlimited_job() -> None:
    plain, unlimited = Site(), Site()
    del unlimited.wishes(STF)["max_walltime"]
    for result, code, sent in (started(plain, "0"), started(unlimited, "19")):
        assert (result, code, [words[0] for words in sent]) == ("done", "", ["run"])


@pytest.mark.parametrize(
    ("begins_in_s", "expected"),
    [
        (290, ("done", "", [("walltime", STF, "240"), RUN])),
        (30, ("refused", "", [])),
        (420, ("refused", "", [])),
    ],
)
def test_nearer_reservation_shortens_decided_job(begins_in_s: int, expected: object) -> None:
    """A change that needs a new decision refuses the start."""
    site = Site()
    reserve(site, 330)
    assert started(site, "19", lambda: reserve(site, begins_in_s)) == expected


def test_sends_no_start_after_unanswered_walltime() -> None:
    site = Site(fails={"walltime": BackendTimeout("no answer")})
    backend = site.backend()
    jobs = {each.label: each.job for each in backend.observe().pending}
    outcomes = backend.start([StartOrder(jobs["19"], (("vm[0]", 1),)), StartOrder(jobs["0"], (("vm[1]", 1),))])
    assert [(each.detail, each.code) for each in outcomes] == [("not sent: no answer", "not_sent")] * 2
    assert [words[0] for words in site.sent] == ["walltime"]


def test_refuses_start_of_job_moved_to_another_managed_queue() -> None:
    site = Site()
    site.seen.queues["second"] = dict(site.seen.queues["managed"])  # type: ignore[index]
    backend = PbsBackend(PbsProgramRunner(), ("managed", "second"), "leftq", reader=site, commands=site)  # type: ignore[arg-type]
    job = next(each.job for each in backend.observe().pending if each.label == "0")
    site.seen.jobs["0.vm"]["queue"] = "second"
    assert backend.start([StartOrder(job, (("vm[0]", 1),))])[0].result == "refused"
    assert not site.sent


def test_running_job_has_current_walltime() -> None:
    """A manager may lengthen it, and a job that shrinks gets it when it starts."""
    site = Site()
    backend = site.backend()
    assert next(each.job.walltime_s for each in backend.observe().pending if each.label == "0") == 3600
    site.seen.jobs["0.vm"].update(
        {"job_state": "R", "substate": "42", "exec_vnode": "(vm[0]:ncpus=2:mem=1048576kb)", "stime": str(NOW_S)}
    )
    site.wishes("0.vm")["walltime"] = "02:00:00"
    now = backend.observe()
    (run,) = [each for each in now.running if each.job.id == 0]
    assert (run.job.walltime_s, run.job.request.units) == (7200, 1)
    assert now.otherwise == {}, "it has what it asked for"


@pytest.mark.parametrize(
    ("facts", "runs"),
    [
        ({"job_state": "E", "Exit_status": "-3"}, False),
        ({"job_state": "E", "Exit_status": "-16"}, False),
        ({"job_state": "E", "Exit_status": "-22"}, False),
        ({"job_state": "E", "Exit_status": "0"}, True),
        ({"job_state": "E", "Exit_status": "-11"}, True),
        ({"job_state": "E", "Exit_status": "271"}, True),
        # The status is still that of the time before the host accepted the job.
        ({"job_state": "R", "substate": "42", "Exit_status": "-3"}, True),
    ],
)
def test_exiting_job_has_run_unless_host_rejected_it(facts: dict[str, str], runs: bool) -> None:
    site = Site()
    site.seen.jobs["0.vm"].update({"exec_vnode": "(vm[0]:ncpus=2)", **facts})
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


def test_unreadable_running_job_has_amount_of_each_resource() -> None:
    """Else no decision could be made beside it."""
    site = Site()
    site.seen.jobs["0.vm"].update({"job_state": "R", "substate": "42", "exec_vnode": "(gone:ncpus=2)"})
    found = site.backend().observe()
    (run,) = [each for each in found.running if each.job.id == 0]
    assert (len(run.job.request.per_unit), run.placement) == (len(found.cluster.resources), ())


@pytest.mark.parametrize(
    ("eligible", "counts", "submit_s"),
    [
        ("00:01:00", "False", 1795426864),
        ("00:01:00", "True", NOW_S - 60),
        ("long", "True", 1795426864),
        ("9999999:00:00", "True", 0),
    ],
)
def test_submit_time_follows_eligible_time(eligible: str, counts: str, submit_s: int) -> None:
    site = Site()
    site.seen.server["eligible_time_enable"] = counts
    site.seen.jobs["0.vm"]["eligible_time"] = eligible
    assert seen(site, "0").job.submit_s == submit_s


def test_sorts_jobs_by_eligible_time_which_subjobs_inherit() -> None:
    site = Site()
    site.seen.server["eligible_time_enable"] = "True"
    times = {STF: "02:00:00", "3[].vm": "00:02:00", "3[2].vm": "00:01:00"}
    for name in (name for name in site.seen.jobs if name in times or "[" not in name):
        site.seen.jobs[name]["eligible_time"] = times.get(name, "01:00:00")
    pending = site.backend().observe().pending
    found = {each.label: each.job.submit_s for each in pending}
    assert (pending[0].label, found["3[1]"], found["3[2]"]) == ("19", NOW_S - 120, NOW_S - 60)


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
