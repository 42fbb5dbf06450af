"""Whoever adds a dispatcher, order, predictor, metric or trace format adds one file or one row, and nothing else."""

import json
import subprocess
import sys
from textwrap import dedent

import pytest
from typer.testing import CliRunner

import cpsched.dispatchers
import cpsched.predictors
import cpsched_sim.traces
from cpsched_sim.cli import app
from tests.unit.sim.traces.test_swf import line

SECOND = {"submit": "1", "run": "50", "processors": "2", "requested": "60"}
"""The second of the four jobs."""


@pytest.fixture
def file_in(tmp_path, monkeypatch):
    """Adds a file to a package, in a folder beside it, and forgets it afterwards."""

    def add(package, name, text):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(dedent(text))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.setitem(sys.modules, f"{package.__name__}.{name}", None)
        del sys.modules[f"{package.__name__}.{name}"]

    return add


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def test_a_dispatcher_is_one_file(file_in, four_jobs):
    file_in(
        cpsched.dispatchers,
        "newest",
        """
        from cpsched.dispatchers.base import Dispatcher
        from cpsched.listing import Listing
        from cpsched.planning import GREEDY, plan


        class Newest(Dispatcher):
            def __init__(self, reservations: int = GREEDY) -> None:
                self.reservations = reservations

            def decide(self, snapshot, need="plan"):
                return plan(snapshot, order=lambda job: -job.submit_s, reservations=self.reservations, need=need)


        LISTED = (Listing("newest", "Last come, first served.", "folklore", Newest),)
        """,
    )
    listed = {row["name"]: row for row in run("dispatchers", "--json")["dispatchers"]}
    assert listed["newest"] == {
        "name": "newest", "summary": "Last come, first served.", "source": "folklore",
        "parameters": {"reservations": 0},
    }  # fmt: skip
    assert run("simulate", four_jobs, "--dispatcher", "newest", "--set", "reservations=1", "--json")["jobs"] == 4


def test_a_predictor_is_one_file(file_in, four_jobs):
    file_in(
        cpsched.predictors,
        "tenth",
        """
        from cpsched.listing import Listing
        from cpsched.predictors.base import Predictor


        class Tenth(Predictor):
            def predict(self, job):
                return max(1, job.walltime_s // 10)


        LISTED = (Listing("tenth", "A tenth of the walltime.", "folklore", Tenth),)
        """,
    )
    assert "tenth" in {row["name"] for row in run("predictors", "--json")["predictors"]}
    assert run("simulate", four_jobs, "--predictor", "tenth", "--json")["jobs"] == 4
    assert run("accuracy", four_jobs, "--predictors", "tenth", "--json")["tenth"]["under"] > 0


def test_a_trace_format_is_one_file(file_in, tmp_path):
    file_in(
        cpsched_sim.traces,
        "brief",
        """
        from cpsched.listing import Listing
        from cpsched_sim.reading.lines import lines_of
        from cpsched_sim.traces.record import Processors, Reader, Record


        class BriefReader(Reader):
            \"\"\"`job submit run processors` a line, under a line `brief N` with the size of the machine.\"\"\"

            @classmethod
            def recognises(cls, first):
                return first.startswith("brief ")

            def __init__(self, path, lenient=False):
                super().__init__(path, lenient)
                self._rest = lines_of(path)
                self.header["MaxProcs"] = next(self._rest)[1].split()[1]

            def _lines(self):
                return self._rest

            def _record(self, text):
                job, submit_s, run_s, processors = map(int, text.split())
                return Record(job, submit_s, run_s, run_s, Processors(processors))


        LISTED = (Listing("brief", "Four numbers a line.", "folklore", BriefReader),)
        """,
    )
    (tmp_path / "t.brief").write_text("brief 4\n1 0 100 3\n2 1 50 2\n")
    assert run("simulate", tmp_path / "t.brief", "--json")["mean_wait_s"] == 99 / 2
    assert run("simulate", tmp_path / "t.brief", "--format", "brief", "--json")["jobs"] == 2


WITH_A_ROW = """
import importlib, importlib.util, sys

def add_a_row(name, before, row):
    spec = importlib.util.find_spec(name)
    source = open(spec.origin).read()
    assert before in source
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(before, row + before, 1), spec.origin, "exec"), module.__dict__)
    package, _, last = name.rpartition(".")
    setattr(importlib.import_module(package), last, module)
"""
"""Runs a module of the project as if its file had one row more, in a process of its own."""


def python(code, *arguments):
    command = [sys.executable, "-c", WITH_A_ROW + dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_order_is_one_row(four_jobs, tmp_path):
    """It is a value of `plan(order=...)` and of `--set order=...`, and a dispatcher of its own."""
    trace = tmp_path / "wide.swf"
    trace.write_text(four_jobs.read_text().replace(line("2", **SECOND), line("2", **SECOND | {"processors": "4"})))
    shown = python(
        """
        row = 'Order("thin", "r", "", "Fewest processors first", "folklore", by=lambda E, r: r),\\n        '
        add_a_row("cpsched.planning", 'Order("spf"', row)
        import cpsched, cpsched_sim

        class Own(cpsched.Dispatcher):
            def decide(self, snapshot, need="plan"):
                return cpsched.plan(snapshot, order="thin", need=need)

        thin = {"order": "thin"}
        for found in (
            cpsched_sim.simulate(sys.argv[1], "list-thin"),
            cpsched_sim.simulate(sys.argv[1], "list-reg", settings=thin),
            cpsched_sim.simulate(sys.argv[1], Own),
            cpsched_sim.simulate(sys.argv[1], "list-reg"),
        ):
            print(found.schedule.start_s.tolist())
        """,
        trace,
    )
    # Job 2 needs the whole machine, and starts when job 1 ends, at 100. By arrival it reserves that second, and job 4,
    # which asks for 200 s, has to wait until it has ended; with the fewest processors first, job 4 is before it.
    assert shown.splitlines() == ["[0, 100, 2, 22]"] * 3 + ["[0, 100, 2, 150]"]


def test_a_metric_is_one_row(four_jobs, tmp_path):
    """Summary, table, list, CSV, comparison and picture have it."""
    shown = python(
        """
        row = 'Metric("worst_wait_s", "worst wait", "s", "", "", "lower", lambda m: float(m.wait_s.max())),\\n    '
        add_a_row("cpsched.metrics", 'Metric(\\n        "makespan_s"', row)
        import cpsched_sim
        from pathlib import Path
        from cpsched_sim.cli import app
        from cpsched_sim.comparison import baselines, table_rows
        from cpsched_sim.report.plots import write_comparison

        one = cpsched_sim.simulate(sys.argv[1])
        assert one.worst_wait_s == one.summary()["worst_wait_s"] == 99.0
        assert "worst wait" in str(one)
        both = cpsched_sim.compare(sys.argv[1], ["fcfs", "easy"])
        assert "worst wait" in str(both)
        heads = next(iter(table_rows(both.rows, baselines(both.rows, None))))
        assert {"worst_wait_s", "worst_wait_s_percent"} <= set(heads)
        write_comparison(both.rows, Path(sys.argv[2]))
        app(["metrics"])
        """,
        four_jobs,
        tmp_path,
    )
    assert "worst_wait_s" in shown
    assert (tmp_path / "bars.png").exists()
