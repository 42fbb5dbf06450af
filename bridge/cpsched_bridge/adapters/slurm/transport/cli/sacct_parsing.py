"""Parse ended jobs from `sacct` output, in which a random word ends each field."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from cpsched.slurm_text.jobs import NO_AMOUNTS, UNLIMITED, SlurmJob, TimeLimit
from cpsched.slurm_text.output_values import (
    parse_number,
    parse_text_or_none,
    parse_tres_amounts,
)
from cpsched_bridge.errors import AnswerNotUnderstood
from cpsched_bridge.host_users import find_user_name

COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "UID", "Account", "Partition", "Submit", "Start", "End", "TimelimitRaw", "State",
    "NNodes", "NCPUS", "NodeList", "AllocTRES", "Reservation", "Constraints",
)  # fmt: skip
NO_NODES = ("", "(null)", "None assigned")
"""Node lists of a job that never ran."""
MIN_TIME_S = 1_000_000
"""Earliest start time in Unix seconds that sacct accepts after `uts`."""


def build_sacct_command(since_s: int, end: str) -> list[str]:
    """Return the sacct command that lists all users' jobs since `since_s`.

    It omits job steps.
    """
    return [
        "sacct", "--allusers", "--allocations", "--noheader", "--noconvert", "--parsable", f"--delimiter={end}",
        f"--starttime=uts{max(MIN_TIME_S, since_s)}", "--endtime=now", f"--format={','.join(COLUMNS)}",
    ]  # fmt: skip


def parse_ended_jobs(printed: str, end: str, since_s: int) -> list[SlurmJob]:
    """Return the jobs that ended after `since_s`, except unreadable ones.

    Raise `AnswerNotUnderstood` if the output is incomplete.
    """
    *pieces, last = printed.split(end)
    wide = len(COLUMNS)
    if (last != "\n" if pieces else last.strip()) or len(pieces) % wide:
        raise AnswerNotUnderstood(f"sacct: the output ({len(printed)} characters) is truncated")
    names: dict[int, str] = {}
    jobs = []
    for at in range(0, len(pieces), wide):
        values = dict(zip(COLUMNS, pieces[at : at + wide], strict=True))
        if at and not values["JobIDRaw"].startswith("\n"):
            raise AnswerNotUnderstood("sacct: the output does not have the requested format")
        with contextlib.suppress(ValueError):  # for example, an array task may never have received its own number
            job = _parse_ended_job(values, names)
            if job.end_time > since_s:
                jobs.append(job)
    return jobs


def _parse_ended_job(values: Mapping[str, str], names: dict[int, str]) -> SlurmJob:
    array, is_task, task = values["JobID"].partition("_")
    user_id, start_s = int(values["UID"]), parse_number(values["Start"])
    if user_id not in names:
        names[user_id] = find_user_name(user_id) or ""
    constraints = parse_text_or_none(values["Constraints"])
    return SlurmJob(
        id=int(values["JobIDRaw"]),
        state=values["State"].split(" ")[0],
        name=parse_text_or_none(values["JobName"]) or "",
        user_id=user_id,
        user_name=names[user_id],
        account=parse_text_or_none(values["Account"]) or "",
        partition=parse_text_or_none(values["Partition"]) or "",
        submit_time=parse_number(values["Submit"]) or start_s,
        start_time=start_s,
        end_time=parse_number(values["End"]),
        time_limit=_parse_limit(values["TimelimitRaw"]),
        num_nodes=parse_number(values["NNodes"]) or 1,
        cpus=parse_number(values["NCPUS"]) or 1,
        array_id=int(array) if is_task else 0,
        array_task_id=int(task) if is_task and task.isdigit() else 0,
        allocated_nodes="" if values["NodeList"] in NO_NODES else values["NodeList"],
        allocated_tres=parse_tres_amounts(values["AllocTRES"]) or NO_AMOUNTS,
        constraints=() if constraints is None else (constraints,),
        reservation=parse_text_or_none(values["Reservation"]) or "",
    )


def _parse_limit(word: str) -> TimeLimit:
    """Return the limit, or None if the job had the partition's limit."""
    return UNLIMITED if word == UNLIMITED else parse_number(word) or None
