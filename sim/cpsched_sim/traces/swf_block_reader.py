"""Read an SWF trace block by block, directly into columns.

A plain line has at least 18 fields, with an ordinary integer in each used field. The plain lines of a block are
parsed with array operations, by `SwfReader`'s rules. `SwfReader` itself parses all other lines. If any line breaks
a rule, nothing is returned, and `SwfReader` reads the whole trace to report the line.
"""

from __future__ import annotations

import ctypes
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from cpsched.errors import CpschedError
from cpsched.model import NEVER, BoolArray, IntArray, Request
from cpsched_sim.input.input_limits import MAX_JOBS, MAX_LINE_CHARS, MAX_LINES, MAX_TIME_S
from cpsched_sim.input.text_line_reader import read_line_blocks
from cpsched_sim.traces.swf import (
    MORE_FIELDS,
    NO_PROCESSORS_REASON,
    NOT_RUN_REASON,
    RUN_TIME_CUT,
    SWF_FIELDS,
    SwfReader,
    parse_swf_name,
)
from cpsched_sim.traces.trace_jobs import ColumnarTrace, zeros
from cpsched_sim.traces.trace_record import MISSING_LIMIT_NOTE, ProcessorCountRequest, ResourceRequest

_USED_FIELDS = (0, 1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14, 15)
"""The fields that `SwfReader` uses, 0-based."""
_MAX_DIGITS = 18
"""Maximum number of digits of a plain number, so that it fits in 64 bits."""
_PLAIN_LINE_BYTES = np.zeros(256, np.bool_)
"""Whether each byte may occur in a plain line: printable ASCII, a blank, a tab or a line end."""
_PLAIN_LINE_BYTES[32:127] = _PLAIN_LINE_BYTES[[9, 10]] = True
_NEWLINE, _BLANK, _MINUS, _ZERO = b"\n -0"
_COLUMN_NAMES = ("id", "submit_s", "run_s", "walltime_s", "recorded_start_s", "request", "user", "name", "queue")
_ENCODED_COLUMNS = ("request", "user", "name", "queue")
"""The columns that hold codes, which need fewer bits than the times."""

Bytes = npt.NDArray[np.uint8]


def read_swf_columns(reader: SwfReader, progress: Callable[[int], None] | None = None) -> SwfColumnBuilder | None:
    """Return the jobs after the header that `reader` has read. Update its counts.

    Return None if a line is invalid, if there are no jobs, or if jobs in the trace request nodes.
    """
    if reader.extended:
        return None
    found = SwfColumnBuilder(reader)
    with suppress(CpschedError, OSError, EOFError, zlib.error):
        lines_read = reader.line
        found.add_lines(reader.first_lines)
        reader.line = lines_read
        for block in read_line_blocks(reader.path, lines_read):
            found.add_block(block)
            if progress is not None:
                progress(found.count)
            if reader.line >= MAX_LINES or found.count > MAX_JOBS:
                return None
        if found.join():
            return found
    return None


