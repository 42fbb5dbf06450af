"""Results are never overwritten, mixed, or stored without the settings that produced them."""

import csv
import hashlib
import json
import shutil
import signal
import time
from importlib.metadata import version

import pytest

from cpsched_sim.systems.system_file import load_system
from tests import warm
from tests.patience import ENOUGH_S
from tests.unit.sim.test_cli import FOUR_JOBS, invoke


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A finished comparison of `easy` alone. Tests that resume it take a copy."""
    folder = tmp_path_factory.mktemp("compared")
    trace = folder / "four.swf"
    trace.write_text(FOUR_JOBS)
    assert invoke("compare", trace, "--dispatcher", "easy", "--out", folder / "out").exit_code == 0
    return folder / "out"


def content(folder):
    """Every file below a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows_of(out):
    with (out / "compare.csv").open() as file:
        return [(row["dispatcher"], row["predictor"]) for row in csv.DictReader(file)]


COMMANDS = {
    "simulate": lambda four_jobs, out: (
        "simulate", four_jobs, "--dispatcher", "pcp20", "--effort", "50", "--max-jobs", "3", "--out", out,
    ),
    "compare": lambda four_jobs, out: ("compare", four_jobs, "--dispatcher", "fcfs", "--out", out),
    "accuracy": lambda four_jobs, out: ("accuracy", four_jobs, "--out", out),
    "system": lambda four_jobs, out: ("system", "from-slurm", _nodes(four_jobs), "--out", out / "made.yaml"),
    "workload": lambda four_jobs, out: ("workload", "eurora", "--days", "0.01", "--out", out / "w.csv.gz"),
}  # fmt: skip


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _nodes(four_jobs):
    path = four_jobs.with_name("nodes.txt")
    path.write_text("NodeName=n1 CPUTot=4 RealMemory=1000 Partitions=main State=IDLE\n")
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_overwrites_results(four_jobs, tmp_path, name):
    arguments = COMMANDS[name](four_jobs, tmp_path / "out")
    assert (first := invoke(*arguments)).exit_code == 0, first.output
    before = content(tmp_path / "out")
    assert before
    again = invoke(*arguments)
    assert (again.exit_code, again.stdout) == (2, "")
    assert again.stderr.startswith(f"error: {tmp_path / 'out'}")
    assert ("remove it, or choose another" in again.stderr) or ("or choose another --out" in again.stderr)
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("name", "manifest", "made_of"),
    [
        ("simulate", "summary.json",
         {"trace": "four.swf", "dispatcher": "pcp20", "settings": {"effort": "50"}, "max_jobs": 3,
          "limits": {"limit_s": 16.0, "effort": "50", "seed": 0},
          "trace_sha256": sha256(FOUR_JOBS), "system_sha256": sha256(load_system("pool").model_dump_json())}),
        ("compare", "fcfs-walltime/summary.json", {"trace": "four.swf", "dispatcher": "fcfs"}),
        ("accuracy", "accuracy.csv.json", {"trace": "four.swf", "predictors": ["walltime", "last-two", "profile"]}),
        ("accuracy", "ecdf.csv.json", {"trace": "four.swf", "max_jobs": None}),
    ],
)  # fmt: skip
def test_results_are_written_with_their_inputs(four_jobs, tmp_path, name, manifest, made_of):
    assert invoke(*COMMANDS[name](four_jobs, tmp_path / "out")).exit_code == 0
    written = json.loads((tmp_path / "out" / manifest).read_text())
    assert written["version"]
    assert written["date"].endswith("+00:00")
    assert made_of.items() <= written["setup"].items()


def test_comparison_is_not_replaced_by_another(four_jobs, tmp_path):
    out = tmp_path / "out"
    assert invoke("compare", four_jobs, "--dispatcher", "pcp20,easy,fcfs", "--effort", 50, "--out", out).exit_code == 0
    before = content(out)
    assert len(rows_of(out)) == 3
    other_seed = invoke("compare", four_jobs, "--dispatcher", "pcp20,easy", "--effort", 50, "--seed", 2, "--out", out)
    assert other_seed.exit_code == 2
    assert "already has 3 finished combinations" in other_seed.stderr
    assert "use --resume to add to them" in other_seed.stderr
    resumed = invoke(
        "compare", four_jobs, "--dispatcher", "pcp20,easy", "--effort", 50, "--seed", 2, "--out", out, "--resume"
    )
    assert resumed.exit_code == 2
    assert "pcp20-walltime: was computed with other inputs: " in resumed.stderr
    assert "seed was" in resumed.stderr
    assert content(out) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--set", "overrun=double"), "easy-walltime: was computed with other inputs: overrun was None, now double"),
        (("--max-jobs", 3), "max_jobs was None, now 3"),
        (("--lenient",), "lenient was False, now True"),
        (("--charge", "50"), "charge was none, now 50.0"),
        (("--metric", "tests.bad_plugins:NUMPY_METRIC"), "--metric numpy is new"),
    ],
)
@pytest.mark.parametrize("dispatcher", ["easy", "list-saf"])
def test_rejects_resume_with_other_settings(four_jobs, compared, tmp_path, dispatcher, arguments, told):
    """Also where none of the combinations is asked for again: all of a table is made of the same."""
    out = tmp_path / "out"
    shutil.copytree(compared, out)
    before = content(out)
    resumed = invoke("compare", four_jobs, "--dispatcher", dispatcher, "--out", out, "--resume", *arguments)
    if dispatcher != "easy" and "overrun" in told:
        assert resumed.exit_code == 0, "settings are each combination's own"
        return
    assert (resumed.exit_code, resumed.stdout) == (2, "")
    assert told in resumed.stderr
    assert content(out) == before


