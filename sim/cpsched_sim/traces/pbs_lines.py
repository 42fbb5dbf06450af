"""Parse lines of PBS's accounting log, and convert a job's request to the units of a replay.

The format is `MM/DD/YYYY HH:MM:SS;TYPE;ID;NAME=VALUE NAME=VALUE ...`.

Users choose some of the values: account, project, job name and parts of the request. PBS writes them as is, in quotes
if they contain a blank. Quoted text can look like further fields, so a duplicate field has no value
(`PbsRecordFields.twice`). Text without quotes has no blank, but it may contain line breaks and tabs.

A request consists of `select` and `place`, with sizes and durations.

- Equal chunks become one unit each; `place=pack` combines them into a single unit.
- `scatter` and `vscatter` place units on distinct nodes; `excl` and `exclhost` make nodes exclusive.
- Different chunks become equal units, one per host of the job (one per chunk if it never ran). Each unit has an equal
  share of the sums, rounded up.
- Without `select`, as in Torque, `nodes=2:ib:ppn=8+n3:ppn=2` defines the chunks, each on its own node if the job
  had that many hosts. Without `nodes`, the job has the cores of its slots (`exec_host=n1/0+n1/1`), or `ncpus`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from cpsched.errors import InvalidValue
from cpsched.pbs_text import PbsSelectChunk, parse_pbs_place, parse_pbs_select, parse_size_bytes
from cpsched_sim.input.input_limits import MAX_AMOUNT, MAX_UNITS
from cpsched_sim.traces.trace_record import UnitsRequest

_LINE = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d);([A-Za-z]);([^;]*);(.*)", re.ASCII | re.DOTALL)
_FIELD = re.compile(r"""([A-Za-z_][\w.\-]*)=(?:"([^"]*)"(?=\s|$)|'([^']*)'(?=\s|$)|([^ ]*))""", re.ASCII)
_OPENED_QUOTE = re.compile(r'\s(?:account="|project="(?!\S* (?:accounting_id|jobname)=))')
_CLOSED_QUOTE = re.compile(r'"\s+(?:project|accounting_id|jobname)=')
_JOB = re.compile(r"(\d{1,18})(?:\[(\d{0,7})\]|-(\d{1,7}))?(?:\.(\S+))?$", re.ASCII)


class PbsAccountingLine(NamedTuple):
    """One line of the log. `at` is its local time, such as `2026-11-23T09:30:00`."""

    at: str
    kind: str
    id: str
    text: str


class PbsJobId(NamedTuple):
    """A PBS job id: `7[2].vm`, or `7-2.vm` in old Torque, is subjob 2 of job 7.

    `subjob` is -1 for a job without an array, and None for an array as a whole. `server` is `vm`.
    """

    number: int
    subjob: int | None
    server: str


def looks_like_pbs_log_line(text: str) -> bool:
    """Return whether the text begins like a line of the log."""
    return _LINE.match(text.lstrip()) is not None


def is_split_record(text: str, following: str) -> bool:
    """Return whether `following` continues the record in `text`.

    PBS does not escape line breaks in users' text, after which a record's last fields are missing. A line that looks
    like another record belongs to the text only within quotes, because a record's date and time contain a blank.
    """
    match = _LINE.match(text)
    if match is None or match[5] not in "EQRS" or not match[7].startswith("user="):
        return False
    opened = _OPENED_QUOTE.search(match[7])
    if opened is not None and _CLOSED_QUOTE.search(match[7], opened.end()) is None:
        return True
    _, _, after_user_text = match[7].partition(" jobname=")
    return " ctime=" not in after_user_text and _LINE.match(following) is None


def parse_pbs_line(text: str) -> PbsAccountingLine:
    """Split a line into its parts. Raise `InvalidValue` for any other text."""
    match = _LINE.match(text.strip())
    if not match:
        raise InvalidValue("line", text.strip(), "must be like 11/23/2026 09:30:00;E;7.server;user=ada ...")
    month, day, year, clock, kind, id, rest = match.groups()
    return PbsAccountingLine(f"{year}-{month}-{day}T{clock}", kind, id, rest)


def parse_pbs_job_id(text: str) -> PbsJobId:
    """Parse a PBS job id. Raise `InvalidValue`."""
    match = _JOB.match(text)
    if not match:
        raise InvalidValue("job", text, "must be like 7.server, or 7[2].server for a subjob")
    number, index, task, server = match.groups()
    index = task if index is None else index
    return PbsJobId(int(number), -1 if index is None else int(index) if index else None, server or "")