class SwfColumnBuilder:
    """The jobs of a trace in columns, int64[J] in file order.

    `request` contains indices into `asks`, in order of first appearance. `user`, `name` and `queue` contain indices
    into `words`.
    """

    def __init__(self, reader: SwfReader) -> None:
        self.columns: dict[str, IntArray] = {}
        self.asks: dict[ResourceRequest, int] = {}
        self.words: dict[str, int] = {"": 0}
        self.count = 0
        self._reader = reader
        self._pieces: dict[str, list[IntArray]] = {name: [] for name in _COLUMN_NAMES}
        self._code_by_numbers: dict[tuple[int, ...], int] = {}
        """Request codes by the numbers in a plain line."""

    def to_columnar_trace(self, requests: Sequence[Request]) -> ColumnarTrace:
        """Return the jobs with `requests`: the `asks` converted for a system."""
        none, words = zeros(self.count), tuple(self.words)
        return ColumnarTrace(**self.columns, priority=none, tier=none, requests=requests, words=words, objects=[])

    def count_missing_partitions(self, lacks: Callable[[str], bool]) -> Counter[str]:
        """Count the jobs by partition, for partitions that do not exist on a system.

        The order is that of first appearance.
        """
        asks, request = list(self.asks), self.columns["request"]
        lacking = np.array([lacks(ask.partition) for ask in asks])
        return Counter(asks[code].partition for code in request[lacking[request]].tolist())

    def join(self) -> bool:
        """Join the blocks of each column.

        Return False if there are no jobs, or if two jobs have the same number.
        """
        for name in _COLUMN_NAMES:
            column = np.concatenate(self._pieces.pop(name))
            self.columns[name] = column.astype(np.int32) if name in _ENCODED_COLUMNS else column
        _trim_heap()
        return self.count > 0 and bool((np.diff(np.sort(self.columns["id"])) > 0).all())

    def add_block(self, block: bytes) -> None:
        """Add the jobs in a block of lines."""
        text, before = np.frombuffer(block, np.uint8), self._reader.line
        ends = np.flatnonzero(text == _NEWLINE)
        plain, fields, longer = _find_plain_lines(text, ends)
        _count_lines_by_reason(self._reader.tally.ignored, MORE_FIELDS, longer)
        self._reader.tally.read += len(plain)
        kept, columns = self._columns_from_plain_lines(fields)
        if len(plain) == len(ends):
            self._append_columns(columns)
        else:
            is_odd = np.ones(len(ends), np.bool_)
            is_odd[plain] = False
            texts = block.decode("utf-8", "replace").split("\n")
            odd, others = self._columns_from_lines(
                (before + 1 + at, texts[at] + "\n") for at in np.flatnonzero(is_odd).tolist()
            )
            order = np.argsort(np.concatenate((plain[kept] + before + 1, odd)))
            self._append_columns({name: np.concatenate((columns[name], others[name]))[order] for name in _COLUMN_NAMES})
        self._reader.line = before + len(ends)

    def add_lines(self, lines: Iterable[tuple[int, str]]) -> None:
        """Add the jobs in numbered lines, plain or not."""
        self._append_columns(self._columns_from_lines(lines)[1])

    def _append_columns(self, columns: dict[str, IntArray]) -> None:
        for name, piece in columns.items():
            self._pieces[name].append(piece)
        self.count += len(columns["id"])

    def _columns_from_lines(self, lines: Iterable[tuple[int, str]]) -> tuple[IntArray, dict[str, IntArray]]:
        """Return the numbers of the lines that contain jobs, and the jobs' columns."""
        rows = []
        for number, text in lines:
            self._reader.line = number
            if (record := self._reader.read_line(text)) is None:
                self._reader.count_jobless_line(text)
                continue
            self._reader.tally.read += 1
            start_s = NEVER if record.start_s is None else record.start_s
            times = (record.id, record.submit_s, record.run_s, record.walltime_s, start_s)
            rows.append(
                (
                    number,
                    *times,
                    self._code_of_request(record.ask),
                    *map(self._code_of_word, (record.user, record.name, record.queue)),
                )
            )
        columns = np.array(rows, np.int64).reshape(len(rows), 1 + len(_COLUMN_NAMES)).T
        return columns[0], dict(zip(_COLUMN_NAMES, columns[1:], strict=True))

    def _columns_from_plain_lines(self, fields: list[IntArray]) -> tuple[BoolArray, dict[str, IntArray]]:
        """Return a mask of the plain lines with jobs, and the jobs' columns.

        Raise `_InvalidSwfLine`.
        """
        tally, (submit_s, run_s, allocated, requested) = self._reader.tally, (fields[at] for at in (1, 3, 4, 6))
        ran, processors = run_s >= 1, np.where(requested > 0, requested, allocated)
        kept = ran & (processors >= 1)
        _count_lines_by_reason(tally.dropped, NOT_RUN_REASON, ~ran)
        _count_lines_by_reason(tally.dropped, NO_PROCESSORS_REASON, ran & ~kept)
        if (submit_s < 0).any():
            raise _InvalidSwfLine
        processors = processors[kept]
        id, submit_s, wait_s, run_s, _, used_kib, _, walltime_s, requested_kib, user, name, queue, partition = (
            column[kept] for column in fields
        )
        unlimited, long = walltime_s < 1, run_s > walltime_s
        _count_lines_by_reason(tally.taken, MISSING_LIMIT_NOTE, unlimited)
        _count_lines_by_reason(tally.cut, RUN_TIME_CUT, long & ~unlimited)
        walltime_s, run_s = (
            np.where(unlimited, run_s, walltime_s),
            np.where(unlimited, run_s, np.minimum(run_s, walltime_s)),
        )
        start_s = submit_s + np.maximum(wait_s, 0)
        if max(column.max(initial=0) for column in (start_s, walltime_s)) > MAX_TIME_S:
            raise _InvalidSwfLine
        return kept, {
            "id": id,
            "submit_s": submit_s,
            "run_s": run_s,
            "walltime_s": walltime_s,
            "recorded_start_s": np.where(wait_s < 0, NEVER, start_s),
            "request": self._encode_requests(processors, requested_kib, used_kib, partition),
            "user": self._encode_names(user),
            "name": self._encode_names(name),
            "queue": self._encode_names(queue),
        }

    def _encode_requests(self, *columns: IntArray) -> IntArray:
        """Return the request code of each line."""
        keys = list(zip(*(column.tolist() for column in columns), strict=True))
        for key in dict.fromkeys(keys):
            if key not in self._code_by_numbers:
                processors, requested_kib, used_kib, partition = key
                requested_mib, used_mib = (-(-max(0, kib) // 1024) for kib in (requested_kib, used_kib))
                ask = ProcessorCountRequest(processors, requested_mib, used_mib, parse_swf_name(str(partition)))
                self._code_by_numbers[key] = self._code_of_request(ask)
        return np.fromiter(map(self._code_by_numbers.__getitem__, keys), np.int64, len(keys))

    def _code_of_request(self, ask: ResourceRequest) -> int:
        return self.asks.setdefault(ask, len(self.asks))

    def _encode_names(self, numbers: IntArray) -> IntArray:
        """Return the name code of each line."""
        different, at = np.unique(numbers, return_inverse=True)
        codes: IntArray = np.array(
            [self._code_of_word(parse_swf_name(str(number))) for number in different.tolist()], np.int64
        )[at]
        return codes

    def _code_of_word(self, word: str) -> int:
        return self.words.setdefault(word, len(self.words))


class _InvalidSwfLine(CpschedError):
    """A plain line breaks a rule."""


def _count_lines_by_reason(reasons: Counter[str], reason: str, lines: BoolArray) -> None:
    if count := int(np.count_nonzero(lines)):
        reasons[reason] += count


def _find_plain_lines(text: Bytes, ends: IntArray) -> tuple[IntArray, list[IntArray], BoolArray]:
    """Return the plain lines' indices, the numbers in each used field, and a mask.

    The mask selects the lines with more than 18 fields.
    """
    is_blank = text <= _BLANK
    edges = np.flatnonzero(np.diff(is_blank, prepend=True))
    begins, stops = edges[::2], edges[1::2]
    behind = np.searchsorted(begins, ends)
    fields = np.diff(behind, prepend=0)
    is_plain = (fields >= SWF_FIELDS) & (np.diff(ends, prepend=-1) <= MAX_LINE_CHARS)
    is_plain[np.searchsorted(ends, np.flatnonzero(~_PLAIN_LINE_BYTES[text]))] = False
    lines = np.flatnonzero(is_plain)
    first, good, columns = (behind - fields)[lines], np.ones(len(lines), np.bool_), []
    for at in _USED_FIELDS:
        numbers, are_plain = _parse_numbers(text, begins[first + at], stops[first + at])
        columns.append(numbers)
        good &= are_plain
    lines = lines[good]
    return lines, [column[good] for column in columns], fields[lines] > SWF_FIELDS


def _parse_numbers(text: Bytes, begins: IntArray, stops: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the numbers in the given fields, and a mask of plain numbers.

    A plain number is spelled as `str` prints it.
    """
    is_negative = text[begins] == _MINUS
    begins = begins + is_negative
    digits = stops - begins
    leading_zero = (text[begins] == _ZERO) & ((digits > 1) | is_negative)
    are_plain = (digits > 0) & (digits <= _MAX_DIGITS) & ~leading_zero
    numbers = np.zeros(len(begins), np.int64)
    for place in range(min(int(digits.max(initial=0)), _MAX_DIGITS)):
        there = np.flatnonzero(digits > place)
        found = text[begins[there] + place] - np.uint8(_ZERO)
        are_plain[there] &= found <= 9
        numbers[there] = 10 * numbers[there] + found
    return np.where(is_negative, -numbers, numbers), are_plain


def _trim_heap() -> None:
    """Return freed memory to the system. glibc would retain 80 MB per million jobs."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
