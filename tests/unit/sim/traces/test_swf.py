import gzip
from pathlib import Path

import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.traces.swf import SwfReader
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceRecord
from tests.traces import GAIA, trace


def line(
    job="1", submit="0", run="100", allocated="4", processors="4", requested="200", memory="-1", used="-1", user="7",
    executable="14", queue="2", partition="1", wait="-1",
):  # fmt: skip
    return f"{job} {submit} {wait} {run} {allocated} -1 {used} {processors} {requested} {memory} 1 {user} 1 {executable} {queue} {partition} -1 -1"  # noqa: E501


@pytest.fixture
def swf(tmp_path):
    def write(*lines: str, name: str = "t.swf") -> Path:
        path = tmp_path / name
        path.write_text("".join(text + "\n" for text in lines))
        return path

    return write


@pytest.fixture
def read_one(swf):
    """Return the only record of a line with these fields."""

    def record(**fields):
        (found,) = SwfReader(swf(line(**fields)))
        return found

    return record


def test_reads_fields_used_by_replay(read_one):
    ask = ProcessorCountRequest(4, requested_mib=2, used_mib=1, partition="1")
    assert read_one(memory="1500", used="10") == TraceRecord(1, 0, 100, 200, ask, "7", "14", "2")


@pytest.mark.parametrize(("wait", "start_s"), [("40", 45), ("0", 5), ("2.5", 7), ("-1", None)])
def test_recorded_wait_gives_start(read_one, wait, start_s):
    assert read_one(submit="5", wait=wait).start_s == start_s


@pytest.mark.parametrize(
    ("requested", "run", "walltime_s", "run_s"),
    [
        *((requested, "100", expected_s, 100) for requested, expected_s in {
            "200": 200, "200.0": 200, "2.5e2": 250, "200.9": 200, "-1": 100, "0": 100}.items()),
        ("-1", "7", 7, 7), ("0", "7", 7, 7), ("1", "7", 1, 1), ("6", "7", 6, 6), ("7", "7", 7, 7), ("8", "7", 8, 7),
        ("200", "200", 200, 200), ("200", "201", 200, 200),
    ],
)  # fmt: skip
def test_limit_is_seconds_or_run_time_and_truncates_run(swf, requested, run, walltime_s, run_s):
    reader = SwfReader(swf(line(requested=requested, run=run)))
    assert [(record.walltime_s, record.run_s) for record in reader] == [(walltime_s, run_s)]
    told = ["cut 1 job: run time longer than the requested time"] if run_s < int(run) else []
    assert [note for note in reader.tally.to_sentences() if "cut" in note] == told


def test_truncates_fractional_numbers(read_one):
    record = read_one(submit="1728000000.75", wait="1e1", run="99.9")
    assert (record.submit_s, record.start_s, record.run_s) == (1_728_000_000, 1_728_000_010, 99)
    record = read_one(job="5.0", submit="3.9", run="10.9", requested="20.9", processors="4.0")
    assert (record.id, record.submit_s, record.run_s, record.walltime_s, record.ask.processors) == (5, 3, 10, 20, 4)


def test_keeps_header_and_skips_comments_and_empty_lines(swf):
    reader = SwfReader(swf("; MaxProcs: 64", ";  Queue: 1 - a", "; Queue: 2 - b", "", line(), "; between", line("2")))
    assert (reader.header["MaxProcs"], reader.header["Queue"]) == ("64", "1 - a\n2 - b")
    assert [record.id for record in reader] == [1, 2]
    assert "between" in reader.comments


def test_reads_gzip_with_any_name(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(line().encode()))
    assert len(list(SwfReader(path))) == 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_ignores_byte_order_mark(tmp_path, pack):
    path = tmp_path / "trace.swf"
    path.write_bytes(pack(b"\xef\xbb\xbf" + line("7").encode()))
    assert [record.id for record in SwfReader(path)] == [7]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"run": "0"}, "run time below 1 s"),
        ({"run": "-1"}, "run time"),
        ({"processors": "0", "allocated": "-1"}, "no proc"),
    ],
)
def test_drops_and_counts_jobs_that_cannot_be_replayed(swf, fields, reason):
    reader = SwfReader(swf(line(**fields), line("2")))
    assert [record.id for record in reader] == [2]
    assert reason in reader.tally.to_sentences()[0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(), "1 2 3"], ":2: fields: 3: must be 18"),
        (["; c", line(submit="-5")], ":2: submit: -5: must not be negative"),
        ([line(submit="-1.0")], ":1: submit: -1: must not be negative"),
        ([line().rsplit(" ", 1)[0]], ":1: fields: 17: must be 18"),
        ([line(requested="nan")], ":1: requested_time: nan: must be a number"),
        ([line(), line()], ":2: job: 1: must occur only once"),
        *(
            ([line(**{field: "x"})], f":1: {name}: x: must be a number")
            for field, name in {
                "job": "job", "submit": "submit", "run": "run", "used": "used_memory", "processors": "processors",
                "requested": "requested_time", "memory": "requested_memory",
            }.items()
        ),
        ([line(processors="-1", allocated="x")], ":1: allocated: x: must be a number"),
        *(
            ([line(requested=text)], f":1: requested_time: {text}: must be a number")
            for text in ("8h", "0:10:00", "inf", "200s")
        ),
    ],
)  # fmt: skip
def test_error_names_file_line_field_value_and_rule(swf, lines, message):
    path = swf(*lines)
    with pytest.raises(InvalidTrace) as error:
        list(SwfReader(path))
    assert str(error.value) == f"{path}{message}"


