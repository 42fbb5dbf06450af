"""Test a short demo: it runs without a terminal, ends with a summary, and can be interrupted."""

import io
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from rich.console import Console

from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.program.demo import (
    START_COLUMNS,
    DemoLiveView,
    compute_mean_wait_s,
    compute_waits_s,
    find_program_command,
    summarize_result,
)
from cpsched_sim.traces.trace_jobs import TraceJob
from tests import warm
from tests.builders import a_cluster, a_cycle_report, a_job
from tests.patience import ENOUGH_S

DEMO = ["demo", "--dispatcher", "easy"]


def test_demo_ends_with_result_sentence():
    """The output is not a terminal, so the demo must not animate it, even with `FORCE_COLOR`."""
    words = [*DEMO, "--jobs", "250", "--seconds", "5"]
    done = warm.Begun(warm.server(), words, environment=os.environ | {"FORCE_COLOR": "1"}).done(ENOUGH_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b[?" not in done.stdout
    assert done.stdout.startswith("page: http://127.0.0.1:")
    assert re.search(r"mean wait so far [^;]+ \(Slurm's twin: [^;]+\); waiting \d+ ", done.stdout)
    assert re.search(r"Mean wait so far of \d+ jobs: [\d,]+ s under easy, [\d,]+ s under Slurm's twin: ", done.stdout)
    assert "cpsched compare day.csv.gz" in done.stdout


@pytest.mark.parametrize(
    ("ours", "twins", "words"),
    [
        ([60], [120], "50 % shorter"), ([120], [60], "100 % longer"), ([991], [1000], "no difference"),
        ([2, 3, 3], [3, 3, 4], "no difference"), ([0], [0], "no"), ([], [], "no"),
    ],
)  # fmt: skip
def test_difference_within_rounding_is_none(ours, twins, words):
    assert f": {words}" in summarize_result("easy", ours, twins)


def test_next_commands_use_program_name_as_called(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/cpsched", "demo"])
    assert find_program_command() == ".venv/bin/cpsched"
    (tmp_path / "cpsched").touch(mode=0o755)
    assert find_program_command() == "cpsched"


@pytest.mark.parametrize("columns", [80, 66])
def test_live_view_truncates_only_nodes(columns):
    """With the longest text in each column, only a node list that exceeds the line is truncated."""
    site = MockCluster(a_cluster(1), [])
    view = DemoLiveView("lookahead", site, site, "http://127.0.0.1:65535/", a_cycle_report(12_345))
    nodes = ",".join(f"node{node:02}" for node in range(60))
    row = ("12 h 59 min", "1999999", "u0123456", "65536", nodes, "59 min 59 s")
    view.starts = [row] * 30
    out = Console(width=columns, file=io.StringIO())
    out.print(view.render((columns, 24)))
    lines = out.file.getvalue().splitlines()
    assert len(lines) == 24
    assert "http://127.0.0.1:65535/" in lines[0]
    assert all(name in lines[9] for name in START_COLUMNS)
    assert all(text in line for line in lines[10:] for text in (*row[:4], "node00,", row[5]))
    assert max(map(len, lines)) <= columns


def test_mean_wait_counts_pending_jobs_until_now():
    """Two jobs need the whole machine: the first starts at 0, and the second waits from 10."""
    jobs = [TraceJob(a_job(1, units=2, submit_s=0), 100), TraceJob(a_job(2, units=2, submit_s=10), 100)]
    site = MockCluster(a_cluster(1, cores=2), jobs, plugin=False)
    site.advance(50)
    assert compute_mean_wait_s(compute_waits_s(site)) == 20
    site.advance(200)
    assert compute_mean_wait_s(compute_waits_s(site)) == 45


def test_ctrl_c_exits_cleanly_and_metrics_are_served():
    command = [sys.executable, "-IS", warm.__file__, warm.server(), *DEMO]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        url = re.search(r"http://\S+/metrics", "".join(lines))[0]
        until = time.monotonic() + ENOUGH_S
        while "cpsched_started_jobs_total 0.0" in (page := urllib.request.urlopen(url).read().decode()):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert 'cpsched_mode{mode="control"} 1.0' in page
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=ENOUGH_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped; the held jobs were released" in out
    assert "Traceback" not in err