class PbsRecordFields(dict[str, str]):
    """A line's fields by name. `twice` contains the names that occur more than once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.twice: set[str] = set()
        at = 0
        while at < len(text):
            match = _FIELD.match(text, at)
            if match is None:
                at = _next_word_index(text, at)
                continue
            name, *values = match.groups()
            if name in self:
                self.twice.add(name)
            self[name] = next((value for value in values if value is not None), "")
            at = _next_word_index(text, match.end())


_BLANKS = re.compile(r"\s+")


def _next_word_index(text: str, at: int) -> int:
    """Return the index at which the next word starts."""
    match = _BLANKS.search(text, at)
    return match.end() if match else len(text)


_COUNT_PATTERN = re.compile(r"\d{1,12}$", re.ASCII)
_HOST = re.compile(r"([^/+()]+)/\d+(?:\*\d+)?")
_SLOTS = re.compile(r"([^/+()]+)/(\d{1,9}(?:[-,]\d{1,9})*)(?:\*(\d{1,9}))?", re.ASCII)
_GPU_RESOURCES = ("ngpus", "naccelerators")
_TORQUE_RESOURCES = {"ppn", "gpus"}
_KNOWN_RESOURCES = {"ncpus", "mem", "mpiprocs", "ompthreads", *_GPU_RESOURCES}
DIFFERENT_CHUNKS_NOTE = "the chunks of select differ: read as equal units with the same totals"
OTHER_RESOURCES_NOTE = "chunks request more than cores, memory and GPUs: the rest is ignored"
EMPTY_REQUEST_NOTE = "requests nothing: read as one core"
PLACE_GROUP_NOTE = "place=group=... is ignored"


class PbsRequestedUnits(NamedTuple):
    """The units of a job's request, and notes on the parts that a replay ignores."""

    units: UnitsRequest
    notes: tuple[str, ...]


class _EqualChunks(NamedTuple):
    copies: int
    amounts: tuple[int, int, int]
    """Cores, memory in MiB, and GPUs of one chunk."""
    has_others: bool


def parse_pbs_size_mib(text: str) -> int:
    """Convert `1gb`, `1048576kb` or `100mw` to MiB, rounded up. Raise `InvalidValue`."""
    mib = -(-parse_size_bytes(text, "mem") >> 20)
    if mib > MAX_AMOUNT:
        raise InvalidValue("mem", text, f"must be at most {MAX_AMOUNT:,} MiB")
    return mib


def parse_exec_hosts(exec_host: str) -> list[str]:
    """Return the distinct hosts in `a/0*2+b/1`, in order."""
    return list(dict.fromkeys(_HOST.findall(exec_host)))


