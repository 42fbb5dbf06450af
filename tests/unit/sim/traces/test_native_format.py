import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.input_limits import MAX_HEADER_LINES
from cpsched_sim.traces import native_format
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest
from cpsched_sim.workloads.eurora_generator import RESOURCES, generate_eurora_records
from cpsched_sim.workloads.workload_loader import load

RECORD = TraceRecord(
    3, 7, 50, 60, UnitsRequest(2, (("cores", 4),), True, False, "p"), "ada", 'a "b",c1', "debug", "acc"
)


def test_written_trace_is_read_back(tmp_path):
    path = tmp_path / "t.csv.gz"
    records = [RECORD, *(record._replace(id=record.id + 3) for record in generate_eurora_records(0.2, seed=1))]
    native_format.write(path, records, RESOURCES, {"system": "eurora", "seed": 1})
    reader = native_format.NativeTraceReader(path)
    assert list(reader) == records
    assert (reader.header["system"], reader.header["seed"]) == ("eurora", "1")


def test_writes_recorded_starts_if_known(tmp_path):
    started, unknown = RECORD._replace(start_s=9), RECORD._replace(id=4)
    native_format.write(tmp_path / "t.csv", [started, unknown], ("cores", "gpus"), {})
    assert list(native_format.NativeTraceReader(tmp_path / "t.csv")) == [started, unknown]
    native_format.write(tmp_path / "u.csv", [unknown], ("cores", "gpus"), {})
    assert "start_s" not in (tmp_path / "u.csv").read_text()


@pytest.mark.parametrize(
    ("start", "message"),
    [("x", ":3: start_s: x: must be a whole number"), ("-1", ":3: start_s: -1: must be from submit_s=0 to ")],
)
def test_invalid_recorded_start_is_named(tmp_path, start, message):
    path = tmp_path / "t.csv"
    path.write_text(
        f"{native_format.FIRST_LINE}\n{','.join(native_format.FIXED_COLUMNS)},start_s,cores\n1,0,3,4,1,0,0,,u,n,q,a,{start},8\n"
    )
    with pytest.raises(InvalidTrace) as error:
        list(native_format.NativeTraceReader(path))
    assert message in str(error.value)


def test_rejects_table_without_resources(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"{native_format.FIRST_LINE}\n{','.join(native_format.FIXED_COLUMNS)},start_s\n")
    with pytest.raises(InvalidTrace, match=r"must be at most \d+ different resource names"):
        native_format.NativeTraceReader(path)


def test_same_records_give_same_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        native_format.write(tmp_path / name, generate_eurora_records(0.1, seed=2), RESOURCES, {"seed": 2})
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_generated_trace_loads_on_its_system(tmp_path):
    path = tmp_path / "t.csv.gz"
    native_format.write(path, generate_eurora_records(0.5, seed=1), RESOURCES, {"system": "eurora"})
    workload = load(path)
    assert (workload.system, workload.cluster.size) == ("eurora", 64)
    assert len(workload.jobs) == len(generate_eurora_records(0.5, seed=1))


@pytest.mark.parametrize(("amounts", "holds"), [("1,0", True), ("0,1", True), ("0,0", False), ("5,-1", False)])
def test_amounts_are_non_negative_and_one_is_positive(tmp_path, amounts, holds):
    path = tmp_path / "t.csv"
    path.write_text(
        f"{native_format.FIRST_LINE}\n{','.join(native_format.FIXED_COLUMNS)},cores,gpus\n1,0,3,4,1,0,0,,u,n,q,a,{amounts}\n"
    )
    if holds:
        assert len(list(native_format.NativeTraceReader(path))) == 1
    else:
        with pytest.raises(InvalidTrace, match="amounts: "):
            list(native_format.NativeTraceReader(path))