@pytest.mark.parametrize(("dispatcher", "named"), [("easy", "code"), ("list-saf", "code"), ("easy", "plugins")])
def test_rejects_resume_with_other_code(four_jobs, compared, tmp_path, dispatcher, named):
    out = tmp_path / "out"
    shutil.copytree(compared, out)
    path = out / "easy-walltime" / "summary.json"
    written = json.loads(path.read_text())
    written["setup"][named] = "another"
    path.write_text(json.dumps(written))
    resumed = invoke("compare", four_jobs, "--dispatcher", dispatcher, "--out", out, "--resume")
    said = f"easy-walltime: was computed with other inputs: {named} was another"
    assert (resumed.exit_code, said in resumed.stderr) == (2, True)
    assert f"(version {written['version']}, now {version('cpsched')})" in resumed.stderr


def test_other_version_of_same_code_resumes(four_jobs, compared, tmp_path):
    """A development version moves without a change of code, and an install may have another one than a wheel."""
    out = tmp_path / "out"
    shutil.copytree(compared, out)
    path = out / "easy-walltime" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "0.0.1.dev1"}))
    resumed = invoke("compare", four_jobs, "--dispatcher", "easy", "--out", out, "--resume")
    assert (resumed.exit_code, "1 of 1 combination was already finished" in resumed.stderr) == (0, True)


def test_resume_adds_rows_and_redraws_pictures(four_jobs, tmp_path):
    out = tmp_path / "out"
    assert invoke("compare", four_jobs, "--dispatcher", "easy", "--out", out, "--plots").exit_code == 0
    before = content(out)
    added = invoke("compare", four_jobs, "--dispatcher", "fcfs", "--out", out, "--resume", "--json")
    assert added.stderr == "note: 0 of 1 combination was already finished; 1 other result is kept\n"
    assert [row["dispatcher"] for row in json.loads(added.stdout)["results"]] == ["fcfs", "easy"]
    assert rows_of(out) == [("fcfs", "walltime"), ("easy", "walltime")]
    after = content(out)
    changed = {str(path) for path in before if before[path] != after[path]}
    assert changed == {"compare.csv", "bars.png", "ecdf.png"}


def test_finished_rows_survive_kill(tmp_path):
    path, out = tmp_path / "long.swf", tmp_path / "out"
    lines = [f"{i} {i} -1 60 1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n" for i in range(1, 20_000)]
    path.write_text("; MaxProcs: 4\n" + "".join(lines))
    chosen = ["--dispatcher", "fcfs,tests.bad_plugins:HangingDispatcher", "--max-jobs", "100"]
    process = warm.Begun(warm.server(), ["compare", str(path), "--processes", "1", "--out", str(out), *chosen])
    deadline = time.monotonic() + ENOUGH_S
    while not (out / "fcfs-walltime" / "summary.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.done(ENOUGH_S).returncode == -signal.SIGKILL
    resumed = invoke("compare", path, "--dispatcher", "fcfs", "--max-jobs", "100", "--out", out, "--resume", "--json")
    assert resumed.stderr == "note: 1 of 1 combination was already finished\n"
    assert json.loads(resumed.stdout)["results"][0]["summary"]["jobs"] == 100


def test_plugin_folders_have_no_colon(four_jobs, tmp_path):
    """A colon ends the host's name for rsync and scp, and is no part of a name on some disks."""
    out, plugin = tmp_path / "out", "cpsched.dispatchers.easy:EasyDispatcher"
    words = ("compare", four_jobs, "-d", plugin, "--out", out)
    assert invoke(*words).exit_code == 0
    (made,) = (path for path in out.iterdir() if path.is_dir())
    assert made.name == "cpsched.dispatchers.easy.EasyDispatcher-walltime"
    assert not [path for path in out.rglob("*") if ":" in path.name]
    assert "1 of 1 combination was already finished" in invoke(*words, "--resume").stderr
