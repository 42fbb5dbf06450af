"""Finished schedules: read back as they were written, and shown as of any instant."""

import xml.etree.ElementTree as ElementTree

import pytest
from typer.testing import CliRunner

from cpsched.errors import InvalidValue
from cpsched_bridge.program import gantt, schedules
from cpsched_bridge.program.cli import app
from cpsched_bridge.program.schedules import HEADING, ScheduledJob
from cpsched_bridge.watch.endpoint import Endpoint
from cpsched_bridge.watch.web.page import page_routes
from cpsched_bridge.watch.web.server import served
from cpsched_sim.errors import InvalidTrace, Unusable

ROWS = ["1,0,0,100,2,n10:1 n2:1", "2,5,100,160,1,n2:1", "3,6,,,1,"]


@pytest.fixture
def written(tmp_path):
    def write(*rows):
        path = tmp_path / "schedule.csv"
        path.write_text("\n".join([",".join(HEADING), *rows]) + "\n")
        return path

    return write


def test_a_schedule_is_read_with_its_nodes_in_the_order_of_their_numbers(written):
    path = written(*ROWS)
    assert schedules.is_schedule(path)
    found = schedules.read(path)
    assert list(found.node_names) == ["n2", "n10"]
    assert found.lines[0] == ScheduledJob(1, 0, 0, 100, 2, ((1, 1), (0, 1)))
    assert found.lines[-1].start_s is None


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("1,0,0", ":2: columns: 3: must be 6"),
        ("x,0,0,1,1,n1:1", ":2: job: x: must be a whole number"),
        ("1,0,0,1,1,n1", ":2: nodes: n1: must be NAME:UNITS"),
    ],
)
def test_a_damaged_line_is_named(written, row, rule):
    with pytest.raises(InvalidTrace, match=rule):
        schedules.read(written(row))


def test_a_schedule_without_jobs_cannot_be_used(written):
    with pytest.raises(Unusable, match="holds no jobs"):
        schedules.read(written())


def test_an_instant_shows_what_waited_and_ran_then(written):
    found = schedules.read(written(*ROWS))
    view = found.at(50)
    assert [job.id for job in view.running] == [1]
    assert [(job.id, job.expected_s) for job in view.queue] == [(2, 100), (3, None)]
    assert {bar.id: bar.kind for bar in view.chart.bars} == {1: "running", 2: "planned"}
    later = found.at(120)
    assert {bar.id: bar.kind for bar in later.chart.bars} == {1: "past", 2: "running"}
    assert later.status.resources[0].in_use == 1
    assert found.at(-10).status.now_s == 0
    assert found.at(10_000).status.now_s == 160


def test_the_history_of_an_instant_is_the_hour_before(written):
    moments = schedules.read(written(*ROWS)).at(120).history
    assert moments[-1].in_use == [0.5]
    assert moments[-2].in_use == [1.0]


def test_a_schedule_is_drawn_between_two_times(written, tmp_path):
    found = schedules.read(written(*ROWS))
    out = tmp_path / "g.svg"
    assert "1 jobs on 2 nodes" in gantt.write(found, out, "110", "150s")
    titles = [e.text for e in ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}title")]
    assert [title for title in titles if title.startswith("job ")] == [
        "job 2 runs on 1 node: begin in 1 min 40 s, end in 2 min 40 s"
    ]
    gantt.write(found, tmp_path / "g.html", None, None)
    assert (tmp_path / "g.html").read_text().startswith("<!doctype html>")


def test_a_drawing_is_not_written_over_another_file(written, tmp_path):
    out = tmp_path / "g.svg"
    out.write_text("mine")
    with pytest.raises(Unusable, match=r"g.svg: is there already: remove it, or name another"):
        gantt.write(schedules.read(written(*ROWS)), out, None, None)
    trace = tmp_path / "none.swf"
    result = CliRunner().invoke(app, ["gantt", str(trace), "--out", str(out)])
    assert (result.exit_code, "is there already" in result.stderr) == (2, True), "before anything is read"
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("from_", "to", "out", "message"),
    [
        ("120", "1m", "g.svg", "--to=1m: must be after --from"),
        ("x", None, "g.svg", "--from=x: must be seconds"),
        ("10d", None, "g.svg", "--from=10d: must be before the end, "),
        ("10d", "11d", "g.svg", "--from=10d: must be before the end, "),
        (None, None, "g.png", "must end in .svg or .html"),
    ],
)
def test_what_makes_no_sense_is_refused(written, tmp_path, from_, to, out, message):
    with pytest.raises(InvalidValue, match=message):
        gantt.write(schedules.read(written(*ROWS)), tmp_path / out, from_, to)


def test_the_page_over_a_schedule_has_a_slider_and_no_live_updates(written):
    import urllib.request

    endpoint = Endpoint(served(page_routes(schedules.read(written(*ROWS)))), "127.0.0.1", 0)
    try:
        text = urllib.request.urlopen(endpoint.url + "?at=50").read().decode()
    finally:
        endpoint.close()
    assert 'type="range"' in text
    assert 'value="50"' in text
    assert 'data-every="0"' in text


def test_a_trace_is_replayed_and_shown_with_its_users(tmp_path):
    from cpsched_sim.workloads.load import load

    trace = tmp_path / "t.swf"
    lines = [f"{n} {n} -1 60 4 -1 -1 4 100 -1 1 7 -1 -1 1 -1 -1 -1" for n in range(1, 6)]
    trace.write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    assert not schedules.is_schedule(trace)
    found = gantt.opened(trace, None, "easy", "walltime", None)
    assert len(found.lines) == len(load(trace).jobs) == 5
    assert all(line.nodes for line in found.lines)
    assert found.at(3).running
