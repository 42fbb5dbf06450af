"""cpsched's native trace format: gzipped CSV with every property of a request.

SWF has no job names, GPUs, amounts per unit or distinct nodes. Any tool can read CSV, and error messages can refer to
its lines. Gzipped CSV is as small as SWF.

    # cpsched-trace 1
    # system: eurora
    # seed: 7
    job,submit_s,run_s,walltime_s,units,distinct,exclusive,partition,user,name,queue,account,cores,memory_mib,gpus
    1,0,412,14400,4,0,0,,u017,relax12,parallel,,16,8192,2

Lines of the form `# key: value` are the header; `system` is the default system of `cpsched simulate`. The columns after
`account` are amounts per unit, named like the system's resources. The optional column `start_s` before them is the
job's start on the original machine, empty if unknown. A run may exceed its walltime, because sites count the clean-up
time. The excess is not cut.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern

from typing_extensions import override

from cpsched.registration import Registration
from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.file_io import write_atomically
from cpsched_sim.input.input_limits import MAX_LINE_CHARS, MAX_RESOURCES
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.traces.trace_record import TraceReader, TraceRecord, UnitsRequest

FIRST_LINE = "# cpsched-trace 1"
NUMBER_COLUMNS = ("job", "submit_s", "run_s", "walltime_s", "units", "distinct", "exclusive")
TEXT_COLUMNS = ("partition", "user", "name", "queue", "account")
FIXED_COLUMNS = (*NUMBER_COLUMNS, *TEXT_COLUMNS)
START_COLUMN = "start_s"
"""The optional column of recorded starts, directly after the fixed columns."""
_MINIMUM_VALUES = {"submit_s": 0, "run_s": 1, "walltime_s": 1}


class NativeTraceReader(TraceReader):
    """A trace in cpsched's own format."""

    @classmethod
    @override
    def recognises(cls, first: str) -> bool:
        """Return whether the first line identifies the format."""
        return first.strip() == FIRST_LINE

    @classmethod
    @override
    def recognises_later(cls, line: str) -> bool:
        """Return whether the line has the column names of the format."""
        return line.startswith(f"{','.join(FIXED_COLUMNS)},")

    def __init__(self, path: Path, lenient: bool = False) -> None:
        super().__init__(path, lenient)
        self._asks: dict[tuple[str, ...], UnitsRequest] = {}
        self._rest = read_text_lines(path)
        self.resources = self._read_header()

    def _read_header(self) -> tuple[str, ...]:
        for number, text in self._rest:
            self.line = number
            if text.startswith("#"):
                if len(text) > MAX_LINE_CHARS:
                    raise self._make_too_long_error(text)
                key, _, value = text[1:].partition(":")
                if self._may_store_header_line(text):
                    self.header[key.strip()] = value.strip()
                self._count_line_without_job()
                continue
            columns = tuple(text.rstrip("\r\n").split(","))
            if columns[: len(FIXED_COLUMNS)] != FIXED_COLUMNS or len(columns) == len(FIXED_COLUMNS):
                rule = f"must be {','.join(FIXED_COLUMNS)}, then the resources"
                self._raise_or_count(self._make_error("columns", text.strip(), rule))
                continue
            self._at = len(FIXED_COLUMNS) + (columns[len(FIXED_COLUMNS)] == START_COLUMN)
            resources = columns[self._at :]
            if not resources or len(resources) > MAX_RESOURCES or len({*resources, ""}) <= len(resources):
                rule = f"must be at most {MAX_RESOURCES} different resource names"
                raise self._make_error("columns", ",".join(resources), rule)
            return resources
        raise self._make_error("columns", "", "the line of column names is missing")

    def _lines(self) -> Iterator[tuple[int, str]]:
        return self._rest

    def _split_fields(self, text: str) -> list[str]:
        fields = self._split_quoted_line(text) if '"' in text else text.rstrip("\r\n").split(",")
        expected = self._at + len(self.resources)
        if len(fields) != expected:
            raise self._make_error("fields", len(fields), f"must be {expected}")
        return fields

    def _split_quoted_line(self, text: str) -> list[str]:
        try:
            return next(csv.reader([text], strict=True), [])
        except csv.Error as error:
            raise self._make_error("line", text.strip(), f"must be valid CSV: {error}") from error

    def _record(self, text: str) -> TraceRecord | None:
        if not text.strip():
            return None
        fields = self._split_fields(text)
        try:
            id, submit_s, run_s, walltime_s = map(int, fields[:4])
        except ValueError:
            id, submit_s, run_s, walltime_s = (
                self._parse_whole_number(name, fields[i]) for i, name in enumerate(NUMBER_COLUMNS[:4])
            )
        for name, value in (("submit_s", submit_s), ("run_s", run_s), ("walltime_s", walltime_s)):
            if value < _MINIMUM_VALUES[name]:
                raise self._make_error(name, value, f"must be at least {_MINIMUM_VALUES[name]}")
        user, name, queue, account = map(intern, fields[8:12])
        recorded = fields[len(FIXED_COLUMNS)] if self._at > len(FIXED_COLUMNS) else ""
        start_s = self._parse_whole_number(START_COLUMN, recorded) if recorded else None
        return TraceRecord(
            id, submit_s, run_s, walltime_s, self._parse_request(fields), user, name, queue, account, start_s
        )

    def _parse_request(self, fields: list[str]) -> UnitsRequest:
        key = (*fields[4:8], *fields[self._at :])
        ask = self._asks.get(key)
        if ask is None:
            units, distinct, exclusive = (self._parse_whole_number(NUMBER_COLUMNS[i], fields[i]) for i in (4, 5, 6))
            amounts = [self._parse_whole_number(name, text) for name, text in zip(self.resources, key[4:], strict=True)]
            if units < 1:
                raise self._make_error("units", units, "must be at least 1")
            if min(amounts) < 0 or max(amounts) < 1:
                raise self._make_error("amounts", amounts, "must not be negative, and one must be positive")
            each = tuple((name, amount) for name, amount in zip(self.resources, amounts, strict=True) if amount)
            ask = self._asks[key] = UnitsRequest(units, each, bool(distinct), bool(exclusive), fields[7])
        return ask

    def _parse_whole_number(self, field: str, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise self._make_error(field, text, "must be a whole number") from None


def write(path: Path, records: Iterable[TraceRecord], resources: Sequence[str], header: Mapping[str, object]) -> None:
    """Write records that have a `UnitsRequest`. The output is deterministic.

    The file is gzipped if its name ends in .gz. Recorded starts are written if any record has one. Nodes are not
    written.

    Raise `InputError` if writing fails or a text field contains a line break, because each job is one line.
    """
    text = io.StringIO()
    text.write(FIRST_LINE + "\n")
    text.writelines(f"# {key}: {value}\n" for key, value in header.items())
    table = csv.writer(text, lineterminator="\n")
    rows = list(records)
    starts = any(record.start_s is not None for record in rows)
    table.writerow([*FIXED_COLUMNS, *([START_COLUMN] if starts else []), *resources])
    table.writerows(_format_trace_row(record, resources, starts) for record in rows)
    write_atomically(path, text.getvalue().encode())


def _format_trace_row(record: TraceRecord, resources: Sequence[str], starts: bool) -> list[object]:
    ask = record.ask
    assert isinstance(ask, UnitsRequest), "only units with named amounts can be written"
    amounts = dict(ask.each)
    for word in (ask.partition, record.user, record.name, record.queue, record.account):
        if len(word.splitlines()) > 1 or word.endswith(("\n", "\r")):
            raise InputError(f"job {record.id}: {quote_value(word)}: text in a trace must not contain line breaks")
    return [
        record.id,
        record.submit_s,
        record.run_s,
        record.walltime_s,
        ask.units,
        int(ask.distinct),
        int(ask.exclusive),
        ask.partition,
        record.user,
        record.name,
        record.queue,
        record.account,
        *(["" if record.start_s is None else record.start_s] if starts else []),
        *(amounts.get(name, 0) for name in resources),
    ]


REGISTRATIONS = (
    Registration(
        "native", "cpsched's own CSV, which expresses every property of a request.", "this module", NativeTraceReader
    ),
)