def parse_pbs_request(fields: Mapping[str, str], partition: str) -> PbsRequestedUnits:
    """Parse the request in the fields of an accounting line. Raise `InvalidValue`."""
    select, nodes = fields.get("Resource_List.select", ""), fields.get("Resource_List.nodes", "")
    hosts = parse_exec_hosts(fields.get("exec_host", ""))
    place = parse_pbs_place(fields.get("Resource_List.place", ""))
    apart = place.arrangement in ("scatter", "vscatter")
    if select:
        chunks = [_parse_chunk(each) for each in parse_pbs_select(select, "Resource_List.select")]
    elif nodes:
        chunks = _parse_torque_nodes(nodes, fields)
        apart = len(hosts) in (0, sum(chunk.copies for chunk in chunks))
    else:
        chunks = _chunks_from_slots(fields)
        apart = len(hosts) > 1
    exclusive = place.sharing in ("excl", "exclhost")
    notes = [PLACE_GROUP_NOTE] if place.group else []
    if any(chunk.has_others for chunk in chunks):
        notes.append(OTHER_RESOURCES_NOTE)
    count = sum(chunk.copies for chunk in chunks)
    if not 0 < count <= MAX_UNITS:
        name = "Resource_List.select" if select else "Resource_List.nodes"
        raise InvalidValue(name, select or nodes, f"must have from 1 to {MAX_UNITS:,} chunks")
    kinds = {chunk.amounts for chunk in chunks}
    sums = tuple(sum(chunk.copies * chunk.amounts[at] for chunk in chunks) for at in range(3))
    if place.arrangement == "pack":
        units, amounts = 1, sums
    elif len(kinds) == 1:
        units, amounts = count, chunks[0].amounts
    else:
        units = len(hosts) or count
        apart = apart or units > 1
        amounts = tuple(-(-amount // units) for amount in sums)
        notes.append(DIFFERENT_CHUNKS_NOTE)
    if not any(amounts):
        amounts = (1, 0, 0)
        notes.append(EMPTY_REQUEST_NOTE)
    each = tuple((name, n) for name, n in zip(("cores", "memory_mib", "gpus"), amounts, strict=True) if n)
    return PbsRequestedUnits(UnitsRequest(units, each, apart and units > 1, exclusive, partition), tuple(notes))


def _parse_torque_nodes(text: str, fields: Mapping[str, str]) -> list[_EqualChunks]:
    """Parse `2:ib:ppn=8+n3:ppn=2#shared`.

    Each part begins with a number of nodes or a node name. The rest is the request per node.
    """
    parts = [part.split(":") for part in text.partition("#")[0].split("+")]
    found: list[tuple[int, int, int, bool]] = []
    for words in parts:
        asked = dict(word.partition("=")[::2] for word in words if "=" in word)
        count = int(words[0]) if _COUNT_PATTERN.match(words[0]) else 1
        others = len(words) - 1 > len(asked) or bool(asked.keys() - _TORQUE_RESOURCES)
        found.append(
            (
                count,
                _parse_whole_number("ppn", asked.get("ppn", "1")),
                _parse_whole_number("gpus", asked.get("gpus", "0")),
                others,
            )
        )
    nodes = max(1, sum(count for count, *_ in found))
    mib, mib_a_core = (parse_pbs_size_mib(fields.get(f"Resource_List.{name}", "0")) for name in ("mem", "pmem"))
    return [
        _EqualChunks(count, (cores, max(-(-mib // nodes), mib_a_core * cores), gpus), others)
        for count, cores, gpus, others in found
    ]


def _chunks_from_slots(fields: Mapping[str, str]) -> list[_EqualChunks]:
    """Return one unit, or one per host if a job had more slots than requested cores.

    The job has neither `select` nor `nodes`.
    """
    whole, slots = _whole_job_as_chunk(fields), _count_slots_by_host(fields.get("exec_host", ""))
    cores, mib, gpus = whole.amounts
    if slots.total() <= cores:
        return [whole]
    return [_EqualChunks(1, (mine, -(-mib // len(slots)), -(-gpus // len(slots))), False) for mine in slots.values()]


def _count_slots_by_host(exec_host: str) -> Counter[str]:
    """Return how many cores a job had on each host: `n1/0+n1/1`, `n1/0-1,5`, `n1/0*2`."""
    found = Counter[str]()
    for host, numbers, times in _SLOTS.findall(exec_host):
        for part in numbers.split(","):
            first, dash, last = part.partition("-")
            found[host] += (max(0, int(last) - int(first)) + 1 if dash else 1) * int(times or "1")
    return found


def _whole_job_as_chunk(fields: Mapping[str, str]) -> _EqualChunks:
    """Return the totals of a job without `select` as one chunk."""
    gpus = next((text for name in _GPU_RESOURCES if (text := fields.get(f"Resource_List.{name}"))), "0")
    cores = max(1, _parse_whole_number("Resource_List.ncpus", fields.get("Resource_List.ncpus", "1")))
    memory = parse_pbs_size_mib(fields.get("Resource_List.mem", "0"))
    return _EqualChunks(1, (cores, memory, _parse_whole_number("Resource_List.ngpus", gpus)), False)


def _parse_chunk(chunk: PbsSelectChunk) -> _EqualChunks:
    """Return a chunk's amounts. As in PBS, the default is one core."""
    asked = chunk.asked
    gpus = next((asked[name] for name in _GPU_RESOURCES if name in asked), "0")
    amounts = (
        _parse_whole_number("ncpus", asked.get("ncpus", "1")),
        parse_pbs_size_mib(asked.get("mem", "0")),
        _parse_whole_number("ngpus", gpus),
    )
    return _EqualChunks(chunk.count, amounts, bool(asked.keys() - _KNOWN_RESOURCES))


def _parse_whole_number(field: str, text: str) -> int:
    if not _COUNT_PATTERN.match(text) or int(text) > MAX_AMOUNT:
        raise InvalidValue(field, text, f"must be a whole number of at most {MAX_AMOUNT:,}")
    return int(text)
