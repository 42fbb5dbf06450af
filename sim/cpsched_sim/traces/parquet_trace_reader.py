"""Code that all Parquet readers share. Each row of a table is a job."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC
from math import isfinite
from pathlib import Path
from sys import intern
from typing import Any, ClassVar

from cpsched.errors import InvalidValue
from cpsched_sim.input.input_limits import MAX_FIELD_CHARS
from cpsched_sim.input.parquet_reader import parquet_column_names, read_parquet_rows
from cpsched_sim.traces.slurm_times import possible_unix_times_s
from cpsched_sim.traces.trace_record import TraceReader, TraceRecord, UnitsRequest

_ROW_TEXT = "row"
"""The text that replaces the line in error messages, because a table has no lines."""


class ParquetTraceReader(TraceReader):
    """A trace in a Parquet table. Subclasses declare columns and parse `self.row`.

    `NEEDED` lists the required columns, and `ALSO` the optional columns. Times are seconds since 1970.
    """

    NEEDED: ClassVar[tuple[str, ...]]
    ALSO: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def recognises_columns(cls, names: Collection[str]) -> bool:
        """Return whether a table with these columns has this format."""
        return set(cls.NEEDED) <= set(names)

    def __init__(self, path: Path, lenient: bool = False) -> None:
        super().__init__(path, lenient)
        self.resources = ("cores", "memory_mib", "gpus")
        self.row: dict[str, Any] = {}
        self._asks: dict[UnitsRequest, UnitsRequest] = {}
        there = parquet_column_names(path)
        if missing := [name for name in self.NEEDED if name not in there]:
            raise self._make_error("columns", ", ".join(missing), "must be in the table")

    def _lines(self) -> Iterator[tuple[int, str]]:
        for number, row in read_parquet_rows(self.path, {*self.NEEDED, *self.ALSO}):
            self.row = row
            yield number, _ROW_TEXT

    def _record(self, text: str) -> TraceRecord | None:
        return self._read_row()

    def _read_row(self) -> TraceRecord | None:
        """Return the job in `self.row`, or None if the job is counted and dropped."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ values

    def _read_whole_number(self, column: str) -> int | None:
        """Return a whole number, or None if the column or value is missing."""
        value = self.row.get(column)
        if value is None or value != value:
            return None
        try:
            number = int(value)
        except (ValueError, TypeError, OverflowError):
            number = None
        if number is None or (isinstance(value, float) and number != value):
            raise self._make_error(column, value, "must be a whole number")
        return number

    def _read_count(self, column: str) -> int:
        """Return a count, or 0 if it is missing."""
        number = self._read_whole_number(column) or 0
        if number < 0:
            raise self._make_error(column, number, "must not be negative")
        return number

    def _read_time_s(self, column: str) -> int | None:
        """Return a time in seconds since 1970, or None if it is missing.

        The value may be text (`2026-02-19 16:17:31-07`), by default in UTC.

        Fractions of a second are truncated.
        """
        value = self.row.get(column)
        if isinstance(value, float) and isfinite(value):
            return int(value)
        if not isinstance(value, str):
            return self._read_whole_number(column)
        try:
            return next(iter(possible_unix_times_s(value, UTC)), None)
        except InvalidValue as error:
            raise self._make_error(column, value, error.rule) from error

    def _read_text(self, column: str) -> str:
        value = self.row.get(column)
        if value is None:
            return ""
        text = str(value)
        if len(text) > MAX_FIELD_CHARS:
            raise self._make_error(column, text, f"must not be longer than {MAX_FIELD_CHARS:,} characters")
        return intern(text)

    def _read_node_names(self, column: str) -> str:
        """Return node names as `n1,n2`, from a list or from text such as `{n1,n2}`."""
        value = self.row.get(column)
        return ",".join(map(str, value)) if isinstance(value, list) else self._read_text(column).strip("{}[]")

    # ------------------------------------------------------------------------------------------ a job

    def _spread_over_nodes(self, nodes: int, totals: dict[str, int], exclusive: bool, partition: str) -> UnitsRequest:
        """Return one unit per node, on distinct nodes.

        Each unit has an equal share of the job's totals, rounded up.
        """
        each = tuple((name, -(-total // nodes)) for name, total in totals.items() if total)
        ask = UnitsRequest(nodes, each, distinct=nodes > 1, exclusive=exclusive, partition=partition)
        return self._asks.setdefault(ask, ask)

    def _read_times(self, submit: str, start: str, end: str) -> tuple[int, int, int] | None:
        """Return the submission, start and run time of a job that has ended.

        Otherwise, count the job and return None.
        """
        submit_s, start_s, end_s = map(self._read_time_s, (submit, start, end))
        if submit_s is None:
            raise self._make_error(submit, "", "must not be empty")
        if start_s is None or end_s is None:
            self.tally.dropped["never started, or had not ended"] += 1
            return None
        if end_s <= start_s:
            self.tally.dropped["run time below 1 s"] += 1
            return None
        return submit_s, start_s, end_s - start_s
