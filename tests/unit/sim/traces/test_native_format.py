import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.input_limits import MAX_HEADER_LINES
from cpsched_sim.traces import native_format
from cpsched_sim.traces.trace_record import TraceRecord, UnitsRequest
from cpsched_sim.workloads.eurora_generator import RESOURCES, generate_eurora_records

FIXED = ",".join(native_format.FIXED_COLUMNS)
RESOURCE_NAMES = ",".join(f"r{i}" for i in range(native_format.MAX_RESOURCES))
RECORD = TraceRecord(
    3, 7, 50, 60, UnitsRequest(2, (("cores", 4),), True, False, "p"), "ada", 'a "b",c1', "debug", "acc"
)


@pytest.fixture
def a_file(tmp_path):
    """Write rows with these columns after the fixed ones."""

    def written(*rows, columns="cores", header=()):
        path = tmp_path / "t.csv"
        names = ",".join([*native_format.FIXED_COLUMNS, columns])
        path.write_text("\n".join([native_format.FIRST_LINE, *header, names, *rows, ""]))
        return path

    return written


def read(path):
    return list(native_format.NativeTraceReader(path))


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


def test_same_records_give_same_bytes(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        native_format.write(tmp_path / name, generate_eurora_records(0.1, seed=2), RESOURCES, {"seed": 2})
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize(
    ("row", "ask"),
    [
        ("2,0,0,,4", UnitsRequest(2, (("cores", 4),))),
        ("3,0,0,,4", UnitsRequest(3, (("cores", 4),))),
        ("2,1,0,,4", UnitsRequest(2, (("cores", 4),), distinct=True)),
        ("2,0,1,,4", UnitsRequest(2, (("cores", 4),), exclusive=True)),
        ("2,0,0,p,4", UnitsRequest(2, (("cores", 4),), partition="p")),
        ("2,0,0,,5", UnitsRequest(2, (("cores", 5),))),
    ],
)
def test_rows_differing_in_one_value_have_different_requests(a_file, row, ask):
    units, distinct, exclusive, partition, cores = row.split(",")
    rows = [f"{id},0,3,4,{each},,,,,{amount}" for id, (each, amount) in enumerate([
        ("2,0,0,", "4"), (f"{units},{distinct},{exclusive},{partition}", cores)])]  # fmt: skip
    assert [record.ask for record in read(a_file(*rows))] == [UnitsRequest(2, (("cores", 4),)), ask]


UNIQUE = r":2: columns: .*: must be at most \d+ different resource names"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id,when,cores", f":2: columns: id,when,cores: must be {FIXED}, then the resources"),
        ("", ": columns: : the line of column names is missing"),
        *((f"{FIXED},{names}", UNIQUE) for names in ("start_s", "cores,cores", "cores,", "")),
        (f"{FIXED},{RESOURCE_NAMES},more", UNIQUE),
    ],
)
def test_validates_column_line(tmp_path, columns, message):
    path = tmp_path / "t.csv"
    path.write_text(f"{native_format.FIRST_LINE}\n{columns}")
    with pytest.raises(InvalidTrace, match=message):
        native_format.NativeTraceReader(path)


def test_bounds_number_of_resources(a_file):
    reader = native_format.NativeTraceReader(a_file(columns=RESOURCE_NAMES))
    assert len(reader.resources) == native_format.MAX_RESOURCES


def test_reads_each_field(a_file):
    ask = UnitsRequest(1, (("cores", 1),), False, False, "")
    assert read(a_file("1,0,1,1,1,0,0,,u,n,q,a,1")) == [TraceRecord(1, 0, 1, 1, ask, "u", "n", "q", "a")]
    (without_cores,) = read(a_file("1,0,3,4,1,0,0,,u,n,q,a,0,1", columns="cores,gpus"))
    assert without_cores.ask.each == (("gpus", 1),)


@pytest.mark.parametrize(
    ("columns", "row", "field"),
    [
        *(("cores", row, field) for row, field in (
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
        )),
        ("cores,gpus", "1,0,3,4,1,0,0,,u,n,q,a,0,0", "amounts: "),
        ("cores,gpus", "1,0,3,4,1,0,0,,u,n,q,a,5,-1", "amounts: "),
        ("start_s,cores", "1,0,3,4,1,0,0,,u,n,q,a,x,8", "start_s: x: must be a whole number"),
        ("start_s,cores", "1,0,3,4,1,0,0,,u,n,q,a,-1,8", "start_s: -1: must be from submit_s=0 to "),
    ],
)  # fmt: skip
def test_each_field_is_checked_at_its_bounds(a_file, columns, row, field):
    path = a_file(row, columns=columns)
    with pytest.raises(InvalidTrace) as error:
        read(path)
    assert f"{path}:3: " in str(error.value)
    assert field in str(error.value)
    reader = native_format.NativeTraceReader(path, lenient=True)
    assert (list(reader), sum(reader.tally.skipped.values())) == ([], 1)


def test_ignores_blank_lines_and_reads_quoted_words(a_file):
    rows = ["", "1,0,1,1,1,0,0,,u,plain,q,a,1", "   ", '2,0,1,1,1,0,0,,u,"a ""b"",c",q,a,1']
    assert [(record.id, record.name) for record in read(a_file(*rows))] == [(1, "plain"), (2, 'a "b",c')]


def test_bounds_header_lines_and_their_length(a_file):
    many = [f"# k{i}: {i}" for i in range(MAX_HEADER_LINES + 5)]
    header = native_format.NativeTraceReader(a_file(header=many)).header
    assert (len(header), header["k0"]) == (MAX_HEADER_LINES, "0")
    fits = "# key:" + "x" * (native_format.MAX_LINE_CHARS - 7)
    assert native_format.NativeTraceReader(a_file(header=[fits])).header["key"].startswith("xxx")
    with pytest.raises(InvalidTrace, match=r"t\.csv:2: "):
        native_format.NativeTraceReader(a_file(header=[fits + "xx"]))


def changed(field, text):
    """Return the record with another text. The partition is part of the request."""
    of_request = {"ask": UnitsRequest(2, (("cores", 4),), partition=text)}
    return RECORD._replace(**(of_request if field == "partition" else {field: text}))


@pytest.mark.parametrize("field", ["user", "name", "queue", "account", "partition"])
@pytest.mark.parametrize("end", ["\n", "\r", "\nmore", "\u2028more"])
def test_writes_no_word_with_line_break(tmp_path, field, end):
    with pytest.raises(InputError, match=r"job 3: a.*: text in a trace must not contain line breaks"):
        native_format.write(tmp_path / "t.csv", [changed(field, f"a{end}")], RESOURCES, {})
    assert list(tmp_path.iterdir()) == []


def test_first_line_identifies_format():
    assert native_format.NativeTraceReader.recognises(f"{native_format.FIRST_LINE} \n")
    assert not native_format.NativeTraceReader.recognises("# cpsched-trace 2")


@pytest.mark.parametrize("line", ["#system:eurora", "# system: eurora", "#  system :  eurora  ", "#system: eurora"])
def test_strips_blanks_in_header(a_file, line):
    assert native_format.NativeTraceReader(a_file(header=[line])).header["system"] == "eurora"
