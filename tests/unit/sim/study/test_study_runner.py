"""Running a study: each case runs once, independent of failures of others, with the same bytes in every process."""

import json
import signal
import time
from pathlib import Path

import pytest

from cpsched_sim.errors import InputError
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


def run_here(tmp_path, engine, study=None, again=False):
    campaign, store = build_study_cases(study or words(), tmp_path), StudyResultStore(tmp_path / "out")
    return run_missing_cases(campaign, store, engine, before=store.load_earlier_results(campaign, again))


def test_finished_case_is_never_run_again(tmp_path):
    written(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_here(tmp_path, Here(stop_after=1))
    then = Here()
    found = run_here(tmp_path, then)
    assert len(then.decided) == 3
    assert [row["outcome"] for row in found.rows()] == ["ended"] * 4
    run_here(tmp_path, last := Here())
    assert last.decided == []


def test_damaged_result_counts_as_unfinished(tmp_path):
    written(tmp_path)
    run_here(tmp_path, Here())
    broken = sorted((tmp_path / "out" / "cases").iterdir())[0]
    before, content = results_in(tmp_path / "out"), broken.read_bytes()
    broken.write_bytes(content[: len(content) // 2])
    run_here(tmp_path, then := Here())
    assert len(then.decided) == 1
    assert results_in(tmp_path / "out") == before


def test_figures_equal_those_of_simulate(tmp_path):
    from cpsched_sim import simulate

    written(tmp_path)
    rows = run_here(tmp_path, Here()).rows()
    alone = simulate(tmp_path / "four.swf", "easy")
    (mine,) = [row for row in rows if row["dispatcher"] == "easy" and row["load"] == 1.0]
    assert (mine["bsld"], mine["mean_wait_s"], mine["jobs"]) == (alone.bsld, alone.mean_wait_s, 4)
    assert mine["longest_wait_s"] == alone.measures.wait_s.max()


def test_load_compresses_arrivals(tmp_path):
    trace = written(tmp_path).parent / "four.swf"
    found = run_here(tmp_path, Here(), words(jobs=True))
    import numpy as np

    columns = {}
    for case in found.campaign.cases:
        with np.load(tmp_path / "out" / "jobs" / f"{case.digest}.npz") as kept:
            columns[case.labels["load"]] = kept["submit_s"] - kept["submit_s"][0]
    assert trace.exists()
    assert columns[1.0].tolist() == [0, 1, 2, 3]
    assert columns[2.0].tolist() == [0, 0, 1, 2]


def test_trace_changed_during_run_fails(tmp_path):
    written(tmp_path)
    campaign = build_study_cases(words(), tmp_path)
    with (tmp_path / "four.swf").open("a") as file:
        file.write("; changed\n")
    rows = run_missing_cases(campaign, StudyResultStore(tmp_path / "out"), Here()).rows()
    assert {row["why"] for row in rows} == {"four.swf: has changed since the study was read"}
    changed = build_study_cases(words(), tmp_path)
    store = StudyResultStore(tmp_path / "out")
    store.write_case_list(campaign)
    assert store.list_changed_traces(changed) == [
        "four: the trace has changed since the last run in this folder, so its cases run again"
    ]
    assert {row["outcome"] for row in run_missing_cases(changed, store, Here()).rows()} == {"ended"}


def test_failed_cases_stay_until_retried_explicitly(tmp_path):
    written(tmp_path)
    grid = {"traces": ["four"], "dispatchers": ["easy"], "windows": [{"days": 1, "from_day": 9}]}
    study = words(grids=[grid])
    assert run_here(tmp_path, Here(), study).rows()[0]["outcome"] == "failed"
    run_here(tmp_path, never := Here(), study)
    run_here(tmp_path, once := Here(), study, again=True)
    assert (len(never.decided), len(once.decided)) == (0, 1)


def test_two_studies_cannot_share_folder(tmp_path):
    store = StudyResultStore(tmp_path / "out")
    with (
        store.lock_exclusively(),
        pytest.raises(InputError, match="another study is writing to this folder"),
        store.lock_exclusively(),
    ):
        pass
    with store.lock_exclusively():
        pass


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
    assert told["easy"]["outcome"] == "ended"
    assert told["dies"]["why"] == "its process died with exit code -9 (limit: 2,000 MiB)"
    assert told["eats"]["why"] == "did not end in 2,000 MiB"
    assert "did not end in 2,000 MiB" in (tmp_path / "out" / "report.md").read_text()
    more = build_study_cases(study | {"limits": {"memory_mib": 9000}})
    assert (
        len(StudyResultStore(tmp_path / "out").load_earlier_results(more).done) == 2
    )  # with more memory it is tried again


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


def test_progress_counts_stored_cases_and_parts(tmp_path):
    written(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_here(tmp_path, Here(stop_after=1))
    told = []

    def engine(work, tasks, heard, looked):
        heard(1, 0.75)
        heard(1, 0.5)
        looked()
        raise KeyboardInterrupt

    campaign = build_study_cases(words(), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_missing_cases(
            campaign, StudyResultStore(tmp_path / "out"), engine, progress=lambda *done: told.append(done)
        )
    assert told == [(1.0, 4), (1.75, 4)]


def test_reports_cause_of_process_death(tmp_path):
    written(tmp_path)
    deaths = [
        TaskFailure.from_exit_code(-9),
        TaskFailure.from_timeout(),
        TaskFailure("broke"),
        TaskFailure.from_exit_code(0),
    ]

    def engine(work, tasks, heard, looked):
        for at in tasks:
            heard(at, deaths[at])

    limits = {"minutes": 2, "memory_mib": 1024}
    rows = run_missing_cases(
        build_study_cases(words(limits=limits), tmp_path), StudyResultStore(tmp_path / "out"), engine
    ).rows()
    assert [row["outcome"] for row in rows] == ["failed", "did not end", "failed", "failed"]
    assert rows[0]["why"] == "its process died with exit code -9 (limit: 1,024 MiB)"
    assert [row["why"] for row in rows[1:3]] == ["did not end in 2 min", "broke"]
