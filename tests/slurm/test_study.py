"""Test a study whose workers are jobs on the test cluster (dask-jobqueue). One worker is cancelled during the study."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from cpsched_sim.study.study_runner import run_study
from cpsched_sim.study.study_schema import EXAMPLE_STUDY
from tests.slurm.harness import REPOSITORY, CommandFailed, Slurm

PAGE = REPOSITORY / "docs" / "experiments.md"
LOGIN = "n1"
"""Node on which the command runs; like a login node, it has cpsched and Slurm's commands."""
FOLDER = "/home/alice/study"
STUDY_S = 600
STUDY = yaml.safe_load(EXAMPLE_STUDY) | {
    "grids": [{"traces": ["eurora"], "dispatchers": ["easy", "list-sjf"], "seeds": list(range(6))}],
    "cases": [], "exclude": [],
}  # fmt: skip
"""The example's workload with two dispatchers that need few kernels, so that nodes need not compile all kernels."""


class Login:
    """User alice on the login node, in a folder that all nodes share."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm

    def run(self, command: str, *, stdin: str | None = None, check: bool = True, timeout_s: float = 120) -> str:
        """Run a shell command, and return its output."""
        words = ("bash", "-c", command)
        return self.slurm.run(*words, service=LOGIN, user="alice", stdin=stdin, check=check, timeout_s=timeout_s)

    @contextmanager
    def at_work(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a shell command in the background, and print its log at the end."""
        shell = ("bash", "-c", f"cd {FOLDER} && {command} >log 2>&1")
        container = self.slurm.container(LOGIN)
        with subprocess.Popen(["docker", "exec", "--user", "alice", container, *shell]) as process:
            try:
                yield process
            finally:
                process.kill()
                print(self.run(f"cat {FOLDER}/log", check=False))

    def cases(self) -> int:
        """Return the number of results."""
        return int(self.run(f"ls {FOLDER}/out/cases 2>/dev/null | grep -c json$ || true"))

    def results(self) -> dict[str, str]:
        """Return what each case decided, by file name."""
        copied = ["docker", "cp", f"{self.slurm.container(LOGIN)}:{FOLDER}/out/cases", "-"]
        found = subprocess.run(copied, capture_output=True, check=True, timeout=60).stdout
        with tarfile.open(fileobj=io.BytesIO(found)) as files:
            read = {each.name.rpartition("/")[2]: files.extractfile(each) for each in files if each.isfile()}
            return {name: decided(file.read()) for name, file in read.items() if file is not None}


@pytest.fixture
def login(slurm: Slurm) -> Login:
    found = Login(slurm)
    try:
        found.run("/opt/cpsched/bin/python -c 'import dask_jobqueue'")
    except CommandFailed:
        pytest.skip("no node has dask-jobqueue: deploy/cluster jobqueue")
    found.run(f"rm -rf {FOLDER} && mkdir {FOLDER}")
    return found


def workers_of_the_page() -> str:
    """Return the worker file that the documentation shows to users of Slurm."""
    (block,) = re.findall(r"```python\n(# workers\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    return str(block)


def test_cancelled_worker_loses_no_case_and_changes_no_result(login: Login, tmp_path) -> None:
    """The command and the worker file are from the documentation. The nodes' Python differs from this host's."""
    slurm = login.slurm
    login.run(f"cat >{FOLDER}/workers.py", stdin=workers_of_the_page())
    login.run(f"cat >{FOLDER}/study.yaml", stdin=yaml.safe_dump(STUDY))
    command = "cpsched study run study.yaml --out out --on workers.py:make"
    with login.at_work(command) as study:
        slurm.wait_until(lambda: len(running(slurm)) == 2, 120, "both workers run", every_s=0.5)
        slurm.wait_until(lambda: login.cases() >= 2, 300, "two cases are decided", every_s=0.2)
        cancelled, other = running(slurm)
        slurm.run("scancel", cancelled)
        at = login.cases()
        assert study.wait(STUDY_S) == 0
    slurm.wait_until(lambda: not running(slurm), 30, "the command has cancelled its other worker")
    slurm.wait_until(lambda: all(ends_s(slurm, [cancelled, other])), 60, "accounting knows that both have ended")
    first_s, last_s = ends_s(slurm, [cancelled, other])
    assert first_s < last_s
    found = login.results()
    print(f"{cancelled} cancelled after {at} of {len(found)} results; jobs by their ends: {slurm.sacct()}")
    assert at < len(found)
    here = run_study(STUDY, tmp_path / "out")
    assert [row["outcome"] for row in here.rows()] == ["ended"] * len(here.campaign.cases)
    expected = {path.name: decided(path.read_bytes()) for path in (tmp_path / "out" / "cases").glob("*.json")}
    assert found.keys() == expected.keys(), "the nodes have other code: deploy/cluster jobqueue"
    assert found == expected


def decided(case: bytes) -> str:
    """Return a case's file without where, when and by what it was made."""
    return json.dumps({name: part for name, part in json.loads(case).items() if name != "made"})


def ends_s(slurm: Slurm, jobs: list[str]) -> list[int]:
    """Return the end time of each job, or 0 if accounting does not have it yet."""
    records = slurm.sacct(jobs)
    return [(records[job].end_s or 0) if job in records else 0 for job in jobs]


def running(slurm: Slurm) -> list[str]:
    """Return the ids of the running workers in ascending order."""
    jobs = slurm.squeue(states="RUNNING").values()
    return sorted((job.id for job in jobs if job.name == "dask-worker"), key=int)
