import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input import parquet_reader
from cpsched_sim.input.parquet_reader import columns_of, rows_of


@pytest.fixture
def table(tmp_path):
    def write(**columns):
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=3)
        return path

    return write


def test_rows_are_numbered_over_batches_and_row_groups(table, monkeypatch):
    monkeypatch.setattr(parquet_reader, "BATCH", 2)
    rows = list(rows_of(table(a=list(range(8)), b=["x"] * 8), ["a"]))
    assert rows == [(number, {"a": number - 1}) for number in range(1, 9)]


def test_lists_of_numbers_keep_their_rows_in_every_batch(table, monkeypatch):
    monkeypatch.setattr(parquet_reader, "BATCH", 2)
    lists = [[1, 2], None, [], [3], [4, 5, 6], [7]]
    rows = [row["a"] for _, row in rows_of(table(a=pa.array(lists, pa.list_(pa.int32()))), ["a"])]
    assert [None if row is None else row.tolist() for row in rows] == lists


def test_times_and_intervals_are_whole_seconds(table):
    path = table(
        at=pa.array([1_999_999_999, None], pa.timestamp("ns", "Europe/Berlin")),
        took=pa.array([90_999, None], pa.duration("ms")),
    )
    assert [row for _, row in rows_of(path, ["at", "took"])] == [{"at": 1, "took": 90}, {"at": None, "took": None}]


def test_words_of_a_dictionary_are_words(table):
    path = table(a=pa.array(["x", None, "x"]).dictionary_encode(), b=pa.array([["n1", "n2"], None, []]))
    assert [tuple(row.values()) for _, row in rows_of(path, ["a", "b"])] == [
        ("x", ["n1", "n2"]),
        (None, None),
        ("x", []),
    ]


def test_what_is_no_table_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        columns_of(path)


def test_a_table_that_is_damaged_names_the_row(table):
    path = table(a=[f"{number:0100d}" for number in range(9)])
    content = bytearray(path.read_bytes())
    content[400:600] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(
        (InvalidTrace, InputError), match=r"t.parquet:\d+: file: t.parquet: must be readable to its end"
    ):
        list(rows_of(path, ["a"]))


def test_a_table_of_more_rows_than_any_trace_is_refused(table, monkeypatch):
    monkeypatch.setattr(parquet_reader, "MAX_LINES", 4)
    with pytest.raises(InvalidTrace, match="rows: 5: must not be more than 4"):
        list(rows_of(table(a=[1] * 5), ["a"]))


def test_without_pyarrow_it_says_what_to_install(table, monkeypatch):
    path = table(a=[1])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"is a Parquet table, which pyarrow reads: pip install 'cpsched\[study\]'"):
        columns_of(path)
