"""Studies of the GPUs that rules of node choice leave stranded."""

import json

import pytest
import yaml

from cpsched.model import NEVER, Cluster, Request
from cpsched.model.typical_requests import find_typical_requests
from cpsched_sim.simulation_metrics import PlacedRun, mean_stranded_gpus
from cpsched_sim.study.stranding_study import read_gpu_jobs
from tests.unit.sim.study.test_command import invoke


@pytest.fixture
def study(tmp_path):
    """Six weeks of jobs. In each, a job of two GPUs and later a job of one run when jobs of 8 and 12 GPUs arrive."""
    rows = ["timestamp,duration,num_gpus"]
    for day in range(1, 43, 7):
        for hour, gpus, hours in ((0, 8, 1), (1, 8, 30), (2, 2, 60), (32, 1, 30), (40, 8, 1), (41, 12, 4), (47, 8, 1)):
            date = f"2026-{1 + (day + hour // 24) // 32:02d}-{(day + hour // 24 - 1) % 31 + 1:02d}"
            rows.append(f"{date} {hour % 24:02d}:00:00,{hours * 3600}.4,{gpus}")
    (tmp_path / "jobs.csv").write_text("\n".join([*rows, ""]))
    stranding = {
        "workloads": {"w": {"jobs": "jobs.csv", "days": 7, "windows": 4, "load": 0.5}},
        "rules": {"first-fit": {"dispatcher": "easy"}, "least": {"dispatcher": "easy", "least_stranded_gpus": True}},
        "subject": "least",
    }
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"title": "Two nodes", "stranding": stranding}))
    return path


def test_command_compares_rules_by_half_of_windows(study, tmp_path):
    """Under first-fit, the job of one GPU occupies the node that was empty, and large jobs wait for it."""
    out = tmp_path / "out"
    assert json.loads(invoke("run", study, "--out", out, "--dry-run", "--json").stdout) == {"cases": 8}
    shown = invoke("run", study, "--out", out)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == (out / "report.md").read_text()
    rows = json.loads((out / "results.json").read_text())
    assert [(row["workload"], row["half"], row["rule"], row["windows"]) for row in rows] == [
        ("w", "even", "first-fit", 2), ("w", "even", "least", 2),
        ("w", "odd", "first-fit", 2), ("w", "odd", "least", 2),
    ]  # fmt: skip
    first, least = rows[2:]
    assert least["stranded_gpu_h"] < first["stranded_gpu_h"]
    assert least["large_wait_h"] < first["large_wait_h"]
    difference = first["differences"]["stranded_percent"]
    assert difference["mean"] == pytest.approx(least["stranded_percent"] - first["stranded_percent"])
    assert difference["low"] == pytest.approx(difference["high"])  # equal weeks
    assert invoke("run", study, "--out", out).stdout == shown.stdout


def test_reads_jobs_as_equal_parts_of_nodes(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("timestamp,duration,num_gpus\n2026-01-01 00:00:10,0.4,12\n2026-01-01 00:00:00,9.6,3\n")
    first, second = read_gpu_jobs(path)
    assert (first.run_s, first.job.request) == (10, Request(1, (3,), distinct=True))
    assert (second.run_s, second.job.request) == (1, Request(2, (6,), distinct=True))
    assert second.job.submit_s - first.job.submit_s == 10


def test_subject_must_be_a_rule(study, tmp_path):
    study.write_text(study.read_text().replace("subject: least", "subject: most"))
    result = invoke("run", study, "--out", tmp_path / "out")
    assert result.exit_code != 0
    assert "stranding.subject: most: must be a rule" in result.output


def test_measures_use_between_two_times():
    """Of 8 idle GPUs, 6 remain from 10 s until 30 s, of which a job of 4 on one node cannot use 2."""
    cluster = Cluster.of([[4], [4]], ["gpus"])
    typical = find_typical_requests([Request(1, (4,))], cluster.resources)
    runs = [PlacedRun(Request(1, (2,)), 10, 30, ((1, 1),)), PlacedRun(Request(1, (4,)), 35, NEVER, ((0, 1),))]
    use = mean_stranded_gpus(runs, cluster, typical, 0, 40)
    assert use == (2 * 20 / 40, (8 * 10 + 6 * 20 + 8 * 5 + 4 * 5) / 40, 8)
    assert mean_stranded_gpus(runs, cluster, typical, 20, 30) == (2, 6, 8)
