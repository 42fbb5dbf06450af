"""Finished schedules: reading them as written, and drawing them between two times."""

import xml.etree.ElementTree as ElementTree

import pytest
from typer.testing import CliRunner

from cpsched.errors import InvalidValue
from cpsched_bridge.program import gantt_command
from cpsched_bridge.program.cli import app
from cpsched_bridge.program.gantt_command import HEADING
from cpsched_sim.errors import InputError, InvalidTrace

ROWS = ["1,0,0,100,2,n10:1 n2:1", "2,5,100,160,1,n2:1", "3,6,,,1,"]


@pytest.fixture
def written(tmp_path):
    def write(*rows):
        path = tmp_path / "schedule.csv"
        path.write_text("\n".join([",".join(HEADING), *rows]) + "\n")
        return path

    return write


def test_reads_schedule_with_nodes_in_order(written):
    path = written(*ROWS)
    assert gantt_command.is_schedule_file(path)
    found = gantt_command.read_schedule(path)
    assert list(found.node_names) == ["n2", "n10"]
    assert [(bar.id, bar.begin_s, bar.end_s, bar.nodes) for bar in found.bars] == [
        (1, 0, 100, [(1, 1), (0, 1)]), (2, 100, 160, [(0, 1)]),
    ]  # fmt: skip
    assert (found.from_s, found.end_s) == (0, 160)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("1,0,0", ":2: columns: 3: must be 6"),
        ("x,0,0,1,1,n1:1", ":2: job: x: must be a whole number"),
        ("1,0,0,1,1,n1", ":2: nodes: n1: must be NAME:UNITS"),
    ],
)
def test_names_damaged_line(written, row, rule):
    with pytest.raises(InvalidTrace, match=rule):
        gantt_command.read_schedule(written(row))


def test_rejects_schedule_without_jobs(written):
    with pytest.raises(InputError, match="contains no jobs"):
        gantt_command.read_schedule(written())


def test_draws_schedule_between_two_times(written, tmp_path):
    found = gantt_command.read_schedule(written(*ROWS))
    out = tmp_path / "g.svg"
    assert "1 job on 2 nodes" in gantt_command.write_gantt_chart(found, out, "110", "150s")
    titles = [e.text for e in ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}title")]
    assert [title for title in titles if title.startswith("job ")] == [
        "job 2 runs on 1 node: begin in 1 min 40 s, end in 2 min 40 s"
    ]
    gantt_command.write_gantt_chart(found, tmp_path / "g.html", None, None)
    assert (tmp_path / "g.html").read_text().startswith("<!doctype html>")


def test_does_not_overwrite_existing_file(written, tmp_path):
    out = tmp_path / "g.svg"
    out.write_text("mine")
    with pytest.raises(InputError, match=r"g.svg: already exists: remove it, or choose another"):
        gantt_command.write_gantt_chart(gantt_command.read_schedule(written(*ROWS)), out, None, None)
    trace = tmp_path / "none.swf"
    result = CliRunner().invoke(app, ["gantt", str(trace), "--out", str(out)])
    assert (result.exit_code, "already exists" in result.stderr) == (2, True), "before anything is read"
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("from_", "to", "out", "message"),
    [
        ("120", "1m", "g.svg", "--to=1m: must be after --from"),
        ("x", None, "g.svg", "--from=x: must be a number of seconds"),
        ("10d", None, "g.svg", "--from=10d: must be before the end, "),
        ("10d", "11d", "g.svg", "--from=10d: must be before the end, "),
        (None, None, "g.png", "must end in .svg or .html"),
    ],
)
def test_rejects_invalid_arguments(written, tmp_path, from_, to, out, message):
    with pytest.raises(InvalidValue, match=message):
        gantt_command.write_gantt_chart(gantt_command.read_schedule(written(*ROWS)), tmp_path / out, from_, to)


def test_replays_trace_with_users(tmp_path):
    from cpsched_sim.workloads.workload_loader import load

    trace = tmp_path / "t.swf"
    lines = [f"{n} {n} -1 60 4 -1 -1 4 100 -1 1 7 -1 -1 1 -1 -1 -1" for n in range(1, 6)]
    trace.write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    assert not gantt_command.is_schedule_file(trace)
    found = gantt_command.load_schedule(trace, None, "easy", "walltime", None)
    assert len(found.bars) == len(load(trace).jobs) == 5
    assert all(bar.nodes and bar.user for bar in found.bars)
    assert (found.from_s, found.end_s) == (1, max(bar.end_s for bar in found.bars))
