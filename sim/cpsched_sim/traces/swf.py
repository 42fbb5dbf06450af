"""Read the Standard Workload Format: one job of 18 numbers per line.

Comments begin with `;` (Feitelson et al., version 2.2).

| field | here | if missing or invalid |
|---|---|---|
| 1 job number | id | must appear once |
| 2 submit | submit_s | must not be negative |
| 3 wait | start_s = submit_s + wait | below 0: unknown |
| 4 run time | run_s | below 1 (never ran, or unknown): job dropped |
| 8 requested processors | processors | below 1: field 5 (allocated); both below 1: job dropped |
| 9 requested time | walltime_s | below 1: the run time, counted |
| 4 > 9 | run_s | cut to the requested time |
| 10, 7 memory, KB per processor | requested_mib, used_mib | rounded up to MiB; -1 is 0 (unknown) |
| 12 user, 15 queue, 16 partition | the number as text | -1 is "" |
| 14 executable | name, the number as text | -1 is ""; see below |

The other fields (CPU time, status, group, preceding job, think time) do not affect a replay.
A numeric name has an empty prefix, so the prefix rules of the predictor `profile` match any job of the same user. This
is intended. On UniLu-Gaia-2014-2, with 27,947 executable numbers in 51,859 jobs, the mean absolute error of `profile`
is 251 min. It would be 2,278 min if the numbers were distinguished. Fractions of a second are truncated. Fields beyond
the 18th are ignored with a note (ALCF's traces have 19). `tally` counts each drop and cut by reason.

Frontier's traces add three fields (Maheshwari, Klusáček, Suter, Brewer, "Workload Traces from the Frontier Exascale
Supercomputer", JSSPP 2026), as in the simulator RAPS (ExaDigiT), whose unreliable field 4, counted from 0, is field 5:

| field | here | if missing or invalid |
|---|---|---|
| 19 GPUs used | gpus of each unit: its share, rounded up | -1: none |
| 20 soft walltime | soft_walltime_s | below 1: unknown |
| 21 nodes, `frontier:excl:2500x112` | 2500 units of 112 cores, each on its own node; `excl`: exclusive | must have this
form |

Fields 5 and 8 are ignored, because they contain nodes for some jobs and cores for others. Field 5 goes up to 589,824,
on a machine with 9,408 nodes. The GPUs of field 19 are divided by the nodes of field 21.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from sys import intern
from typing import NamedTuple

from typing_extensions import override

from cpsched.registration import Registration
from cpsched_sim.file_io import write_atomically
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.traces.trace_record import (
    SEARCHED_LINES,
    ProcessorCountRequest,
    ResourceRequest,
    TraceReader,
    TraceRecord,
    UnitsRequest,
)

SWF_FIELDS = 18
MORE_FIELDS = f"fields beyond the {SWF_FIELDS} of the format"
NOT_RUN_REASON = "run time below 1 s (never ran, or unknown)"
NO_PROCESSORS_REASON = "no processors, neither requested nor allocated"
RUN_TIME_CUT = "run time longer than the requested time"
EXTENDED_FIELDS = 21
_NODES = re.compile(r"[^:\s]+:([^:\s]+):(\d{1,9})x(\d{1,9})$", re.ASCII)
_FIELD_NAMES = {0: "job", 1: "submit", 2: "wait", 3: "run", 4: "allocated", 6: "used_memory", 7: "processors"}
_FIELD_NAMES |= {8: "requested_time", 9: "requested_memory"}
_FIELD_NAMES |= {18: "gpus", 19: "soft_walltime", 20: "nodes"}


class SwfReader(TraceReader):
    """A trace in SWF. The header is read before the first job.

    A header line is `; Key: value`. The values of a repeated key are joined by newlines.
    """

    @classmethod
    @override
    def recognises(cls, first: str) -> bool:
        """Return whether the line looks like SWF, or contains only numbers."""
        words = first.split()
        return cls.recognises_later(first) or (len(words) > 1 and all(map(_is_number, words)))

    @classmethod
    @override
    def recognises_later(cls, line: str) -> bool:
        """Return whether a line is a comment or may contain a job.

        A job has enough fields, and begins with a number.
        """
        words = line.split()
        return words[0].startswith(";") or (len(words) >= SWF_FIELDS and _is_number(words[0]))

    def __init__(self, path: Path, lenient: bool = False) -> None:
        super().__init__(path, lenient)
        self.comments: list[str] = []
        self._asks: dict[tuple[str, ...], ResourceRequest] = {}
        self._values: dict[str, list[str]] = {}
        self._rest = read_text_lines(path)
        self.first_lines = self._read_header()
        self.header = {key: "\n".join(values) for key, values in self._values.items()}
        self.extended = bool(self.first_lines) and has_frontier_fields(self.first_lines[-1][1].split())
        if self.extended:
            self.resources = ("cores", "gpus")

    def _read_header(self) -> list[tuple[int, str]]:
        """Read up to the first line with enough fields for a job, which sets the number of fields.

        Return the lines that are not comments.
        """
        first: list[tuple[int, str]] = []
        for number, text in self._rest:
            self.line = number
            if text.strip() and not self._store_if_comment(text):
                first.append((number, text))
                if len(text.split()) >= SWF_FIELDS or len(first) == SEARCHED_LINES:
                    break
            else:
                self._count_line_without_job()
        return first

    def _store_if_comment(self, text: str) -> bool:
        stripped = text.lstrip()
        if not stripped.startswith(";"):
            return False
        if not self._may_store_header_line(text):
            return True
        comment = stripped.strip("; \t\r\n")
        self.comments.append(comment)
        key, colon, value = comment.partition(":")
        if colon and key.strip().replace(" ", "").isalnum():
            self._values.setdefault(key.strip(), []).append(value.strip())
        return True

    def _lines(self) -> Iterator[tuple[int, str]]:
        return chain(self.first_lines, self._rest)

    def _record(self, text: str) -> TraceRecord | None:
        fields = text.split()
        if not fields or (fields[0][0] == ";" and self._store_if_comment(text)):
            return None
        expected = EXTENDED_FIELDS if self.extended else SWF_FIELDS
        if len(fields) != expected:
            if self.extended or len(fields) < SWF_FIELDS:
                raise self._make_error("fields", len(fields), f"must be {expected}")
            self.tally.ignored[MORE_FIELDS] += 1
        try:
            id, submit_s, wait_s = int(fields[0]), int(fields[1]), int(fields[2])
            run_s, walltime_s = int(fields[3]), int(fields[8])
        except ValueError:
            id, submit_s, wait_s, run_s, walltime_s = (self._parse_whole_number(fields, at) for at in (0, 1, 2, 3, 8))
        if submit_s < 0:
            raise self._make_error("submit", submit_s, "must not be negative")
        if run_s < 1:
            self.tally.dropped[NOT_RUN_REASON] += 1
            return None
        ask = self._parse_node_request(fields) if self.extended else self._parse_request(fields)
        if isinstance(ask, ProcessorCountRequest) and ask.processors < 1:
            self.tally.dropped[NO_PROCESSORS_REASON] += 1
            return None
        if walltime_s < 1:
            walltime_s = self._walltime_without_limit_s(run_s)
        elif run_s > walltime_s:
            self.tally.cut[RUN_TIME_CUT] += 1
            run_s = walltime_s
        return TraceRecord(
            id,
            submit_s,
            run_s,
            walltime_s,
            ask,
            parse_swf_name(fields[11]),
            parse_swf_name(fields[13]),
            parse_swf_name(fields[14]),
            start_s=submit_s + wait_s if wait_s >= 0 else None,
            soft_walltime_s=self._soft_walltime_s(fields),
        )

    def _soft_walltime_s(self, fields: list[str]) -> int | None:
        soft_s = self._parse_whole_number(fields, 19) if self.extended else 0
        return soft_s if soft_s > 0 else None

    def _parse_node_request(self, fields: list[str]) -> ResourceRequest:
        key = (fields[15], fields[18], fields[20])
        ask = self._asks.get(key)
        if ask is None:
            nodes = parse_swf_node_field(fields[20])
            if nodes is None:
                raise self._make_error("nodes", fields[20], "must be like frontier:excl:2500x112, nodes x cores")
            gpus = -(-max(0, self._parse_whole_number(fields, 18)) // nodes.nodes)
            each = (("cores", nodes.each_cores), *((("gpus", gpus),) if gpus else ()))
            ask = UnitsRequest(nodes.nodes, each, nodes.nodes > 1, nodes.exclusive, parse_swf_name(fields[15]))
            self._asks[key] = ask
        return ask

    def _parse_request(self, fields: list[str]) -> ResourceRequest:
        key = (fields[7], fields[4], fields[9], fields[6], fields[15])
        ask = self._asks.get(key)
        if ask is None:
            requested = self._parse_whole_number(fields, 7)
            processors = requested if requested > 0 else self._parse_whole_number(fields, 4)
            ask = ProcessorCountRequest(
                processors,
                self._read_memory_mib(fields, 9),
                self._read_memory_mib(fields, 6),
                parse_swf_name(fields[15]),
            )
            self._asks[key] = ask
        return ask

    def _read_memory_mib(self, fields: list[str], at: int) -> int:
        return -(-max(0, self._parse_whole_number(fields, at)) // 1024)

    def _parse_whole_number(self, fields: list[str], at: int) -> int:
        try:
            return int(float(fields[at]))
        except (ValueError, OverflowError):
            raise self._make_error(_FIELD_NAMES[at], fields[at], "must be a number") from None


def write(path: Path, records: Iterable[TraceRecord], header: Mapping[str, str]) -> None:
    """Write records with a `ProcessorCountRequest` and numeric or empty names.

    Compress the file if its name ends in .gz. The output is deterministic. Memory and recorded starts are not written.
    Raise `InputError`.
    """
    lines = [f"; {key}: {value}" for key, value in header.items()]
    for record in records:
        ask = record.ask
        assert isinstance(ask, ProcessorCountRequest), "only processors can be written"
        user, name, queue, partition = (
            word or "-1" for word in (record.user, record.name, record.queue, ask.partition)
        )
        lines.append(
            f"{record.id} {record.submit_s} -1 {record.run_s} {ask.processors} -1 -1 {ask.processors} "
            f"{record.walltime_s} -1 1 {user} -1 {name} {queue} {partition} -1 -1"
        )
    write_atomically(path, ("\n".join(lines) + "\n").encode())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def parse_swf_name(number: str) -> str:
    """Return the name for an executable, user or queue number."""
    return "" if number == "-1" else intern(number)


class SwfNodeField(NamedTuple):
    """The nodes in field 21, and the number of cores that a job has on each node."""

    nodes: int
    each_cores: int
    exclusive: bool


def parse_swf_node_field(text: str) -> SwfNodeField | None:
    """Parse field 21. Return None for any other text, or if it describes no nodes."""
    match = _NODES.match(text)
    if match is None or not int(match[2]) or not int(match[3]):
        return None
    return SwfNodeField(int(match[2]), int(match[3]), match[1] == "excl")


def has_frontier_fields(fields: Sequence[str]) -> bool:
    """Return whether a line has the additional fields."""
    return len(fields) == EXTENDED_FIELDS and parse_swf_node_field(fields[EXTENDED_FIELDS - 1]) is not None


REGISTRATIONS = (
    Registration(
        "swf",
        "Standard Workload Format: 18 fields per line, or 21 in Frontier's traces.",
        "Feitelson et al., version 2.2",
        SwfReader,
    ),
)
