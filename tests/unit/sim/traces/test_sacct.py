import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.traces.record import Units
from cpsched_sim.traces.sacct import XDMOD_COLUMNS, SacctReader
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
