"""A study on two Dask workers, one of which is killed: every case has the same result as without Dask."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

from cpsched_sim.experiments import dask_executor
from cpsched_sim.study.result_store import StudyResultStore
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.study.study_runner import run_missing_cases, run_study
from tests.patience import ENOUGH_S
from tests.unit.sim.study.studies import plugin, words, written
from tests.unit.sim.study.test_study_runner import Here, results_in


@pytest.fixture(autouse=True)
def distributed():
    """Dask, whose import takes a second of CPU time, which each process would pay to collect the tests."""
    return pytest.importorskip("distributed")


@pytest.fixture
def cluster(tmp_path):
    """The file of a scheduler, and two workers: processes of their own, without a nurse that starts them again."""
    file, processes = tmp_path / "scheduler.json", []

    def begin(*arguments):
        command = [
            sys.executable,
            "-m",
            "distributed.cli." + arguments[0],
            *arguments[1:],
            "--scheduler-file",
            str(file),
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(command, cwd=tmp_path, **quiet))
        return processes[-1]

    begin("dask_scheduler", "--port", "0", "--no-dashboard")
    workers = [begin("dask_worker", "--no-nanny", "--nthreads", "1", "--no-dashboard") for _ in range(2)]
    yield str(file), workers
    for process in processes[::-1]:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_killed_worker_loses_no_case_and_changes_no_byte(tmp_path, cluster):
    scheduler, workers = cluster
    written(tmp_path)
    grid = {"traces": ["four"], "dispatchers": ["easy", "list-sjf"], "loads": [1 + n / 10 for n in range(4)]}
    study = words(grids=[grid]) | {"traces": {"four": {"file": str(tmp_path / "four.swf")}}}
    cases, killed = tmp_path / "out" / "cases", []

    def kill_one():
        until_s = time.monotonic() + ENOUGH_S
        while len(list(cases.glob("*.json"))) < 2 and time.monotonic() < until_s:
            time.sleep(0.02)
        os.kill(workers[0].pid, signal.SIGKILL)
        killed.append(len(list(cases.glob("*.json"))))

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    found = run_study(study, tmp_path / "out", on=scheduler)
    killer.join()
    assert killed[0] < 8, "it was killed in mid-study"
    assert [row["outcome"] for row in found.rows()] == ["ended"] * 8
    run_missing_cases(build_study_cases(study), StudyResultStore(tmp_path / "here"), Here())
    assert results_in(tmp_path / "out") == results_in(tmp_path / "here")


@pytest.mark.slow
def test_crashing_or_slow_case_keeps_worker(tmp_path, cluster, monkeypatch):
    scheduler, workers = cluster
    written(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, body in {"dies": "import os; os.kill(os.getpid(), 9)", "sleeps": "import time; time.sleep(600)"}.items():
        plugin(tmp_path, body)
        (tmp_path / "mine.py").rename(tmp_path / f"{name}.py")
    grid = {"traces": ["four"], "dispatchers": ["dies:Own", "sleeps:Own", "easy"]}
    study = words(grids=[grid], limits={"minutes": 0.6}) | {"traces": {"four": {"file": str(tmp_path / "four.swf")}}}
    found = run_study(study, tmp_path / "out", on=scheduler)
    told = {row["dispatcher"]: row for row in found.rows()}
    assert told["dies:Own"]["why"] == "its process died with exit code -9"
    assert (told["sleeps:Own"]["why"], told["easy"]["outcome"]) == ("did not end in 0.6 min", "ended")
    assert [worker.poll() for worker in workers] == [None, None]


@pytest.mark.parametrize(
    ("returned", "after"),
    [("workers", "closed"), pytest.param("Client(workers)", "running", marks=pytest.mark.slow)],
)
def test_cluster_created_for_study_ends_with_it(tmp_path, returned, after):
    written(tmp_path)
    file = tmp_path / "workers.py"
    file.write_text(f"""
import threading
from distributed import Client, LocalCluster

def make():
    workers = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0")
    threading.current_thread().workers = workers
    return {returned}
""")
    study = words(grids=[{"traces": ["four"], "dispatchers": ["easy"]}])
    study |= {"traces": {"four": {"file": str(tmp_path / "four.swf")}}}
    found = run_study(study, tmp_path / "out", on=f"{file}:make")
    workers = vars(threading.current_thread()).pop("workers")
    assert [row["outcome"] for row in found.rows()] == ["ended"]
    assert workers.status.name == after
    workers.close()


def test_parallel_studies_on_one_cluster_keep_own_results(distributed, monkeypatch):
    def done(given, *_):
        time.sleep(1)  # so that both are there at once
        return pickle.dumps(pickle.loads(given)[1])

    monkeypatch.setattr(dask_executor, "run_task_in_subprocess", done)
    heard = {}

    def run(name, address):
        hear = lambda at, outcome: heard.setdefault(name, []).append((at, outcome))  # noqa: E731
        dask_executor.make_dask_executor(address, ENOUGH_S, ENOUGH_S)(print, {0: name}, hear, lambda: None)

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
    ) as workers:
        both = [threading.Thread(target=run, args=(name, workers.scheduler_address)) for name in ("easy", "list-sjf")]
        for each in both:
            each.start()
        for each in both:
            each.join()
    assert heard == {"easy": [(0, "easy")], "list-sjf": [(0, "list-sjf")]}
