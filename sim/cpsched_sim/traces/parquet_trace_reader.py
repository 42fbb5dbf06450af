"""Read Parquet tables row by row (extra `study`). Each row of a trace's table is a job.

Only this module uses pyarrow for reading. The readers of published traces share `ParquetTraceReader`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC
from itertools import pairwise
from math import isfinite
from pathlib import Path
from sys import intern
from typing import Any, ClassVar

import numpy as np

from cpsched.errors import InvalidValue
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.input_limits import MAX_FIELD_CHARS, MAX_LINES
from cpsched_sim.traces.slurm_times import possible_unix_times_s
from cpsched_sim.traces.trace_record import TraceReader, TraceRecord, UnitsRequest

PARQUET_KIND = "a Parquet table"
"""The description of a Parquet file by `cpsched_sim.input.file_type_guess`."""
BATCH_ROWS = 4096
"""Number of rows in memory at a time, in addition to a row group of the file."""
_PYARROW_MISSING = "is a Parquet table, which requires pyarrow: pip install 'cpsched[study]'"


def parquet_column_names(path: Path) -> tuple[str, ...]:
    """Return the column names of a Parquet table.

    Raise `InputError` without pyarrow or for any other file.
    """
    return tuple(_open_parquet(path).schema_arrow.names)


def read_parquet_rows(path: Path, columns: Collection[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows, numbered from 1, with the given columns. A missing value is None.

    - A time is in whole seconds since 1970, and an interval in whole seconds. Fractions are truncated. A time without a
      zone is in UTC.
    - A list of numbers becomes a NumPy array. Any other list remains a list.

    Raise `InputError` like `parquet_column_names`, and `InvalidTrace` at the row where a damaged file ends.
    """
    file, number = _open_parquet(path), 0
    names = [name for name in file.schema_arrow.names if name in columns]
    try:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
            lists = [_parquet_column_to_list(column) for column in batch.columns]
            for values in zip(*lists, strict=True):
                number += 1
                yield number, dict(zip(names, values, strict=True))
            if number > MAX_LINES:
                raise InvalidTrace(path, number, "rows", f"{number:,}", f"must be at most {MAX_LINES:,}")
    except (ValueError, NotImplementedError, OSError) as error:  # pyarrow's own errors derive from these
        raise InvalidTrace(path, number + 1, "file", path.name, f"must be complete: {error}") from error


def _open_parquet(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(f"{path}: {_PYARROW_MISSING}") from error
    try:
        return ParquetFile(path)
    except (ValueError, NotImplementedError, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from error


def _parquet_column_to_list(column: Any) -> list[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("s", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("s"), safe=False).cast(pa.int64())
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_numeric_type(kind.value_type):
        return _split_list_column(column)
    return list(column.to_pylist())


def _is_numeric_type(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _split_list_column(column: Any) -> list[Any]:
    """Return each list as a slice of one array, with NaN for a missing number."""
    numbers = column.values.to_numpy(zero_copy_only=False)
    ends = column.offsets.to_numpy()
    parts = [np.asarray(numbers[first:last]) for first, last in pairwise(ends)]
    validity = column.is_valid().to_pylist()
    return [part if is_valid else None for part, is_valid in zip(parts, validity, strict=True)]


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
