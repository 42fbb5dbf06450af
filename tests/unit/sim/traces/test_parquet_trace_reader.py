import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.traces import parquet_trace_reader
from cpsched_sim.traces.parquet_trace_reader import parquet_column_names, read_parquet_rows


@pytest.fixture
def table(tmp_path):
    def write(**columns):
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=3)
        return path

    return write


def test_numbers_rows_across_batches_and_row_groups(table, monkeypatch):
    monkeypatch.setattr(parquet_trace_reader, "BATCH_ROWS", 2)
    rows = list(read_parquet_rows(table(a=list(range(8)), b=["x"] * 8), ["a"]))
    assert rows == [(number, {"a": number - 1}) for number in range(1, 9)]


def test_lists_keep_their_rows_in_every_batch(table, monkeypatch):
    monkeypatch.setattr(parquet_trace_reader, "BATCH_ROWS", 2)
    lists = [[1, 2], None, [], [3], [4, 5, 6], [7]]
    rows = [row["a"] for _, row in read_parquet_rows(table(a=pa.array(lists, pa.list_(pa.int32()))), ["a"])]
    assert [None if row is None else row.tolist() for row in rows] == lists


def test_times_and_intervals_are_whole_seconds(table):
    path = table(
        at=pa.array([1_999_999_999, None], pa.timestamp("ns", "Europe/Berlin")),
        took=pa.array([90_999, None], pa.duration("ms")),
    )
    assert [row for _, row in read_parquet_rows(path, ["at", "took"])] == [
        {"at": 1, "took": 90},
        {"at": None, "took": None},
    ]


def test_reads_dictionary_encoded_words(table):
    path = table(a=pa.array(["x", None, "x"]).dictionary_encode(), b=pa.array([["n1", "n2"], None, []]))
    assert [tuple(row.values()) for _, row in read_parquet_rows(path, ["a", "b"])] == [
        ("x", ["n1", "n2"]),
        (None, None),
        ("x", []),
    ]


def test_rejects_file_that_is_no_table(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        parquet_column_names(path)


def test_damaged_table_names_row(table):
    path = table(a=[f"{number:0100d}" for number in range(9)])
    content = bytearray(path.read_bytes())
    content[400:600] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises((InvalidTrace, InputError), match=r"t.parquet:\d+: file: t.parquet: must be complete"):
        list(read_parquet_rows(path, ["a"]))


def test_rejects_table_with_too_many_rows(table, monkeypatch):
    monkeypatch.setattr(parquet_trace_reader, "MAX_LINES", 4)
    with pytest.raises(InvalidTrace, match="rows: 5: must be at most 4"):
        list(read_parquet_rows(table(a=[1] * 5), ["a"]))


def test_missing_pyarrow_names_package_to_install(table, monkeypatch):
    path = table(a=[1])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"is a Parquet table, which requires pyarrow: pip install 'cpsched\[study\]'"):
        parquet_column_names(path)
