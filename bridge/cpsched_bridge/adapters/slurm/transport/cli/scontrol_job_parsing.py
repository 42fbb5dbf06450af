r"""Parse facts that only `scontrol show job` shows, and query jobs with ambiguous records again.

The facts are read from lines that no user can write. scontrol prints names, comments and command lines unchanged. A job
named "x\n\nJobId=7 ..." therefore prints a record of job 7. These rules separate genuine lines from forged lines:
- A record begins with a line such as "JobId=7 ". Slurm prints exactly one record for each job. If two records have the
  same number, one of them is forged, and that job is queried again, separately from other jobs
  (`DuplicateJobRecordResolver`).
- A record's first text is the job's name, which `squeue` has already shown. The lines from the name to the line with
  `MinCPUsNode` hold numbers, times, states and names that Slurm has checked. If one of these lines appears twice, the
  job is unreadable.
- SpreadJob, NtasksPerTRES, SegmentSize, Extra, GresEnforceBind and TresPerJob are printed only if they are set, below
  text written by the job's owner. If an owner forges one of these settings, that owner's job is left to Slurm, waits
  for other nodes, or counts as a user of another type of GPU while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cpsched.slurm_text.known_fields import JOB
from cpsched_bridge.adapters.slurm.transport.cli.job_list_parsing import SqueueRow
from cpsched_bridge.errors import AnswerNotUnderstood, BackendError

ALL_JOBS_COMMAND = ("scontrol", "--details", "show", "job")
INTERACTIVE_COMMAND = ("scontrol", "--details")
"""Command line of a scontrol that reads commands from its input. See `format_show_job_input`."""
NO_JOBS_OUTPUT = "No jobs in the system\n"
LAST_TRUSTED_LINE = "\n   MinCPUsNode="

_OWNER_TEXT_START = "\n   Command="
"""Start of the line after which a record contains text written by the job's owner."""
_NAME = re.compile(r"[ \n]([A-Za-z][^ \n=]*)=")
_ALWAYS_HARMLESS = JOB.names - JOB.only.keys()
_RECORD_START = "\nJobId="
_MAX_JOB_ID_DIGITS = 10
_PROMPT = re.compile(r"^(?:scontrol: )+(?:show job \d+\n)?", re.MULTILINE)
_HEAD = re.compile(
    r"(?:ArrayJobId=(\d+) ArrayTaskId=(\S+) (?:ArrayTaskThrottle=(\d+) )?|HetJobId=\d+ HetJobOffset=\d+ )?JobName="
)
_SPREAD = re.compile(r"^   (?:\w+=(?:Yes|No)[ ,]?)*SpreadJob=Yes", re.MULTILINE)
_TASKS_PER_TRES = re.compile(r"^   NtasksPerTRES=(\d{1,5}) *$", re.MULTILINE)
_ENFORCES_BINDING = re.compile(r"^   (?:\w+=(?:Yes|No)[ ,]?)*GresEnforceBind=Yes", re.MULTILINE)
_EXTRA = re.compile(r"^   Extra=(.*)$", re.MULTILINE)
_TRES_PER_JOB = re.compile(r"^   TresPerJob=(\S+) *$", re.MULTILINE)
_SEGMENTS = re.compile(r"^   SegmentSize=(\d{1,5})( SpreadSegments=Yes)?( ConsolidateSegments=Yes)?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UnparsedScontrolJob:
    """A job's record before parsing."""

    array_id: int | None
    tasks: str
    """The index of an array task, or the indices of the tasks that wait in this record, such as "0-5,9%3"."""
    throttle: int | None
    body: str
    """The text that follows "JobName=" in the record."""


class ScontrolSegments(NamedTuple):
    """A job's topology segments."""

    size: int = 0
    spread: bool = False
    consolidate: bool = False


@dataclass(frozen=True, slots=True)
class ScontrolJobDetail:
    """The trusted settings of a job's record.

    `settings` maps the first name on each trusted line to the rest of that line.
    """

    settings: Mapping[str, str]
    layout: str
    """The lines that show the job's resources on its nodes."""
    spread: bool
    per_gpu: int | None
    segments: ScontrolSegments
    extra: str | None
    """The text of `--extra`, which the job's owner may forge."""
    enforces_binding: bool
    tres_per_job: str
    """Resources that the job requests in total, such as "gres/gpu:a100:2", or empty. The job's owner may forge it."""
    unknown: tuple[str, ...] = ()
    """Fields above the owner's text that `known_fields` does not list."""

    def get_value_on_line(self, line: str, name: str) -> str:
        """Return the value after `name=` on the line that begins with `line=`.

        Raise `KeyError` if it is missing.
        """
        found = f" {line}={self.settings[line]}".partition(f" {name}=")
        if not found[1]:
            raise KeyError(name)
        return found[2].split(" ")[0]

    def get_pending_reason(self) -> str:
        """Return Slurm's pending reason, in which scontrol prints underscores for blanks."""
        return self.get_value_on_line("JobState", "Reason").replace("_", " ")


def split_job_records(printed: str) -> tuple[dict[int, UnparsedScontrolJob], set[int]]:
    """Return the unambiguous records by job number, and the ambiguous numbers.

    A number is ambiguous if it has several records or if its record has an unexpected first
    line. Raise `AnswerNotUnderstood` if the answer is truncated.
    """
    before, *pieces = f"\n{printed}".split(_RECORD_START)
    if not pieces:
        if printed.strip() and printed != NO_JOBS_OUTPUT:
            raise AnswerNotUnderstood("scontrol show job: unexpected output format")
        return {}, set()
    if before.strip() or not printed.endswith("\n\n"):
        raise AnswerNotUnderstood(f"scontrol show job: the output ({len(printed)} characters) is truncated")
    found: dict[int, UnparsedScontrolJob] = {}
    twice: set[int] = set()
    for number, text in _split_by_job_number(pieces):
        head = _HEAD.match(text)
        if number in found or number in twice or head is None:
            twice.add(number)
            found.pop(number, None)
            continue
        array, tasks, throttle = head.groups()
        found[number] = UnparsedScontrolJob(
            int(array) if array else None, tasks or "", int(throttle) if throttle else None, text[head.end() :]
        )
    return found, twice


def _split_by_job_number(pieces: Sequence[str]) -> list[tuple[int, str]]:
    """Return the number and the remaining text of each record.

    A piece that does not begin with a number belongs to the text of the previous record.
    """
    found: list[tuple[int, list[str]]] = []
    for piece in pieces:
        number, blank, text = piece.partition(" ")
        if blank and len(number) <= _MAX_JOB_ID_DIGITS and number.isascii() and number.isdigit():
            found.append((int(number), [text]))
        elif found:
            found[-1][1].append(piece)
        else:
            raise AnswerNotUnderstood("scontrol show job: unexpected output format")
    return [(number, _RECORD_START.join(texts)) for number, texts in found]


def is_same_except_times(one: UnparsedScontrolJob, other: UnparsedScontrolJob, name: str) -> bool:
    """Return whether two records of the named job are equal except for their times."""
    if one is other or one == other:
        return True
    if (one.array_id, one.tasks, one.throttle) != (other.array_id, other.tasks, other.throttle):
        return False
    texts = [_strip_times(shown.body, name) for shown in (one, other)]
    return texts[0] is not None and texts[0] == texts[1]


def _strip_times(body: str, name: str) -> tuple[str, str, str] | None:
    """Return a record without its run time and last evaluation time.

    Return None if either time is missing.
    """
    start = len(name)
    run = body.find("\n   RunTime=", start)
    limit = body.find(" TimeLimit=", run)
    looked = body.find(" LastSchedEval=", limit)
    end = body.find("\n", looked)
    if not body.startswith(name) or min(run, limit, looked, end) < 0:
        return None
    return body[:run], body[limit:looked], body[end:]


def parse_job_detail(shown: UnparsedScontrolJob, name: str) -> ScontrolJobDetail | None:
    """Return the settings of a record of the named job, or None if they are ambiguous.

    `name` is the name that squeue prints.
    """
    body = shown.body
    start = len(name)
    end = body.find(LAST_TRUSTED_LINE, start)
    if end < 0 or not body.startswith(name) or not body.startswith("\n   ", start):
        return None
    last = body.find("\n", end + 1)
    first, *lines = body[start : last if last >= 0 else len(body)].split("\n   ")
    settings: dict[str, str] = {}
    layout: list[str] = []
    for line in lines:
        if line.startswith("  Nodes="):
            layout.append(line)
            continue
        key, _, value = line.partition("=")
        if key in settings:
            return None
        settings[key] = value
    if first or "UserId" not in settings:
        return None
    rest = body[end:]
    per_gpu = _TASKS_PER_TRES.search(rest) if "NtasksPerTRES=" in rest else None
    segments = _SEGMENTS.search(rest) if "SegmentSize=" in rest else None
    extra = _EXTRA.search(rest) if "Extra=" in rest else None
    tres_per_job = _TRES_PER_JOB.search(rest) if "TresPerJob=" in rest else None
    spread = "SpreadJob=" in rest and _SPREAD.search(rest) is not None
    return ScontrolJobDetail(
        settings,
        "\n".join(layout),
        spread,
        int(per_gpu[1]) if per_gpu else None,
        ScontrolSegments(int(segments[1]), *map(bool, segments.groups()[1:])) if segments else ScontrolSegments(),
        extra[1] if extra else None,
        "GresEnforceBind=Yes" in rest and _ENFORCES_BINDING.search(rest) is not None,
        tres_per_job[1] if tres_per_job else "",
        _find_unknown_fields(body[start : max(last, body.find(_OWNER_TEXT_START, end))]),
    )


def _find_unknown_fields(believed: str) -> tuple[str, ...]:
    if _ALWAYS_HARMLESS.issuperset(_NAME.findall(believed)):
        return ()
    return tuple(JOB.find_unsupported_fields(JOB.parse_fields(believed)))


def format_show_job_input(numbers: Collection[int]) -> str:
    """Return the input that makes one scontrol process show these jobs and no others."""
    return "".join(f"show job {number}\n" for number in sorted(numbers))


def strip_prompts(printed: str) -> str:
    """Return the output for `format_show_job_input` without prompts and echo.

    Some builds of scontrol echo their input.
    """
    return _PROMPT.sub("", printed)


MAX_QUERIES_PER_READING = 12
"""Maximum number of groups that one reading queries. Jobs in other groups are unreadable in that reading."""
JOBS_PER_QUERY = 1000
CACHE_S = 60.0
"""Seconds for which an answer is reused while squeue shows the job unchanged."""


@dataclass(slots=True)
class DuplicateJobRecordResolver:
    """A cache of unambiguous records.

    `ask` returns scontrol's output for some jobs, or None on failure.
    """

    ask: Callable[[list[int]], str | None]
    clock: Callable[[], float]
    _known: dict[int, tuple[float, SqueueRow, UnparsedScontrolJob]] = field(default_factory=dict)

    def resolve(self, numbers: Collection[int], rows: Mapping[int, SqueueRow]) -> dict[int, UnparsedScontrolJob]:
        """Return the unambiguous records among these jobs, by number."""
        now_s = self.clock()
        wanted = {number for number in numbers if number in rows}
        self._known = {
            number: known
            for number, known in self._known.items()
            if number in wanted and known[1] == rows[number] and now_s - known[0] < CACHE_S
        }
        missing = sorted(wanted - self._known.keys())
        groups = [missing[at : at + JOBS_PER_QUERY] for at in range(0, len(missing), JOBS_PER_QUERY)]
        for _ in range(MAX_QUERIES_PER_READING):
            if not groups:
                break
            group = groups.pop(0)
            found = self._query_group(group)
            self._known |= {number: (now_s, rows[number], shown) for number, shown in found.items()}
            left = [number for number in group if number not in found]
            if len(group) > 1 and left:
                half = max(1, len(left) // 2)
                groups += [part for part in (left[:half], left[half:]) if part]
        return {number: known[2] for number, known in self._known.items()}

    def _query_group(self, group: list[int]) -> dict[int, UnparsedScontrolJob]:
        printed = self.ask(group)
        if printed is None:
            return {}
        try:
            found, _ = split_job_records(printed)
        except BackendError:
            return {}
        return {number: shown for number, shown in found.items() if number in group}
