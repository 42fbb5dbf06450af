"""Running a study: each case runs once, independent of failures of others, with the same bytes in every process."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from cpsched_sim import simulate
from cpsched_sim.experiments.task_runner import TaskFailure
from cpsched_sim.study.case_execution import execute_case
from cpsched_sim.study.result_store import StudyResultStore, encode_json
from cpsched_sim.study.study_cases import build_study_cases, read_study
from cpsched_sim.study.study_runner import run_missing_cases, run_study
from tests import warm
from tests.patience import ENOUGH_S
from tests.unit.sim.study.studies import plugin, words, written


class Here:
    """An engine that decides in this process, and counts."""

    def __init__(self, stop_after=None):
        self.decided, self.stop_after = [], stop_after

    def __call__(self, work, tasks, heard, looked):
        for at, task in tasks.items():
            if self.stop_after is not None and len(self.decided) >= self.stop_after:
                raise KeyboardInterrupt
            self.decided.append(task["spec"]["dispatcher"])
            heard(at, 0.5)
            heard(at, execute_case(task))
            looked()


def results_in(folder):
    """Inputs and result of each case, without how it was made, as bytes."""
    stored = {path.name: json.loads(path.read_bytes()) for path in (folder / "cases").iterdir()}
    return {name: encode_json([each["inputs"], each["result"]]) for name, each in stored.items()}


@pytest.fixture
def run_here(tmp_path):
    """Run the cases of a study in this process, with an engine that counts them."""
    written(tmp_path)

    def run(engine, study=None, again=False, **more):
        campaign, store = build_study_cases(study or words(), tmp_path), StudyResultStore(tmp_path / "out")
        before = store.load_earlier_results(campaign, again)
        return run_missing_cases(campaign, store, engine, before=before, **more)

    return run


def test_finished_case_is_never_run_again(run_here):
    with pytest.raises(KeyboardInterrupt):
        run_here(Here(stop_after=1))
    found = run_here(then := Here())
    assert [row["outcome"] for row in found.rows()] == ["ended"] * 4
    run_here(last := Here())
    assert (len(then.decided), last.decided) == (3, [])


def test_figures_equal_those_of_simulate(tmp_path, run_here):
    rows, alone = run_here(Here()).rows(), simulate(tmp_path / "four.swf", "easy")
    (mine,) = [row for row in rows if row["dispatcher"] == "easy" and row["load"] == 1.0]
    expected = (alone.bsld, alone.mean_wait_s, 4, alone.measures.wait_s.max())
    assert tuple(mine[name] for name in ("bsld", "mean_wait_s", "jobs", "longest_wait_s")) == expected


def test_load_compresses_arrivals(tmp_path, run_here):
    columns = {}
    for case in run_here(Here(), words(jobs=True)).campaign.cases:
        with np.load(tmp_path / "out" / "jobs" / f"{case.digest}.npz") as kept:
            columns[case.labels["load"]] = (kept["submit_s"] - kept["submit_s"][0]).tolist()
    assert columns == {1.0: [0, 1, 2, 3], 2.0: [0, 0, 1, 2]}


def test_failed_cases_stay_until_retried_explicitly(run_here):
    study = words(grids=[{"traces": ["four"], "dispatchers": ["easy"], "windows": [{"days": 1, "from_day": 9}]}])
    assert run_here(Here(), study).rows()[0]["outcome"] == "failed"
    run_here(never := Here(), study)
    run_here(once := Here(), study, again=True)
    assert (len(never.decided), len(once.decided)) == (0, 1)


def own_dispatchers(tmp_path, **bodies):
    """A study of four jobs under easy and plug-in dispatchers, one for each body."""
    written(tmp_path)
    for name, body in bodies.items():
        plugin(tmp_path, body)
        (tmp_path / "mine.py").rename(tmp_path / f"{name}.py")
    grid = {"traces": ["four"], "dispatchers": ["easy", *(f"{name}:Own" for name in bodies)]}
    return words(grids=[grid], traces={"four": {"file": str(tmp_path / "four.swf")}})


def told_of(results):
    return {row["dispatcher"].partition(":")[0]: row for row in results.rows()}


def test_crash_or_memory_limit_fails_only_its_case(tmp_path, monkeypatch):
    """A plug-in dispatcher, too: found by the processes, and named in the row."""
    monkeypatch.syspath_prepend(tmp_path)
    eats = "hoard = [bytearray(1 << 24) for _ in range(1000)]"
    study = own_dispatchers(tmp_path, dies="import os; os.kill(os.getpid(), 9)", eats=eats)
    told = told_of(run_study(study | {"limits": {"memory_mib": 2000}}, tmp_path / "out"))
    assert {name: row["why"] for name, row in told.items()} == {
        "easy": "", "dies": "its process died with exit code -9 (limit: 2,000 MiB)", "eats": "did not end in 2,000 MiB",
    }  # fmt: skip
    assert "did not end in 2,000 MiB" in (tmp_path / "out" / "report.md").read_text()
    more = build_study_cases(study | {"limits": {"memory_mib": 9000}})
    # with more memory it is tried again
    assert len(StudyResultStore(tmp_path / "out").load_earlier_results(more).done) == 2


def test_hanging_case_ends_at_limit_and_may_be_retried(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    study = own_dispatchers(tmp_path, sleeps=f"import time; time.sleep({ENOUGH_S})")
    campaign, store = build_study_cases(study), StudyResultStore(tmp_path / "out")
    run_missing_cases(
        build_study_cases(study | {"grids": [{"traces": ["four"], "dispatchers": ["easy"]}]}), store, Here()
    )
    told = told_of(run_study(study | {"limits": {"minutes": 0.01}}, tmp_path / "out"))
    assert (told["sleeps"]["why"], told["easy"]["outcome"]) == ("did not end in 0.01 min", "ended")
    assert len(store.load_earlier_results(campaign).done) == 1


def test_results_are_identical_in_processes(tmp_path):
    path = written(tmp_path)
    run_study(path, tmp_path / "processes")
    run_missing_cases(read_study(path), StudyResultStore(tmp_path / "here"), Here())
    assert results_in(tmp_path / "processes") == results_in(tmp_path / "here")


def test_sigkill_loses_no_finished_case(tmp_path):
    path = written(
        tmp_path, grids=[{"traces": ["four"], "dispatchers": ["easy"], "loads": [1 + n / 10 for n in range(8)]}]
    )
    study = warm.Begun(warm.server(), ["study", "run", str(path), "--out", str(tmp_path / "out"), "-j", "1"])
    cases, until_s = tmp_path / "out" / "cases", time.monotonic() + ENOUGH_S
    while not (cases.exists() and any(cases.glob("*.json"))) and time.monotonic() < until_s:
        time.sleep(0.02)
    study.send_signal(signal.SIGKILL)
    assert study.done(ENOUGH_S).returncode == -signal.SIGKILL
    kept = results_in(tmp_path / "out")
    assert kept
    rest = Here()
    run_missing_cases(read_study(path), StudyResultStore(tmp_path / "out"), rest)
    assert len(rest.decided) == 8 - len(kept)
    assert {name: results_in(tmp_path / "out")[name] for name in kept} == kept


def test_results_are_available_as_parquet_and_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = run_study(written(tmp_path, jobs=True), tmp_path / "out")
    kept = pandas.read_parquet(tmp_path / "out" / "results.parquet")
    frame = found.to_frame()
    assert kept["bsld"].tolist() == frame["bsld"].tolist() == [row["bsld"] for row in found.rows()]
    assert {"digest", "cpu_s", "version_numpy", "machine", "date"} <= set(kept.columns)
    jobs = pandas.read_parquet(tmp_path / "out" / "jobs.parquet")
    assert len(jobs) == 16
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [line["digest"] for line in lines] == frame["digest"].tolist()
    assert Path(tmp_path / "out" / "report.html").read_text().count("<h2>") >= 5


def test_progress_counts_stored_cases_and_parts(run_here):
    with pytest.raises(KeyboardInterrupt):
        run_here(Here(stop_after=1))
    told = []

    def engine(work, tasks, heard, looked):
        heard(1, 0.75)
        heard(1, 0.5)
        looked()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_here(engine, progress=lambda *done: told.append(done))
    assert told == [(1.0, 4), (1.75, 4)]


def test_reports_cause_of_process_death(run_here):
    deaths = [
        TaskFailure.from_exit_code(-9),
        TaskFailure.from_timeout(),
        TaskFailure("broke"),
        TaskFailure.from_exit_code(0),
    ]

    def engine(work, tasks, heard, looked):
        for at in tasks:
            heard(at, deaths[at])

    rows = run_here(engine, words(limits={"minutes": 2, "memory_mib": 1024})).rows()
    assert [(row["outcome"], row["why"]) for row in rows] == [
        ("failed", "its process died with exit code -9 (limit: 1,024 MiB)"), ("did not end", "did not end in 2 min"),
        ("failed", "broke"), ("failed", "its process died with exit code 0 (limit: 1,024 MiB)"),
    ]  # fmt: skip
