from fractions import Fraction

import pytest

from cpsched_bridge.adapters.pbs.pbs_objects import (
    PbsJob,
    PbsQueue,
    PbsReservationRecord,
    PbsVnode,
    Record,
    parse_job,
    parse_queue,
    parse_reservation,
    parse_resource_amount,
    parse_unix_time_s,
    parse_vnode,
)


def test_amount_is_mebibytes_or_number():
    assert parse_resource_amount("512kb", True) == Fraction(1, 2)
    assert parse_resource_amount("2.5", False) == Fraction(5, 2)
    with pytest.raises(ValueError, match="is not a number"):
        parse_resource_amount("2gb", False)


def test_times_are_unix_seconds():
    assert parse_unix_time_s("1795426890") == 1_795_426_890
    assert parse_unix_time_s("Thu Jan  1 00:01:05 1970") == 65
    with pytest.raises(ValueError):  # noqa: PT011
        parse_unix_time_s("tomorrow")


def test_job_has_every_attribute():
    requested: dict[str, str | tuple[str, ...]] = {
        "walltime": "01:00:00", "min_walltime": "0", "max_walltime": "90", "cpsched_boost": "7", "ncpus": "4",
    }  # fmt: skip
    record: Record = {
        "job_state": "H", "substate": "20", "queue": "workq", "Job_Name": "n", "Job_Owner": "ada@login", "egroup": "g",
        "project": "p", "Resource_List": requested, "schedselect": "1:ncpus=4", "Priority": "12", "accrue_type": "2",
        "qtime": "9", "eligible_time": "00:01:00", "stime": "10", "resources_used": {"walltime": "61"},
        "exec_vnode": "(v:ncpus=4)", "Hold_Types": "us", "depend": "afterok:1", "Exit_status": "-3",
        "max_run_subjobs": "3",
    }  # fmt: skip
    assert parse_job(record) == PbsJob(
        state="H", substate="20", queue="workq", name="n", owner="ada", group="g", project="p", account="p",
        requested=requested, select="1:ncpus=4", walltime_s=3600, min_walltime_s=1, max_walltime_s=90, boost=7,  # type: ignore[arg-type]
        priority=12.0, accrue_type=2.0, submit_s=9, eligible_s=60, start_s=10, used_walltime_s=61,
        exec_vnode="(v:ncpus=4)", hold_types="us", has_dependency=True, exit_status="-3", max_running_subjobs=3,
    )  # fmt: skip


def test_unreadable_attributes_have_defaults_and_reasons():
    job = parse_job({"euser": ("a", "b"), "Resource_List": "x", "stime": "soon", "ctime": {}, "Job_Owner": "ada"})
    assert job == PbsJob(
        owner="ada",
        boost=None,
        unreadable={
            "Resource_List": "Resource_List has no parts",
            "euser": "euser is not a single text value",
            "stime": "'soon' is not a time",
        },
    )
    vnode = parse_vnode({"state": "free, busy", "resv": "R1, R2", "max_running": "1", "queue": ("a", "b")})
    assert vnode == PbsVnode(
        frozenset({"free", "busy"}), limits={"max_running": "1"}, reservations=frozenset({"R1", "R2"}),
        unreadable="queue is not a single text value",
    )  # fmt: skip
    limits: Record = {"max_run": "[u:ada=1]", "resources_available": {"ncpus": "8"}}
    queue = parse_queue(
        "q", {"queue_type": "Execution", "started": "y", "Priority": "high", "unreadable": "x", **limits}
    )
    assert queue == PbsQueue("q", is_execution_queue=True, is_started=True, limits=limits, unreadable="x")
    times: Record = {"reserve_start": "10", "reserve_duration": "5", "resv_nodes": ("(a:n=1)", "(b:n=1)")}
    expected = PbsReservationRecord("", 10, 15, ("a", "b"), "resv_nodes is not a single text value")
    assert parse_reservation(times) == expected
    assert parse_reservation({"reserve_end": "9"}).unreadable == "has no start or no end"
