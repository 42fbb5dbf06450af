"""Parse jobs from the output of `squeue` and `sacct`, in a format that no job's text can break.

`squeue -O FIELD:WORD` prints a field in full, followed by WORD, if WORD does not begin with a digit. Source:
`_parse_long_token` and `_print_str` in Slurm's src/squeue, unchanged from 22.05 to 26.05. The word is random for each
answer, so no user can have written it into a name. It separates fields and records even if they contain line breaks.

If waiting tasks of an array have their own records, squeue merges those records into the array's common record
(`_combine_pending_array_tasks`). `scontrol_job_parsing` finds the merged records in scontrol's output. They are then
queried by number.

`sacct` lists ended jobs. A random word ends each of its fields, too.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from cpsched.slurm_text.jobs import NO_AMOUNTS, UNLIMITED, SlurmJob, TimeLimit
from cpsched.slurm_text.output_values import parse_number, parse_text_or_none, parse_tres_amounts
from cpsched_bridge.errors import AnswerNotUnderstood
from cpsched_bridge.users import find_user_name

COMMON_COLUMNS = (
    "JobID", "JobArrayID", "State", "Reason", "PriorityLong", "Name", "UserID", "Account", "Partition", "QOS",
    "SubmitTime", "EligibleTime", "StartTime", "EndTime", "NumNodes", "MaxNodes", "NumCPUs", "NTPerNode", "CPUsPerTask",
    "cpus-per-tres", "MinCPUs", "OverSubscribe", "tres-per-node", "tres-per-task", "HetJobID", "admin_comment",
    "Comment", "RestartCnt", "TimeLimit", "Reservation", "Licenses",
)  # fmt: skip
PENDING_COLUMNS = (
    "ReqNodes", "Dependency", "Feature", "Prefer", "ClusterFeature", "BurstBuffer", "Network",
    "Deadline", "Contiguous", "Reboot", "ReqSwitch", "CoreSpec", "BoardsPerNode", "SPerBoard", "Sockets", "Cores",
    "Threads", "NTPerBoard", "NTPerSocket", "NTPerCore", "tres-per-socket", "MinTmpDisk", "MCSLabel", "Nice",
    "AccrueTime",
)  # fmt: skip
PLACED_COLUMNS = ("NodeList", "tres-alloc", "Requeue", "BatchFlag")
ALL_COLUMNS = (*COMMON_COLUMNS, *PENDING_COLUMNS, *PLACED_COLUMNS)
COLUMNS_SINCE_26_05 = ("Exclusive", "LicensesAlloc")
"""Columns that 26.05 has.

Earlier releases show exclusive use of whole nodes as a value of `OverSubscribe`.
"""


class SqueueRow(NamedTuple):
    """A job's values as squeue prints them, in the order of `ALL_COLUMNS` and `COLUMNS_SINCE_26_05`.

    A column that an earlier release lacks is empty.
    """

    job_id: str = ""
    job_array_id: str = ""
    state: str = ""
    reason: str = ""
    priority: str = ""
    name: str = ""
    user_id: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    submit_time: str = ""
    eligible_time: str = ""
    start_time: str = ""
    end_time: str = ""
    num_nodes: str = ""
    max_nodes: str = ""
    num_cpus: str = ""
    ntasks_per_node: str = ""
    cpus_per_task: str = ""
    cpus_per_tres: str = ""
    min_cpus: str = ""
    oversubscribe: str = ""
    tres_per_node: str = ""
    tres_per_task: str = ""
    het_job_id: str = ""
    admin_comment: str = ""
    comment: str = ""
    restart_count: str = ""
    time_limit: str = ""
    reservation: str = ""
    licenses: str = ""
    required_nodes: str = ""
    dependency: str = ""
    features: str = ""
    preferred_features: str = ""
    cluster_features: str = ""
    burst_buffer: str = ""
    network: str = ""
    deadline: str = ""
    contiguous: str = ""
    reboot: str = ""
    required_switches: str = ""
    core_spec: str = ""
    boards_per_node: str = ""
    sockets_per_board: str = ""
    sockets_per_node: str = ""
    cores_per_socket: str = ""
    threads_per_core: str = ""
    ntasks_per_board: str = ""
    ntasks_per_socket: str = ""
    ntasks_per_core: str = ""
    tres_per_socket: str = ""
    min_tmp_disk: str = ""
    mcs_label: str = ""
    nice: str = ""
    accrue_time: str = ""
    node_list: str = ""
    tres_alloc: str = ""
    requeue: str = ""
    batch_flag: str = ""
    exclusive: str = ""
    licenses_alloc: str = ""


VOLATILE_FIELDS = frozenset({"reason", "priority", "start_time", "end_time", "accrue_time", "eligible_time"})
"""Fields of waiting jobs that Slurm itself often changes, without a change of any field that only scontrol shows."""
_get_stable_values = itemgetter(*(at for at, name in enumerate(SqueueRow._fields) if name not in VOLATILE_FIELDS))
_FIELD_SEPARATOR = "\0"
"""Replacement for the random word. No text from Slurm contains this byte."""
MAX_JOBS_PER_QUERY = 2000
"""Maximum number of jobs that one squeue queries by number, because it compares each job with all of these numbers."""


def make_field_terminator() -> str:
    """Return a new word with 64 random bits."""
    return f"~{secrets.token_urlsafe(8)}"


def select_squeue_fields(version: tuple[int, int]) -> tuple[str, ...]:
    """Return the job fields that squeue provides in a given release."""
    return (*ALL_COLUMNS, *COLUMNS_SINCE_26_05) if version >= (26, 5) else ALL_COLUMNS


def build_squeue_command(fields: Sequence[str], end: str, numbers: Collection[int] = ()) -> list[str]:
    """Return the squeue command that prints these fields, each followed by `end`.

    The command lists all jobs, or only those with the given numbers.
    """
    named = ["--jobs", ",".join(map(str, sorted(numbers)))] if numbers else []
    form = ",".join(f"{field}:{end}" for field in fields)
    return ["squeue", "--local", "--all", "--states=all", "--noheader", "--noconvert", *named, "--Format", form]


class CachingSqueueParser:
    """A parser of squeue output, which reuses the rows of unchanged jobs."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._count = len(fields)
        self._before: dict[str, SqueueRow] = {}

    def read(self, printed: str, end: str) -> list[SqueueRow]:
        """Return the jobs in an answer.

        Raise `AnswerNotUnderstood` if the answer is incomplete or a field is missing.
        """
        if _FIELD_SEPARATOR in printed:
            raise AnswerNotUnderstood("squeue: the output does not have the requested format")
        *lines, last = printed.replace(end, _FIELD_SEPARATOR).split(f"{_FIELD_SEPARATOR}\n")
        if last if lines else last.strip():
            raise AnswerNotUnderstood(f"squeue: the output ({len(printed)} characters) is truncated")
        found: list[SqueueRow] = []
        known: dict[str, SqueueRow] = {}
        begun = ""
        for line in lines:
            text = begun + line
            row = self._before.get(text)
            if row is None:
                values = text.split(_FIELD_SEPARATOR)
                if len(values) < self._count:  # the next field begins with a line break
                    begun = f"{text}{_FIELD_SEPARATOR}\n"
                    continue
                if len(values) > self._count:
                    raise AnswerNotUnderstood("squeue: the output does not have the requested format")
                row = SqueueRow(*values)
            begun, known[text] = "", row
            found.append(row)
        if begun:
            raise AnswerNotUnderstood(f"squeue: the output ({len(printed)} characters) is truncated")
        self._before = known
        return found


