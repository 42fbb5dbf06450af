"""Implausible sizes and numbers: each is rejected at its line with a short message."""

import gzip

import pytest

from cpsched_sim.errors import InvalidTrace
from cpsched_sim.input.input_limits import MAX_AMOUNT, MAX_FIELD_CHARS, MAX_ID, MAX_LINE_CHARS, MAX_TIME_S, MAX_UNITS
from cpsched_sim.input.text_line_reader import open_text
from cpsched_sim.traces import native_format, trace_record
from cpsched_sim.workloads.workload_loader import load, open_trace
from tests.unit.sim.traces.test_sacct_reader import NAMED, row
from tests.unit.sim.traces.test_swf import line

OWN = f"{native_format.FIRST_LINE}\n# system: eurora\n{','.join(native_format.FIXED_COLUMNS)},cores,memory_mib\n"


def written(tmp_path, text):
    path = tmp_path / "trace"
    path.write_text(text)
    return path


def refused(path, system=None):
    with pytest.raises(InvalidTrace) as caught:
        load(path, system)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600
    return message.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"job": str(MAX_ID + 1)}, f"2: job: {MAX_ID + 1}: must be from"),
        ({"job": str(-MAX_ID - 1)}, f"2: job: {-MAX_ID - 1}: must be from"),
        ({"submit": str(MAX_TIME_S + 1)}, f"2: submit_s: {MAX_TIME_S + 1}: must be from 0 to"),
        ({"submit": str(2**62)}, "2: submit_s: 4611686018427387904: must be from 0 to"),
        ({"run": str(MAX_TIME_S + 1), "requested": "-1"}, f"2: run_s: {MAX_TIME_S + 1}: must be from 1 to"),
        ({"requested": str(MAX_TIME_S + 1)}, f"2: walltime_s: {MAX_TIME_S + 1}: must be from 1 to"),
        ({"processors": str(MAX_UNITS + 1)}, f"2: processors: {MAX_UNITS + 1}: must be from 1 to"),
        ({"submit": "9" * 5000}, "2: submit: 9999"),
        ({"submit": "nan"}, "2: submit: nan: must be a number"),
        ({"run": "1e400"}, "2: run: 1e400: must be a number"),
        ({"processors": "4\x1b[31m"}, "2: processors: 4\\x1b[31m: must be a number"),
    ],
)
def test_swf_values_out_of_bounds_are_rejected(tmp_path, fields, message):
    assert refused(written(tmp_path, f"; MaxProcs: 8\n{line(**fields)}\n")).startswith(message)


def test_reads_values_at_bounds(tmp_path):
    text = f"; MaxProcs: {MAX_UNITS}\n" + line(
        str(MAX_ID), submit=str(MAX_TIME_S), run=str(MAX_TIME_S), requested="-1", processors=str(MAX_UNITS)
    )
    job = load(written(tmp_path, text)).jobs[0]
    assert (job.job.id, job.job.submit_s, job.run_s, job.job.request.units) == (
        MAX_ID, MAX_TIME_S, MAX_TIME_S, MAX_UNITS,
    )  # fmt: skip


@pytest.mark.parametrize("size", ["0", "x", "-4", "\u00b2", ""])
def test_reports_header_without_size(tmp_path, size):
    with pytest.raises(Exception, match="the header of the trace has no MaxProcs"):
        load(written(tmp_path, f"; MaxProcs: {size}\n{line()}\n"))


def test_rejects_size_beyond_bound(tmp_path):
    assert "MaxProcs: 99999999999999999999: must be from 1" in refused(
        written(tmp_path, f"; MaxProcs: {'9' * 20}\n{line()}\n")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"1,{2**62},9,9,1,0,0,,,,,,1,0", "4: submit_s: 4611686018427387904: must be from 0"),
        (f"1,0,{2**63},9,1,0,0,,,,,,1,0", "4: run_s: 9223372036854775808: must be from 1"),
        (f"1,0,9,9,{2**31},0,0,,,,,,1,0", "4: units: 2147483648: must be at most"),
        (f"1,0,9,9,1,0,0,,,,,,1,{MAX_AMOUNT + 1}", f"4: memory_mib: {MAX_AMOUNT + 1}: must be at most"),
        ("1,0,9,9,1,0,0,,,,,," + "9" * 5000 + ",0", "4: cores: 9999"),
        ('1,0,9,9,1,0,0,,"u', "4: line: 1,0,9,9,1,0,0,,\"u: must be valid CSV: unexpected end of data"),
        ('1,0,9,9,1,0,0,,"' + "y" * 140_000 + '",,,,1,0', "4: line: 1,0,9,9,1,0,0,,\"yyyy"),
        (f"1,0,9,9,1,0,0,,{'y' * (MAX_FIELD_CHARS + 1)},,,,1,0", "4: user: yyyy"),
        (f"1,0,9,9,1,0,0,,{'y' * MAX_LINE_CHARS},,,,1,0", "4: line: 1,0,9,9"),
    ],
)  # fmt: skip
def test_native_values_out_of_bounds_are_rejected(tmp_path, text, message):
    assert refused(written(tmp_path, f"{OWN}{text}\n")).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tres": "cpu=8,mem=1.2.3G"}, "2: mem: 1.2.3G: must be a number followed by K, M, G, T or P"),
        ({"tres": "mem=" + "9" * 400 + "P"}, "2: mem: 9999"),
        ({"tres": f"mem={MAX_AMOUNT + 1}M"}, f"2: mem: {MAX_AMOUNT + 1}M: must be at most"),
        ({"tres": "gres/gpu=-1"}, "2: gres/gpu: -1: must not be negative"),
        ({"cpus": "9" * 5000}, "2: NCPUS: 9999"),
        ({"cpus": str(2**63)}, "2: cores: 9223372036854775808: must be at most"),
        ({"limit": "9" * 5000 + "-00:00:00"}, "2: Timelimit: 9999"),
        ({"limit": "99999999999999-00:00:00"}, "2: walltime_s: 8639999999999913600: must be from 1"),
        ({"end": "2026-01-01T00:00:00+99:99"}, "2: End: 2026-01-01T00:00:00+99:99: must be a time like"),
        ({"end": "9" * 5000}, "2: End: 9999"),
        ({"start": str(10**13)}, "2: Start: 10000000000000: must be a time like"),
        ({"id": "9" * 5000}, "2: JobID: 9999"),
        ({"id": str(2**70)}, f"2: job: {2**70}: must be from"),
    ],
)
def test_sacct_values_out_of_bounds_are_rejected(tmp_path, changes, message):
    assert refused(written(tmp_path, f"{NAMED}\n{row(**changes)}\n"), "eurora").startswith(message)


