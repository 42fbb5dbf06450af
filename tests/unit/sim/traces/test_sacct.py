import csv

import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.reading.bounds import MAX_AMOUNT
from cpsched_sim.traces.record import Units
from cpsched_sim.traces.sacct import XDMOD_COLUMNS, SacctReader, separator_of
from cpsched_sim.workloads.load import open_trace

NAMED = "JobID|User|JobName|Partition|Account|Submit|Start|End|Timelimit|NNodes|NCPUS|AllocTRES"


def row(id="7", start="2026-01-01T00:01:00", end="2026-01-01T00:11:00", limit="00:30:00", nodes="1", cpus="8", tres=""):
    return f"{id}|ada|relax|main|phys|2026-01-01T00:00:00|{start}|{end}|{limit}|{nodes}|{cpus}|{tres}"


@pytest.fixture
def read(tmp_path):
    def reader(*rows, lenient=False):
        path = tmp_path / "jobs.txt"
        path.write_text("\n".join([NAMED, *rows, ""]))
        return SacctReader(path, lenient)

    return reader


def test_a_line_becomes_a_record(read):
    record = next(iter(read(row(nodes="2", cpus="16", tres="billing=16,cpu=16,gres/gpu=4,mem=62.50G,node=2"))))
    assert (record.id, record.run_s, record.walltime_s) == (7, 600, 1800)
    assert (record.user, record.name, record.queue, record.account) == ("ada", "relax", "main", "phys")
    assert record.ask == Units(2, (("cores", 8), ("memory_mib", 32_000), ("gpus", 2)), distinct=True, partition="main")


@pytest.mark.parametrize(
    ("limit", "expected_s"),
    [("1-02:03:04", 93_784), ("02:03:04", 7384), ("30:00", 1800), ("UNLIMITED", 600), ("Partition_Limit", 600)],
)
def test_time_limits(read, limit, expected_s):
    assert next(iter(read(row(limit=limit)))).walltime_s == expected_s


def test_steps_requeued_runs_and_jobs_that_did_not_run_are_dropped(read):
    reader = read(row(), row(), row("7.batch"), row("8", start="Unknown"), row("9", end="2026-01-01T00:01:00"))
    assert [record.id for record in reader] == [7]
    assert sum(reader.tally.dropped.values()) == 4


def test_without_a_header_the_columns_are_those_of_xdmod(tmp_path):
    values = dict.fromkeys(XDMOD_COLUMNS.split("|"), "") | {
        "JobID": "5_1", "JobIDRaw": "6", "User": "bob", "Submit": "2026-01-01T00:00:00", "Start": "2026-01-01T00:00:00",
        "End": "2026-01-01T00:00:09", "NNodes": "1", "NCPUS": "3", "Timelimit": "UNLIMITED",
    }  # fmt: skip
    path = tmp_path / "x.log"
    path.write_text("|".join(values.values()) + "\n")
    record = next(iter(SacctReader(path)))
    assert (record.id, record.user, record.run_s, record.ask) == (6, "bob", 9, Units(1, (("cores", 3),)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("1|2", ":2: fields: 2: must be 12"),
        (row().replace("2026-01-01T00:00:00", "Unknown"), ":2: Submit: Unknown: must be a time"),
        (row(start="yesterday"), ":2: Start: yesterday: must be a time"),
        (row(tres="cpu=1,mem=2X"), ":2: mem: 2X: must be a number with K, M, G, T or P"),
        (row(cpus="0"), "must be positive"),
        (row("x"), ":2: JobID: x: must be a whole number"),
    ],
)
def test_bad_lines_are_named_or_skipped(read, bad, message):
    with pytest.raises(InvalidTrace) as error:
        list(read(bad))
    assert message in str(error.value)
    assert list(read(bad, lenient=True)) == []


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|User\n1|a\n")
    with pytest.raises(InvalidTrace, match="columns: Submit: is missing"):
        SacctReader(path)


CORES_8 = Units(1, (("cores", 8),), partition="main")


