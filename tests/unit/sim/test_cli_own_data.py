"""The user's own data on the command line: system files, columns and time zones."""

import json
import os
from datetime import datetime

import pytest
from typer.testing import CliRunner

from cpsched.policy_spec import PolicySpec
from cpsched_sim.cli import app
from cpsched_sim.errors import InputError
from cpsched_sim.program_runner import run_slurm_command
from cpsched_sim.simulation import ReplaySpec, replay_inputs
from cpsched_sim.traces.trace_record import TraceDialect
from cpsched_sim.workloads.workload_loader import load
from tests.unit.sim.systems.test_slurm_node_parsing import DATA

HEADER = "number;owner;Submit;Start;End;Timelimit;NNodes;NCPUS;AllocTRES"
LINE = "{id};ada;2026-07-01T0{hour}:00:00;2026-07-01T0{hour}:10:00;2026-07-01T0{hour}:20:00;01:00:00;1;8;cpu=8,mem=4G"
AT = "2026-07-01T00:00:00"
COLUMNS = "JobIDRaw=number,User=owner"


def invoke(*arguments, text=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([HEADER, *(LINE.format(id=i, hour=i) for i in range(1, 4)), ""]))
    return path


@pytest.fixture
def system(jobs, tmp_path):
    path = tmp_path / "site.yaml"
    done = invoke("system", "from-slurm", jobs, "--columns", COLUMNS, "--out", path)
    assert (done.exit_code, done.stdout) == (0, f"{path}: 1 node of 1 node type, 0 partitions\n")
    return path


def test_system_from_peaks_and_given_columns_make_replay(jobs, system):
    done = invoke("simulate", jobs, "--system", system, "--columns", COLUMNS, "--json")
    assert json.loads(done.stdout)["jobs"] == 3
    assert "the mean wait is 0 s in the replay, and was 600 s as recorded" in done.stderr


def test_accuracy_accepts_same_options(jobs, system):
    assert invoke("accuracy", jobs, "--system", system, "--columns", COLUMNS, "--json").exit_code == 0
    assert invoke("accuracy", jobs, "--system", system).exit_code == 2


def test_file_options_reach_compare_processes(jobs, system, tmp_path):
    words = ["--system", system, "--columns", COLUMNS, "--dispatcher", "easy", "--out", tmp_path / "out", "--json"]
    done = invoke("compare", jobs, *words, "--zone", "Europe/Berlin")
    assert done.exit_code == 0, done.stderr
    assert [row["dispatcher"] for row in json.loads(done.stdout)["results"]] == ["easy", "as recorded"]
    again = invoke("compare", jobs, *words, "--zone", "Europe/Berlin", "--resume")
    assert "note: 1 of 1 combination was already finished" in again.stderr


def test_results_of_another_time_zone_are_not_finished(jobs, system, tmp_path):

    one, other = (
        replay_inputs(ReplaySpec(PolicySpec("easy")), load(jobs, str(system), dialect=TraceDialect(COLUMNS, zone)))
        for zone in ("", "Europe/Berlin")
    )
    assert one != other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--columns", "User=boss"], "error: --columns=boss: is not in the header line: number, owner, Submit"),
        (["--columns", COLUMNS, "--zone", "Berlin"], "error: --zone=Berlin: must be a zone such as Europe/Berlin"),
        (["--columns", "User=owner"], "jobs.csv:1: columns: JobIDRaw: is missing; add it to sacct's --format, or set"),
    ],
)
def test_error_is_one_line_with_fix(jobs, arguments, message):
    done = invoke("simulate", jobs, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_forecasts_of_array_tasks_beside_squeue(tmp_path):
    """Four tasks run one after another on the only node. squeue expected each of the last two 10 min too late."""
    trace, estimates, system = tmp_path / "jobs.txt", tmp_path / "estimates.csv", tmp_path / "site.yaml"
    rows = [f"7_{i}|{70 + i}|ada|{AT}|2026-07-01T0{i}:00:00|2026-07-01T0{i}:59:00|01:00:00|1|8" for i in range(1, 5)]
    trace.write_text("\n".join(["JobID|JobIDRaw|User|Submit|Start|End|Timelimit|NNodes|NCPUS", *rows, ""]))
    first_s = int(datetime.fromisoformat(f"{AT}Z").timestamp())
    lines = [f"{first_s + 30},7_{i},{first_s + 3600 * i + 600}" for i in range(1, 5)]
    estimates.write_text("\n".join(["at_unix_s,job,start_unix_s", *lines, ""]))
    assert invoke("system", "from-slurm", trace, "--out", system).exit_code == 0
    asked = ("accuracy", "start-times", trace, "--system", system)
    without, found = (
        json.loads(invoke(*asked, *more, "--json").stdout) for more in ((), ("--slurm-estimates", estimates))
    )
    compared = found.pop("slurm_estimates")
    assert found == without
    assert (compared["cases"], compared["slurm"]["absolute_error_s"], set(compared["forecast"])) == (
        2, 600, {"pinball_s", "absolute_error_s", "within_1_min", "within_10_min"},
    )  # fmt: skip
    shown = invoke(*asked, "--slurm-estimates", estimates).stdout
    assert "squeue --start" in shown
    assert "Difference in pinball loss: " in shown


def test_reads_system_from_standard_input(tmp_path):
    text = (DATA / "scontrol.txt").read_text()
    done = invoke("system", "from-slurm", "-", "--name", "lab", text=text)
    assert done.exit_code == 0
    assert 'name: "lab"\nsummary: "4 nodes, from standard input"\n' in done.stdout
    assert done.stdout.endswith("units: { rule: cores }\n")


@pytest.mark.parametrize(
    ("script", "code", "stdout", "stderr"),
    [
        (f'[ "$*" = "-o show node" ] && cat {DATA / "scontrol-o.txt"}', 0, "4 nodes, from scontrol -o show node", ""),
        (r"printf 'slurm_load_node error:\033[31m\nno' >&2; exit 3", 2, "",
         "error: scontrol -o show node: exit code 3: slurm_load_node error:\\x1b[31m\\nno\n"),
        (None, 2, "", "scontrol is not installed on this machine: run `scontrol -o show node > nodes.txt` on"),
    ],
)  # fmt: skip
def test_runs_slurm_command_without_file(tmp_path, monkeypatch, script, code, stdout, stderr):
    path = str(tmp_path)
    if script is not None:
        (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "scontrol").chmod(0o755)
        path = f"{path}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    done = invoke("system", "from-slurm")
    assert (done.exit_code, bool(done.stdout)) == (code, bool(stdout))
    assert stdout in done.stdout
    assert stderr in done.stderr


def test_rejects_folder_as_command(tmp_path, monkeypatch):

    with pytest.raises(InputError, match="Permission denied"):
        run_slurm_command(str(tmp_path))


def test_rejects_unknown_file_type(tmp_path):
    (tmp_path / "x.txt").write_text("hello\n")
    done = invoke("system", "from-slurm", tmp_path / "x.txt")
    assert done.exit_code == 2
    assert "seems to be text, not a trace" in done.stderr