def test_rejects_sacct_times_before_1970(tmp_path):
    text = f"{NAMED}\n" + row().replace("2026-01-01T00:00:00", "1969-12-31T23:59:59") + "\n"
    assert refused(written(tmp_path, text), "eurora").startswith("2: submit_s: -1: must be from 0")


def test_lenient_reading_skips_too_long_line(tmp_path):
    path = written(tmp_path, f"; MaxProcs: 8\n{line('1')}\n{'x' * (3 * MAX_LINE_CHARS)}\n{line('2')}\n")
    assert refused(path).startswith("3: line: xxxx")
    workload = load(path, lenient=True)
    assert [job.job.id for job in workload.jobs] == [1, 2]
    skipped, broken = workload.notes
    assert skipped == "skipped 1 job: line must not be longer than 1,048,576 characters"
    assert broken.startswith(f"broken: {path}:3: line: xxxx")
    assert len(broken) < 300 + len(str(path))


def test_reads_line_of_maximum_length(tmp_path):
    for more, kept in ((0, 2), (1, 1)):
        text = line("2").ljust(MAX_LINE_CHARS - 1 + more)
        path = written(tmp_path, f"; MaxProcs: 8\n{line('1')}\n{text}\n")
        assert len(load(path, lenient=True).jobs) == kept


LONG, SHORT = "decompresses to more than 67,108,864 bytes", "1,000,001 without a job: must be at most 1,000,000"


@pytest.mark.parametrize(
    ("text", "rule"), [(b"; " + b"x" * 1_000_000 + b"\n", LONG), (b"\n", SHORT), (b"; a word\n", SHORT)]
)
def test_rejects_gzip_bomb_at_once(tmp_path, text, rule):
    """The work is bounded: a million lines without a job, or 64 MiB and fifty times the file's size."""
    path = tmp_path / "trace.gz"
    times = min(1_000_100, 70 * 2**20 // len(text))
    path.write_bytes(gzip.compress(f"; MaxProcs: 8\n{line()}\n".encode() + text * times, 1))
    assert path.stat().st_size < 1_300_000
    with pytest.raises(InvalidTrace, match=rule):
        load(path)


def test_gzip_limit_depends_on_file_size(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"x" * (70 * 2**20), 6))
    with open_text(path, 1100) as file:
        assert sum(len(part) for part in iter(lambda: file.read(1 << 20), "")) == 70 * 2**20
    with open_text(path, 100) as file, pytest.raises(OSError, match="the limit for a file of this size"):
        file.read()


def test_dropped_jobs_count_as_lines_with_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_record, "MAX_LINES_WITHOUT_JOB", 3)
    dropped = "\n".join(line(str(id), run="0") for id in range(1, 9))
    path = written(tmp_path, f"; MaxProcs: 8\n\n{dropped}\n{line('10')}\n\n")
    assert [job.job.id for job in load(path).jobs] == [10]
    path.write_text(path.read_text() + "; one more\n")
    assert refused(path) == "13: lines: 4 without a job: must be at most 3"


def test_lenient_reading_stops_after_many_bad_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_record, "MAX_LINES_WITHOUT_JOB", 3)
    path = written(tmp_path, f"; MaxProcs: 8\n{line('10')}\nno job\nno job\n")
    assert [job.job.id for job in load(path, lenient=True).jobs] == [10]
    path.write_text(path.read_text() + "no job\n")
    with pytest.raises(InvalidTrace, match="5: lines: 4 without a job: must be at most 3"):
        load(path, lenient=True)


@pytest.mark.parametrize("own", [False, True])
def test_long_header_does_not_fill_memory(tmp_path, own):
    sign, value = ("#", "y" * 1_000_000) if own else (";", "y" * 1_000_000)
    notes = "".join(f"{sign} Note{i}: {value}\n" for i in range(12))
    text = OWN.replace("# system", f"{notes}# system") if own else f"; MaxProcs: 8\n{notes}{line()}\n"
    reader = open_trace(written(tmp_path, text))
    assert 3_000_000 < sum(map(len, reader.header.values())) < 4_200_000