def index_rows_by_job_number(found: Sequence[SqueueRow]) -> dict[int, SqueueRow]:
    """Return the jobs, keyed by Slurm's `JobID`.

    Raise `AnswerNotUnderstood` if a number is missing or repeated.
    """
    try:
        numbered = {int(row.job_id): row for row in found}
    except ValueError as error:
        raise AnswerNotUnderstood(f"squeue: a job has no valid number: {error}") from error
    if len(numbered) != len(found):
        raise AnswerNotUnderstood("squeue: a job is listed twice")
    return numbered


def is_job_row_unchanged(before: SqueueRow | None, now: SqueueRow) -> bool:
    """Return whether a job is unchanged.

    Ignore the fields in `VOLATILE_FIELDS` while the job waits.
    """
    if before is now or before is None:
        return before is now
    if before.state != "PENDING":
        return before == now
    return bool(_get_stable_values(before) == _get_stable_values(now))


def split_into_query_chunks(numbers: Collection[int]) -> list[list[int]]:
    """Return the job numbers in chunks that one squeue accepts."""
    ordered = sorted(numbers)
    return [ordered[at : at + MAX_JOBS_PER_QUERY] for at in range(0, len(ordered), MAX_JOBS_PER_QUERY)]


def has_array_records(found: Mapping[int, SqueueRow]) -> bool:
    """Return whether any row is an array's common record.

    Such a record may hide other records.
    """
    return any("_[" in row.job_array_id for row in found.values())


def has_pending_arrays(found: Mapping[int, SqueueRow]) -> bool:
    """Return whether any array's common record is pending.

    The common records of ended tasks hide no other records.
    """
    return any("_[" in row.job_array_id and row.state == "PENDING" for row in found.values())


SACCT_COLUMNS = (
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
        f"--starttime=uts{max(MIN_TIME_S, since_s)}", "--endtime=now", f"--format={','.join(SACCT_COLUMNS)}",
    ]  # fmt: skip


def parse_ended_jobs(printed: str, end: str, since_s: int) -> list[SlurmJob]:
    """Return the jobs that ended after `since_s`, except unreadable ones.

    Raise `AnswerNotUnderstood` if the output is incomplete.
    """
    *pieces, last = printed.split(end)
    wide = len(SACCT_COLUMNS)
    if (last != "\n" if pieces else last.strip()) or len(pieces) % wide:
        raise AnswerNotUnderstood(f"sacct: the output ({len(printed)} characters) is truncated")
    names: dict[int, str] = {}
    jobs = []
    for at in range(0, len(pieces), wide):
        values = dict(zip(SACCT_COLUMNS, pieces[at : at + wide], strict=True))
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
