"""Write rows and schedules as Parquet (extra `study`).

Only this module uses pyarrow for writing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from cpsched_sim.errors import InputError


def rows_to_parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a Parquet file with one column per name. Raise `InputError`.

    A missing value is null.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return columns_to_parquet({name: [row.get(name) for row in rows] for name in names})


def columns_to_parquet(columns: Mapping[str, Any]) -> bytes:
    """Return columns as a Parquet file. Raise `InputError`."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("Parquet requires pyarrow: pip install 'cpsched[study]'") from error
    file = io.BytesIO()
    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()
