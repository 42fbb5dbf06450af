"""Read Parquet tables row by row (extra `study`).

Only this module uses pyarrow for reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.input_limits import MAX_LINES

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