@pytest.mark.parametrize("separator", [",", ";", "\t", "^", "~"])
def test_other_separators_are_read_where_the_header_names_known_fields(tmp_path, separator):
    line = row(tres="cpu=8").replace("|", separator)
    path = tmp_path / "jobs.csv"
    path.write_text(f"{NAMED.replace('|', separator)}\n{line}\n\n")
    record = next(iter(open_trace(path)))
    assert (record.id, record.user, record.name, record.ask) == (
        7,
        "ada",
        "relax",
        Units(1, (("cores", 8),), partition="main"),
    )


def test_a_field_that_holds_the_separator_stands_in_quotes(tmp_path):
    line = row(tres='"cpu=8,gres/gpu=2"').replace("|", ",")
    path = tmp_path / "jobs.csv"
    path.write_text(f"{NAMED.replace('|', ',')}\n{line}\n")
    assert next(iter(open_trace(path))).ask.each == (("cores", 8), ("gpus", 2))


def test_the_separator_may_end_each_line_as_with_sacct_p(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|\n{row()}|\n")
    assert next(iter(open_trace(path))).id == 7


def test_a_job_name_in_the_last_column_may_hold_the_separator(tmp_path):
    columns = [name for name in NAMED.split("|") if name != "JobName"] + ["JobName"]
    values = dict(zip(NAMED.split("|"), row().split("|"), strict=True)) | {"JobName": "a|b|c"}
    path = tmp_path / "jobs.txt"
    path.write_text("|".join(columns) + "\n" + "|".join(values[name] for name in columns) + "\n")
    assert next(iter(open_trace(path))).name == "a|b|c"


def test_a_line_with_too_many_fields_is_refused(read):
    with pytest.raises(InvalidTrace, match="fields: 13: must be 12"):
        list(read(row() + "|more"))


def test_shares_of_a_node_are_rounded_up(read):
    record = next(iter(read(row(nodes="3", cpus="10", tres="mem=1000M,gres/gpu=4"))))
    assert record.ask.each == (("cores", 4), ("memory_mib", 334), ("gpus", 2))


def test_a_run_of_a_second_is_kept(read):
    assert [record.run_s for record in read(row(end="2026-01-01T00:01:01"))] == [1]


def test_columns_of_one_name_are_each_a_column(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|0|0\n{row()}|x|y\n")
    assert next(iter(open_trace(path))).id == 7


def test_a_job_that_never_started_is_dropped_whatever_the_word_for_it(read):
    reader = read(*(row(str(i), start=word) for i, word in enumerate(["", "Unknown", "None"])))
    assert list(reader) == []
    assert sum(reader.tally.dropped.values()) == 3


def test_resources_are_named_as_in_system_files(read):
    assert read(row()).resources == ("cores", "memory_mib", "gpus")


@pytest.mark.parametrize(
    ("amount", "mib"),
    [
        ("1024M", 1024), ("1024", 1), ("0.5G", 512), ("3K", 1), ("1025K", 2), ("2T", 2 * 1024**2), ("1P", 1024**3),
        ("1.M", 1), (f"{MAX_AMOUNT}M", MAX_AMOUNT), ("0", None),
    ],
)  # fmt: skip
def test_memory_is_rounded_up_to_whole_mib_whatever_its_unit(read, amount, mib):
    """No memory is not an amount of nought: the job does not ask for any."""
    assert dict(next(iter(read(row(tres=f"mem={amount}")))).ask.each).get("memory_mib") == mib


@pytest.mark.parametrize("amount", [f"{MAX_AMOUNT + 1}M", "9" * 400 + "P", "M", "1MM", "-1M"])
def test_memory_that_is_no_amount_is_refused(read, amount):
    with pytest.raises(InvalidTrace, match=":2: mem: "):
        list(read(row(tres=f"mem={amount}")))


@pytest.mark.parametrize(
    ("nodes", "cpus", "tres", "expected"),
    [
        ("1", "8", "", (1, 8)),
        ("1", "8", "node=2,cpu=4", (2, 2)),
        ("2", "8", "cpu=4", (2, 2)),
        ("1", "1", "", (1, 1)),
    ],
)
def test_what_was_allocated_counts_and_the_columns_where_that_is_not_told(read, nodes, cpus, tres, expected):
    ask = next(iter(read(row(nodes=nodes, cpus=cpus, tres=tres)))).ask
    assert (ask.units, dict(ask.each)["cores"]) == expected
    assert ask.distinct is (ask.units > 1)


def test_what_was_asked_for_counts_where_nothing_is_told_of_the_allocation(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|ReqTRES\n{row(tres='cpu=2')}|cpu=1,mem=7M,gres/gpu=1\n")
    assert next(iter(SacctReader(path))).ask.each == (("cores", 2), ("memory_mib", 7), ("gpus", 1))


@pytest.mark.parametrize(("nodes", "cpus", "tres"), [("0", "8", ""), ("1", "0", ""), ("1", "1", "gres/gpu=-1")])
def test_amounts_below_their_least_are_refused(read, nodes, cpus, tres):
    with pytest.raises(InvalidTrace, match=r"must be positive|must not be negative"):
        list(read(row(nodes=nodes, cpus=cpus, tres=tres)))


def test_the_raw_number_of_a_job_counts_where_it_is_told(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|JobIDRaw\n{row('5_1')}|77\n{row('5_2')}|77.batch\n")
    reader = SacctReader(path)
    assert [record.id for record in reader] == [77]
    assert dict(reader.tally.dropped) == {"job step": 1}


def test_each_kind_of_line_that_is_dropped_is_counted_by_its_kind(read):
    reader = read(row(), row("8.0"), row(), "", "  ", NAMED, row("9", end="Unknown"), row("9"))
    assert [record.id for record in reader] == [7, 9], "a run that did not count leaves room for one that does"
    assert dict(reader.tally.dropped) == {
        "job step": 1,
        "another run of a requeued job": 1,
        "never started, not ended, or run time below 1 s": 1,
    }


def test_equal_asks_are_one_object(read):
    first, second = read(row("1"), row("2"))
    assert first.ask is second.ask


@pytest.mark.parametrize(
    ("line", "separator"),
    [
        ("JobID|User", "|"),
        ("jobidraw,user,other", ","),
        ('"JobID";"State"', ";"),
        (" JobID | User \r\n", "|"),
        ("JobID|colour", ""),
        ("User|State", ""),
        ("JobID", ""),
        ("1|2|3", ""),
    ],
)
def test_a_header_line_names_a_job_and_one_more_known_field(line, separator):
    assert separator_of(line) == separator


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("a|b|c|d", True),
        ("a|b|c", False),
        ("; a|b|c|d", False),
        (" #a|b|c|d", False),
        ("JobID,User", True),
        ("", False),
    ],
)
def test_sacct_is_recognised_by_its_first_line(line, ours):
    assert SacctReader.recognises(line) is ours


@pytest.mark.parametrize("column", ["User", "Submit", "Start", "End", "Timelimit", "NNodes", "NCPUS"])
def test_each_needed_column_is_named_where_it_is_missing(tmp_path, column):
    path = tmp_path / "jobs.txt"
    path.write_text("|".join(name for name in NAMED.split("|") if name != column) + "\n")
    with pytest.raises(InvalidTrace, match=f"columns: {column}: is missing"):
        SacctReader(path)


def test_a_quoted_line_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "jobs.csv"
    long = "x" * (csv.field_size_limit() + 1)
    path.write_text(f"{NAMED.replace('|', ',')}\n" + row(tres=f'"cpu=1,{long}"').replace("|", ",") + "\n")
    with pytest.raises(InvalidTrace, match=r":2: "):
        list(SacctReader(path))


@pytest.mark.parametrize("limit", ["1-00:00:00x", "x30:00", "30", "", "-1:00"])
def test_a_limit_that_is_no_time_is_none(read, limit):
    assert next(iter(read(row(limit=limit)))).walltime_s == 600


def test_seconds_of_a_limit_may_have_fractions(read):
    assert next(iter(read(row(limit="00:00:09.500")))).walltime_s == 9