def test_rows_differing_in_one_value_have_different_requests(tmp_path):
    path = tmp_path / "t.csv"
    rows = ["2,0,0,,4", "3,0,0,,4", "2,1,0,,4", "2,0,1,,4", "2,0,0,p,4", "2,0,0,,5"]
    lines = []
    for id, row in enumerate(rows):
        units, distinct, exclusive, partition, cores = row.split(",")
        lines.append(f"{id},0,3,4,{units},{distinct},{exclusive},{partition},,,,,{cores}")
    path.write_text(
        "\n".join([native_format.FIRST_LINE, ",".join([*native_format.FIXED_COLUMNS, "cores"]), *lines, ""])
    )
    asks = [record.ask for record in native_format.NativeTraceReader(path)]
    assert asks == [
        UnitsRequest(2, (("cores", 4),)), UnitsRequest(3, (("cores", 4),)), UnitsRequest(2, (("cores", 4),), distinct=True),  # noqa: E501
        UnitsRequest(2, (("cores", 4),), exclusive=True), UnitsRequest(2, (("cores", 4),), partition="p"), UnitsRequest(2, (("cores", 5),)),  # noqa: E501
    ]  # fmt: skip


def test_does_not_write_name_with_line_break(tmp_path):
    with pytest.raises(InputError, match=r"job 3: a\\nb: text in a trace must not contain line breaks"):
        native_format.write(tmp_path / "t.csv", [RECORD._replace(name="a\nb")], RESOURCES, {})
    assert list(tmp_path.iterdir()) == []


def test_validates_column_line(tmp_path):
    path = tmp_path / "t.csv"
    fixed = ",".join(native_format.FIXED_COLUMNS)
    path.write_text(f"{native_format.FIRST_LINE}\nid,when,cores\n")
    with pytest.raises(InvalidTrace) as error:
        native_format.NativeTraceReader(path)
    assert str(error.value) == f"{path}:2: columns: id,when,cores: must be {fixed}, then the resources"
    path.write_text(f"{native_format.FIRST_LINE}\n")
    with pytest.raises(InvalidTrace, match=": columns: : the line of column names is missing"):
        native_format.NativeTraceReader(path)


@pytest.mark.parametrize(
    ("count", "holds"), [(native_format.MAX_RESOURCES, True), (native_format.MAX_RESOURCES + 1, False)]
)
def test_bounds_number_of_resources(tmp_path, count, holds):
    path = tmp_path / "t.csv"
    names = ",".join(f"r{i}" for i in range(count))
    path.write_text(f"{native_format.FIRST_LINE}\n{','.join(native_format.FIXED_COLUMNS)},{names}\n")
    if holds:
        assert len(native_format.NativeTraceReader(path).resources) == count
    else:
        with pytest.raises(InvalidTrace, match=r"must be at most \d+ different resource names"):
            native_format.NativeTraceReader(path)


def a_file(tmp_path, *rows, columns="cores", header=()):
    path = tmp_path / "t.csv"
    path.write_text(
        "\n".join([native_format.FIRST_LINE, *header, ",".join([*native_format.FIXED_COLUMNS, columns]), *rows, ""])
    )
    return path


