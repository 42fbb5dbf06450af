"""The page on data formats agrees with the program's behaviour on the test files."""

import re

import pytest
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.traces.accounting_columns import COLUMNS_READ, REQUIRED_COLUMNS, AccountingColumns
from cpsched_sim.traces.trace_record import TraceDialect
from cpsched_sim.workloads.workload_loader import open_trace, read_jobs
from tests.docs.test_code_blocks import FILES, ROOT

PAGE = (ROOT / "docs" / "data-formats.md").read_text()
OWN = FILES / "data-formats"


@pytest.fixture
def lab(tmp_path):
    path = tmp_path / "lab.yaml"
    done = CliRunner().invoke(
        app, ["system", "from-slurm", str(OWN / "nodes.txt"), "--name", "lab", "--out", str(path)]
    )
    assert done.exit_code == 0
    return path


def shown(begin):
    """The block of output on the page that begins with `begin`, in one line."""
    (block,) = [text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if text.startswith(begin)]
    return " ".join(block.split())


def test_documented_command_requests_all_columns():
    (columns,) = re.findall(r"--format (\S+)", PAGE)
    asked = AccountingColumns.of(columns.replace(",", "|"))
    assert asked.missing_required_columns() == []
    assert [name for name in COLUMNS_READ if asked.index_of(name) is None and name not in ("ReqNodes", "ReqCPUS")] == [
        "ElapsedRaw", "AllocNodes", "AllocCPUS", "TimelimitRaw", "Cluster", "Wait",
    ]  # fmt: skip
    assert (OWN / "jobs.txt").read_text().splitlines()[0] == columns.replace(",", "|")


def test_documented_columns_and_requirements_are_correct():
    (table,) = re.findall(r"^\| column \| required .*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    named = {name for columns, _ in rows for name in re.findall(r"`(\w+)`", columns)}
    assert named <= set(COLUMNS_READ)
    needed = {name for columns, need in rows if need == "yes" for name in re.findall(r"^`(\w+)`|, `(\w+)`", columns)}
    assert {*REQUIRED_COLUMNS} - {"Submit"} <= {name for pair in needed for name in pair}


def test_documented_system_file_is_generated_one(lab):
    written = [line for line in lab.read_text().splitlines() if not line.startswith("#")]
    assert " ".join(" ".join(written).split()) == shown("name:")


def test_documented_warning_is_that_of_replay(lab, tmp_path):
    large = tmp_path / "large.yaml"
    large.write_text(lab.read_text().replace("count: 3", "count: 30").replace("count: 1", "count: 10"))
    said = CliRunner().invoke(app, ["simulate", str(OWN / "jobs.txt"), "--system", str(large)]).stderr
    assert shown("warning:") in said.splitlines()


def test_clock_change_night_reads_alike_from_both_files():
    """One has times of UTC, the other local times: runs are the same, and starts where nothing is left open."""
    columns = "JobIDRaw=job no,Submit=queued,Start=began,End=ended,Elapsed=took,Timelimit=limit,NNodes=hosts,NCPUS=cpus"
    plain, local = (
        {item.job.id: item for item in read_jobs(open_trace(OWN / name, dialect=dialect))}
        for name, dialect in (
            ("jobs.txt", TraceDialect(arrival="submit")),
            ("export.csv", TraceDialect(columns, "Europe/Berlin")),
        )
    )
    assert {id: plain[id].run_s for id in local} == {id: item.run_s for id, item in local.items()}
    off = {id: plain[id].recorded_start_s - item.recorded_start_s for id, item in local.items()}
    assert set(off.values()) <= {0, 3600}
    assert sum(value == 3600 for value in off.values()) <= 6, "those that were taken for the first of two hours"
