import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.traces.swf import SwfReader, parse_swf_node_field
from cpsched_sim.traces.trace_record import ProcessorCountRequest, UnitsRequest
from tests.unit.sim.traces.test_swf import line


def frontier(job="1", gpus="16", soft="150", nodes="frontier:excl:4x112", **fields):
    return f"{line(job, **fields)} {gpus} {soft} {nodes}"


@pytest.fixture
def read(tmp_path):
    def reader(*lines, lenient=False):
        path = tmp_path / "frontier.swf"
        path.write_text("".join(text + "\n" for text in lines))
        return SwfReader(path, lenient)

    return reader


def test_last_field_gives_request(read):
    record = next(iter(read("; MaxNodes: 9408", frontier(allocated="589824", processors="4"))))
    assert record.ask == UnitsRequest(4, (("cores", 112), ("gpus", 4)), distinct=True, exclusive=True, partition="1")
    assert (record.run_s, record.walltime_s, record.soft_walltime_s) == (100, 200, 150)
    assert (record.user, record.queue) == ("7", "2")


def test_trace_requests_cores_and_gpus(read):
    assert read(frontier()).resources == ("cores", "gpus")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("frontier:excl:2500x112", (2500, 112, True)), ("f:shared:1x8", (1, 8, False)), ("-1", None),
        ("frontier:excl:0x112", None), ("frontier:excl:4x0", None), ("frontier:4x112", None), ("a:b:4x112+2x8", None),
    ],
)  # fmt: skip
def test_parses_node_descriptions(nodes, expected):
    assert parse_swf_node_field(nodes) == expected


@pytest.mark.parametrize(("gpus", "each"), [("-1", 0), ("0", 0), ("4", 1), ("5", 2), ("32", 8)])
def test_gpus_are_distributed_over_nodes(read, gpus, each):
    assert dict(next(iter(read(frontier(gpus=gpus)))).ask.each).get("gpus", 0) == each


@pytest.mark.parametrize("soft", ["-1", "0"])
def test_soft_walltime_may_be_missing(read, soft):
    assert next(iter(read(frontier(soft=soft)))).soft_walltime_s is None


def test_single_node_is_not_distinct(read):
    assert next(iter(read(frontier(nodes="frontier:shared:1x8")))).ask == UnitsRequest(
        1, (("cores", 8), ("gpus", 16)), partition="1"
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (frontier("2", nodes="-1"), ":2: nodes: -1: must be like frontier:excl:2500x112, nodes x cores"),
        (frontier("2", gpus="x"), ":2: gpus: x: must be a number"),
        (frontier("2", soft="x"), ":2: soft_walltime: x: must be a number"),
        (line("2"), ":2: fields: 18: must be 21"),
    ],
)
def test_error_names_file_line_field_value_and_rule(read, bad, message):
    reader = read(frontier(), bad)
    with pytest.raises(InvalidTrace) as error:
        list(reader)
    assert str(error.value) == f"{reader.path}{message}"


def test_recognises_format_despite_damaged_first_line(read):
    reader = read("; c", "1 2 3", "", frontier("2"), "; between", frontier("3"), lenient=True)
    asks = {record.id: record.ask for record in reader}
    assert asks.keys() == {2, 3}
    assert all(isinstance(ask, UnitsRequest) for ask in asks.values())
    assert reader.tally.skipped == {"fields must be 21": 1}


def test_jobs_differing_in_gpus_or_nodes_have_different_requests(read):
    rows = frontier("1"), frontier("2", gpus="8"), frontier("3", nodes="f:excl:2x112"), frontier("4", partition="9")
    assert len({record.ask for record in read(*rows)}) == 4


def test_other_files_with_21_fields_are_plain_swf(read):
    reader = read(f"{line()} 1 2 3")
    assert next(iter(reader)).ask == ProcessorCountRequest(4, partition="1")
    assert reader.resources == ("processors",)
    assert reader.tally.to_sentences() == ["ignored in 1 line: fields beyond the 18 of the format"]
