"""Parse ended jobs from `sacct` output, in which a random word ends each field."""

from __future__ import annotations

from typing import Any

from cpsched_bridge.adapters.slurm.slurm_records import ENDED_JOB_FIELDS, Record
from cpsched_bridge.adapters.slurm.transport.cli import slurm_output_values
from cpsched_bridge.errors import AnswerNotUnderstood
from cpsched_bridge.host_users import find_user_name

COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "UID", "Account", "Partition", "Submit", "Start", "End", "TimelimitRaw", "State",
    "NNodes", "NCPUS", "NodeList", "AllocTRES", "Reservation", "Constraints",
)  # fmt: skip


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


def parse_ended_jobs(printed: str, end: str, since_s: int) -> list[Record]:
    """Return the jobs that ended after `since_s`, except unreadable ones.

    The jobs are records with the fields in `ENDED_JOB_FIELDS`. Raise `AnswerNotUnderstood` if the output is incomplete.
    """
    *pieces, last = printed.split(end)
    wide = len(COLUMNS)
    if (last != "\n" if pieces else last.strip()) or len(pieces) % wide:
        raise AnswerNotUnderstood(f"sacct: the output ({len(printed)} characters) is truncated")
    names: dict[int, str | None] = {}
    found = []
    for at in range(0, len(pieces), wide):
        values = dict(zip(COLUMNS, pieces[at : at + wide], strict=True))
        if at and not values["JobIDRaw"].startswith("\n"):
            raise AnswerNotUnderstood("sacct: the output does not have the requested format")
        record = _build_ended_job_record(values, names)
        if record is not None and (record["end_time"] or 0) > since_s:
            found.append(record)
    return found


def _build_ended_job_record(values: dict[str, str], names: dict[int, str | None]) -> Record | None:
    """Return the record of one job, or None if a value cannot be parsed.

    For example, an array task may never have received its own number.
    """
    array, is_task, task = values["JobID"].partition("_")
    try:
        user = int(values["UID"])
        record: dict[str, Any] = {
            "id": int(values["JobIDRaw"]),
            "name": slurm_output_values.parse_text_or_none(values["JobName"]),
            "user_name": names[user] if user in names else names.setdefault(user, find_user_name(user)),
            "account": slurm_output_values.parse_text_or_none(values["Account"]),
            "partition": slurm_output_values.parse_text_or_none(values["Partition"]),
            "submit_time": slurm_output_values.parse_nonzero_or_none(values["Submit"]),
            "start_time": slurm_output_values.parse_nonzero_or_none(values["Start"]),
            "end_time": slurm_output_values.parse_nonzero_or_none(values["End"]),
            "time_limit": _parse_limit(values["TimelimitRaw"]),
            "state": values["State"].split(" ")[0],
            "num_nodes": slurm_output_values.parse_number_or_none(values["NNodes"]) or 0,
            "cpus": slurm_output_values.parse_number_or_none(values["NCPUS"]) or 0,
            "array_id": int(array) if is_task else None,
            "array_task_id": int(task) or None if is_task and task.isdigit() else None,
            "nodelist": slurm_output_values.parse_text_or_none(values["NodeList"]),
            "allocated_tres": slurm_output_values.parse_tres_amounts(values["AllocTRES"]),
            "reservation": slurm_output_values.parse_text_or_none(values["Reservation"]),
            "constraints": slurm_output_values.parse_text_or_none(values["Constraints"]),
        }
    except ValueError:
        return None
    return {field: record[field] for field in ENDED_JOB_FIELDS}


def _parse_limit(word: str) -> int | str | None:
    """Return the limit in minutes, None for no limit, or "PartitionLimit"."""
    if word == slurm_output_values.UNLIMITED:
        return None
    return slurm_output_values.parse_nonzero_or_none(word) or "PartitionLimit"
