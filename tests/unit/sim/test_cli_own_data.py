"""Own data on the command line: system files, columns, zones."""

import json
import os

import pytest
from typer.testing import CliRunner

from cpsched.policy_spec import PolicySpec
from cpsched_sim.cli import app
from cpsched_sim.errors import InputError
from cpsched_sim.simulation import ReplayPolicySetup, replay_identity
from cpsched_sim.systems.slurm_queries import command_output
from cpsched_sim.traces.trace_dialect import TraceDialect
from cpsched_sim.workloads.load import load
from tests.unit.sim.systems.test_slurm_node_parsing import DATA

HEADER = "number;owner;Submit;Start;End;Timelimit;NNodes;NCPUS;AllocTRES"
LINE = "{id};ada;2026-07-01T0{hour}:00:00;2026-07-01T0{hour}:10:00;2026-07-01T0{hour}:20:00;01:00:00;1;8;cpu=8,mem=4G"
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
    assert (done.exit_code, done.stdout) == (0, f"{path}: 1 node of 1 kind, 0 partitions\n")
    return path


def test_a_system_from_peaks_and_told_columns_make_a_replay(jobs, system):
    done = invoke("simulate", jobs, "--system", system, "--columns", COLUMNS, "--json")
    assert json.loads(done.stdout)["jobs"] == 3
    assert "the mean wait is 0 s in the replay, and was 600 s as recorded" in done.stderr


@pytest.mark.parametrize("command", ["accuracy", "promises"])
def test_studies_take_the_same_words(jobs, system, command):
    assert invoke(command, jobs, "--system", system, "--columns", COLUMNS, "--json").exit_code == 0
    assert invoke(command, jobs, "--system", system).exit_code == 2


def test_what_is_said_of_a_file_travels_to_the_processes_of_compare(jobs, system, tmp_path):
    words = ["--system", system, "--columns", COLUMNS, "--dispatcher", "easy", "--out", tmp_path / "out", "--json"]
    done = invoke("compare", jobs, *words, "--zone", "Europe/Berlin")
    assert done.exit_code == 0, done.stderr
    assert [row["dispatcher"] for row in json.loads(done.stdout)["results"]] == ["easy", "as recorded"]
    again = invoke("compare", jobs, *words, "--zone", "Europe/Berlin", "--resume")
    assert "note: 1 of 1 combination was finished before" in again.stderr


def test_results_of_another_zone_are_not_taken_for_finished(jobs, system, tmp_path):

    one, other = (
        replay_identity(
            ReplayPolicySetup(PolicySpec("easy")), load(jobs, str(system), dialect=TraceDialect(COLUMNS, zone))
        )
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
def test_what_is_wrong_is_said_in_one_line_with_what_to_do(jobs, arguments, message):
    done = invoke("simulate", jobs, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_system_may_come_by_standard_input(tmp_path):
    text = (DATA / "scontrol.txt").read_text()
    done = invoke("system", "from-slurm", "-", "--name", "lab", text=text)
    assert done.exit_code == 0
    assert 'name: "lab"\nsummary: "4 nodes, from standard input"\n' in done.stdout
    assert done.stdout.endswith("units: { rule: cores }\n")


def test_without_a_file_slurm_is_asked(tmp_path, monkeypatch):
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\n[ "$*" = "-o show node" ] && cat {DATA / "scontrol-o.txt"}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "4 nodes, from scontrol -o show node" in invoke("system", "from-slurm").stdout


def test_where_slurm_is_not_the_command_to_run_elsewhere_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = invoke("system", "from-slurm")
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        "scontrol is not installed on this machine: run `scontrol -o show node > nodes.txt` on a host with Slurm"
        in done.stderr
    )


def test_an_answer_of_slurm_that_fails_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'slurm_load_node error:\\033[31m\\nno' >&2\nexit 3\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    done = invoke("system", "from-slurm")
    assert (done.exit_code, done.stderr) == (
        2, "error: scontrol -o show node: exit code 3: slurm_load_node error:\\x1b[31m\\nno\n",
    )  # fmt: skip


def test_a_command_that_is_a_folder_is_told(tmp_path, monkeypatch):

    with pytest.raises(InputError, match="Permission denied"):
        command_output(str(tmp_path))


def test_a_file_of_nothing_known_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("hello\n")
    done = invoke("system", "from-slurm", tmp_path / "x.txt")
    assert done.exit_code == 2
    assert "seems to be text, not a trace" in done.stderr