def read(path):
    return list(native_format.NativeTraceReader(path))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("1,0,1,1,1,0,0,,u,n,q,a,1", None),
        ("1,-1,1,1,1,0,0,,u,n,q,a,1", "submit_s: -1: must be at least 0"),
        ("1,0,1,0,1,0,0,,u,n,q,a,1", "walltime_s: 0: must be at least 1"),
        ("x,0,1,1,1,0,0,,u,n,q,a,1", "job: x: must be a whole number"),
        ("1,0,1,1.5,1,0,0,,u,n,q,a,1", "walltime_s: 1.5: must be a whole number"),
        ("1,0,1,1,1,no,0,,u,n,q,a,1", "distinct: no: must be a whole number"),
        ("1,0,1,1,1,0,no,,u,n,q,a,1", "exclusive: no: must be a whole number"),
        ("1,0,1,1,1,0,0,,u,n,q,a,?", "cores: ?: must be a whole number"),
        ("1,0,1,1,1,0,0,,u,n,q,a,1,2", "fields: 14: must be 13"),
        ('1,0,1,1,1,0,0,,u,"n,q,a,1', "must be valid CSV"),
        ('1,0,1,1,1,0,0,,u,"n",q,a', "fields: 12: must be 13"),
        ("1,2", "fields: 2: must be 13"),
        ("1,0,0,4,1,0,0,,u,n,q,a,1", "run_s: 0: must be at least 1"),
        ("1,0,3,4,0,0,0,,u,n,q,a,1", "units: 0: must be at least 1"),
        ("1,0,3,4,1,0,0,,u,n,q,a,0", "amounts: [0]: must not be negative, and one must be positive"),
    ],
)
def test_each_field_is_checked_at_its_bounds(tmp_path, row, field):
    path = a_file(tmp_path, row)
    if field is None:
        (record,) = read(path)
        assert (record.id, record.submit_s, record.run_s, record.walltime_s) == (1, 0, 1, 1)
        assert (record.user, record.name, record.queue, record.account) == ("u", "n", "q", "a")
        assert record.ask == UnitsRequest(1, (("cores", 1),), False, False, "")
    else:
        with pytest.raises(InvalidTrace) as error:
            read(path)
        assert f"{path}:3: " in str(error.value)
        assert field in str(error.value)
        reader = native_format.NativeTraceReader(path, lenient=True)
        assert (list(reader), sum(reader.tally.skipped.values())) == ([], 1)


def test_ignores_blank_lines_and_reads_quoted_words(tmp_path):
    rows = ["", "1,0,1,1,1,0,0,,u,plain,q,a,1", "   ", '2,0,1,1,1,0,0,,u,"a ""b"",c",q,a,1']
    assert [(record.id, record.name) for record in read(a_file(tmp_path, *rows))] == [(1, "plain"), (2, 'a "b",c')]


@pytest.mark.parametrize("columns", ["cores,cores", "cores,", ""])
def test_resource_names_are_unique(tmp_path, columns):
    path = a_file(tmp_path, columns=columns)
    with pytest.raises(InvalidTrace, match=r":2: columns: .*: must be at most \d+ different resource names"):
        read(path)


def test_bounds_header_lines_and_their_length(tmp_path):
    many = [f"# k{i}: {i}" for i in range(MAX_HEADER_LINES + 5)]
    header = native_format.NativeTraceReader(a_file(tmp_path, header=many)).header
    assert len(header) == MAX_HEADER_LINES
    assert header["k0"] == "0"
    fits = "# key:" + "x" * (native_format.MAX_LINE_CHARS - 7)
    assert native_format.NativeTraceReader(a_file(tmp_path, header=[fits])).header["key"].startswith("xxx")
    with pytest.raises(InvalidTrace, match=r"t\.csv:2: "):
        native_format.NativeTraceReader(a_file(tmp_path, header=[fits + "xx"]))


@pytest.mark.parametrize("field", ["user", "name", "queue", "account"])
@pytest.mark.parametrize("end", ["\n", "\r", "\nmore", "\u2028more"])
def test_writes_no_word_with_line_break(tmp_path, field, end):
    with pytest.raises(InputError, match="must not contain line breaks"):
        native_format.write(tmp_path / "t.csv", [RECORD._replace(**{field: f"a{end}"})], RESOURCES, {})
    asks = UnitsRequest(2, (("cores", 4),), partition=f"a{end}")
    with pytest.raises(InputError, match="must not contain line breaks"):
        native_format.write(tmp_path / "t.csv", [RECORD._replace(ask=asks)], RESOURCES, {})


def test_first_line_identifies_format():
    assert native_format.NativeTraceReader.recognises(f"{native_format.FIRST_LINE} \n")
    assert not native_format.NativeTraceReader.recognises("# cpsched-trace 2")


@pytest.mark.parametrize("line", ["#system:eurora", "# system: eurora", "#  system :  eurora  ", "#system: eurora"])
def test_strips_blanks_in_header(tmp_path, line):
    path = tmp_path / "t.csv"
    native_format.write(path, [RECORD], ("cores",), {})
    text = path.read_text().partition("\n")
    path.write_text(f"{text[0]}\n{line}\n{text[2]}")
    assert native_format.NativeTraceReader(path).header["system"] == "eurora"