def test_lenient_reading_skips_and_counts(swf):
    reader = SwfReader(swf("1 2", line(), line(), line("3", submit="-1")), lenient=True)
    assert [record.id for record in reader] == [1]
    assert sum(reader.tally.skipped.values()) == 3


def test_fields_beyond_18_are_ignored_with_one_note(swf):
    reader = SwfReader(swf(line() + " 2048", line("2") + " 1024", line("3")))
    assert [record.id for record in reader] == [1, 2, 3]
    assert reader.tally.to_sentences() == ["ignored in 2 lines: fields beyond the 18 of the format"]


def test_truncates_long_header_quickly(swf):
    reader = SwfReader(swf(*["; Note: " + "x" * 60] * 60_000, line()))
    assert len(reader.comments) == 10_000
    assert len(list(reader)) == 1


def test_reads_smallest_job(read_one):
    record = read_one(run="1", processors="1", allocated="-1", requested="1")
    assert (record.run_s, record.walltime_s, record.ask.processors) == (1, 1, 1)


@pytest.mark.parametrize("processors", ["0", "-1"])
def test_uses_allocated_processors_if_none_requested(swf, processors):
    assert next(iter(SwfReader(swf(line(processors=processors, allocated="5"))))).ask.processors == 5
    reader = SwfReader(swf(line(processors=processors, allocated="0")))
    assert list(reader) == []
    assert reader.tally.to_sentences() == ["dropped 1 job: no processors, neither requested nor allocated"]


def test_jobs_differing_in_one_field_have_different_requests(swf):
    fields = ({}, {"processors": "5"}, {"memory": "2048"}, {"used": "4096"}, {"partition": "2"})
    asks = [record.ask for record in SwfReader(swf(*(line(str(i), **each) for i, each in enumerate(fields))))]
    assert len(set(asks)) == len(fields)
    assert [(ask.processors, ask.requested_mib, ask.used_mib, ask.partition) for ask in asks] == [
        (4, 0, 0, "1"), (5, 0, 0, "1"), (4, 2, 0, "1"), (4, 0, 4, "1"), (4, 0, 0, "2"),
    ]  # fmt: skip


def test_distinguishes_missing_file_from_broken_archive(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        SwfReader(tmp_path / "none.swf")
    path = tmp_path / "cut.swf.gz"
    path.write_bytes(gzip.compress("".join(line(str(i)) + "\n" for i in range(1, 5000)).encode())[:-200])
    with pytest.raises(InvalidTrace, match="must be complete"):
        list(SwfReader(path))


def test_gaia_raw_trace_drops_128_and_truncates_1500():
    reader = SwfReader(trace(GAIA))
    assert sum(1 for _ in reader) == 51_987 - 128
    assert list(reader.tally.dropped.values()) == [128]
    assert list(reader.tally.cut.values()) == [1500]


@pytest.mark.parametrize(("kib", "mib"), [("-1", 0), ("0", 0), ("1", 1), ("1024", 1), ("1025", 2), ("2048", 2)])
def test_rounds_memory_up_to_whole_mib(read_one, kib, mib):
    assert read_one(memory=kib).ask.requested_mib == mib


def test_unknown_values_have_empty_names(read_one):
    record = read_one(user="-1", executable="-1", queue="-1", partition="-1")
    assert (record.user, record.name, record.queue, record.ask.partition) == ("", "", "", "")


def test_header_keys_are_words(swf):
    reader = SwfReader(swf("; Time Zone: UTC", "; see a/b: c", line()))
    assert reader.header == {"Time Zone": "UTC"}


@pytest.mark.parametrize(
    ("first", "is_one"),
    [("; a comment", True), (line(), True), (line("x"), False), ("1 2 3", False), (line(submit="x"), True)],
)
def test_line_starting_like_job_or_comment_is_swf(first, is_one):
    assert SwfReader.recognises_later(first) is is_one
