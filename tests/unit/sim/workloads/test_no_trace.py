"""Files that are not traces: the guessed type, and the list of supported formats."""

import bz2
import gzip
import json
import os
import socket

import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.traces.native_format import write
from cpsched_sim.traces.trace_record import TraceDialect
from cpsched_sim.workloads.workload_loader import load, open_trace
from tests.traces import XDMOD, trace
from tests.unit.sim.traces.test_pbs_accounting import line as pbs_line
from tests.unit.sim.traces.test_sacct_reader import NAMED, row
from tests.unit.sim.traces.test_swf import line

FORMATS = "formats read, also gzipped: native, pbs, sacct, swf; tables: kestrel, pm100"
JOBS = f"; MaxProcs: 8\n{line('1')}\n{line('2')}\n"


@pytest.mark.parametrize(
    ("content", "seems"),
    [
        (b"", "empty"),
        (b"\n \n\t\n", "empty"),
        (JOBS.encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        (JOBS.encode("utf-16-le"), "UTF-16 text, or binary data"),
        (JOBS.encode("utf-32"), "UTF-32 text; save it as UTF-8"),
        (b"id,submit,run\n1,0,100\n", "a table with commas (CSV)"),
        (b"id;submit;run\n1;0;100\n", "a table with semicolons (CSV)"),
        (b"id\tsubmit\trun\n1\t0\t100\n", "a table with tabs (CSV)"),
        (json.dumps({"jobs": []}).encode(), "JSON"),
        (b"<html><body>Not found</body></html>", "HTML or XML"),
        (b"Dear colleague,\nhere is the trace.\n", "text"),
        (bytes(range(256)) * 8, "binary data"),
        (bz2.compress(JOBS.encode()), "a bzip2 archive; decompress it, or compress it with gzip"),
        (b"PK\x03\x04" + bytes(100), "a zip archive or an office document"),
        (b"\x7fELF" + bytes(100), "a program"),
        (gzip.compress(b"", mtime=0), "gzip, containing empty"),
        (gzip.compress(b"a,b,c\n1,2,3\n", mtime=0), "gzip, containing a table with commas (CSV)"),
    ],
)
def test_error_names_probable_file_type(tmp_path, content, seems):
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        open_trace(path)
    assert str(caught.value) == f"{path}: seems to be {seems}, not a trace; {FORMATS}"


def test_does_not_open_special_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name, seems in (("", "a directory"), ("pipe", "a named pipe"), ("socket", "a socket")):
            with pytest.raises(
                InputError,
                match=f"seems to be {seems}, not a trace; formats read, also gzipped: native, pbs, sacct, swf",
            ):
                open_trace(tmp_path / name)
    with pytest.raises(InputError, match="seems to be a device, not a trace"):
        open_trace(tmp_path.__class__("/dev/zero"))


def test_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.swf: No such file or directory"):
        open_trace(tmp_path / "gone.swf")
    path = tmp_path / "t.swf.gz"
    path.write_bytes(gzip.compress(JOBS.encode())[:10])
    with pytest.raises(InputError, match=r"t\.swf\.gz: damaged gzip"):
        open_trace(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file_is_named(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(JOBS)
    path.chmod(0)
    with pytest.raises(InputError, match=r"t\.swf: Permission denied"):
        open_trace(path)


def test_gzip_damaged_later_stops_at_its_line(tmp_path):
    content = bytearray(
        gzip.compress("".join(f"{line(str(i), submit=str(i * 37))}\n" for i in range(1, 9000)).encode())
    )
    content[-3000:-2900] = b"\x55" * 100
    path = tmp_path / "t.swf.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidTrace, match=r"t\.swf\.gz:\d{4}: .*(file: t\.swf\.gz: must be complete|: must be)"):
        list(open_trace(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ignores_byte_order_marks_and_line_endings(tmp_path, encoding, end):
    path = tmp_path / "t.swf"
    path.write_bytes(JOBS.replace("\n", end).encode(encoding))
    assert [job.job.id for job in load(path).jobs] == [1, 2]


def test_recognises_trace_with_damaged_first_line(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text("garbage\n" + JOBS)
    with pytest.raises(InvalidTrace, match=r"t\.swf:1: fields: 1: must be 18"):
        load(path, "eurora")
    assert len(load(path, "eurora", lenient=True).jobs) == 2


@pytest.mark.parametrize("named", ["/etc/passwd", "../x.yaml", "x.yaml", "a\x1b[31mb"])
def test_trace_names_system_without_opening_file(tmp_path, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text("name: x\nresources: [cores]\nunits: { rule: pool }\n")
    path = tmp_path / "t.csv"
    columns = "job,submit_s,run_s,walltime_s,units,distinct,exclusive,partition,user,name,queue,account,cores"
    path.write_text(f"# cpsched-trace 1\n# system: {named}\n{columns}\n1,0,9,9,1,0,0,,,,,,1\n")
    with pytest.raises(InputError, match=r"the trace is for the system '.*'; set a known system") as caught:
        load(path)
    assert str(caught.value).isprintable()
    assert load(path, "eurora").system == "eurora"


def _native(folder):
    path = folder / "native"
    write(path, [*open_trace(trace(XDMOD))][:3], ("cores", "memory_mib", "gpus"), {"system": "eurora"})
    return path.read_bytes()


FIRST_LINES = {
    "native": _native,
    "pbs": lambda folder: f"{pbs_line(id='7.vm')}\n{pbs_line(id='8.vm')}\n".encode(),
    "sacct": lambda folder: "\n".join([NAMED, row("1"), row("2"), ""]).encode(),
    "sacct with commas": lambda folder: "\n".join([NAMED, row("1"), row("2"), ""]).replace("|", ",").encode(),
    "swf": lambda folder: JOBS.encode(),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("damage", [b"damaged", b"a|b", b"\0" * 40, b"\0\x01 damaged", b"\xff" * 9])
@pytest.mark.parametrize("kind", FIRST_LINES)
def test_damaged_first_line_is_skipped_or_named(tmp_path, kind, damage, packed):
    """The first line alone does not decide what the file is."""
    content = FIRST_LINES[kind](tmp_path)
    for file, text in (("whole", content), ("damaged", damage + b"\n" + content)):
        (tmp_path / file).write_bytes(gzip.compress(text) if packed else text)
    whole, damaged = (open_trace(tmp_path / file, lenient=True) for file in ("whole", "damaged"))
    assert type(whole) is type(damaged)
    assert [job[:4] for job in damaged] == [job[:4] for job in whole]
    assert damaged.tally.broken == 1
    with pytest.raises(InvalidTrace, match=r"damaged:1: "):
        list(open_trace(tmp_path / "damaged"))


@pytest.mark.parametrize(
    "columns",
    [
        "JobIDRaw=id,Submit=s,Start=b,End=e,Timelimit=l,NNodes=n,NCPUS=c",
        "JobIDRaw,Submit,Start,End,Timelimit,NNodes,NCPUS",
    ],
)
def test_damaged_first_line_of_table_with_given_columns(tmp_path, columns):
    day = "2026-11-01T0"
    rows = [
        "damaged",
        "id,s,b,e,l,n,c",
        *(f"{at},{day}1:00:00,{day}2:00:00,{day}3:00:00,01:00:00,1,1" for at in (1, 2)),
    ]
    (tmp_path / "table").write_text("\n".join([*rows, ""]))
    reader = open_trace(tmp_path / "table", lenient=True, dialect=TraceDialect(columns=columns))
    assert [job.id for job in reader] == [1, 2]
    with pytest.raises(InvalidTrace, match=r"table:1: "):
        list(open_trace(tmp_path / "table", dialect=TraceDialect(columns=columns)))


@pytest.mark.parametrize("first_day", ["", "\n \n", "damaged\n"])
@pytest.mark.parametrize("name", ["20261122", "20261122.gz"])
def test_first_day_of_folder_does_not_decide_for_all(tmp_path, first_day, name):
    """PBS's server makes the file of a day when it starts."""
    (tmp_path / name).write_bytes(gzip.compress(first_day.encode()) if name.endswith("gz") else first_day.encode())
    (tmp_path / "20261121").touch()
    (tmp_path / "20261123").write_text(f"{pbs_line(id='7.vm')}\n")
    assert [job.id for job in open_trace(tmp_path, lenient=True)] == [7]
