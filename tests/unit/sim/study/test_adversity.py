"""A study on a full disk, with dispatchers that exit or fork, and at the same time as another study."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.errors import InputError
from cpsched_sim.experiments import dask_executor, task_runner
from cpsched_sim.experiments.case_store import CaseStore
from cpsched_sim.experiments.task_runner import LocalProcessExecutor, TaskFailure
from cpsched_sim.study.result_store import StudyResultStore
from cpsched_sim.study.study_cases import build_study_cases
from cpsched_sim.study.study_report import write_study_outputs
from cpsched_sim.study.study_runner import run_case_within_limits, run_missing_cases, run_study
from tests import warm
from tests.patience import ENOUGH_S, is_gone
from tests.unit.sim.study.studies import plugin, words, written
from tests.unit.sim.study.test_study_runner import Here, own_dispatchers, results_in, told_of


def invoke(*arguments):
    return CliRunner().invoke(app, ["study", "run", *map(str, arguments)])


class Disk:
    """A file system in memory, as small as one likes; it can grow."""

    def __init__(self, folder):
        self.folder = folder

    def mount(self, options):
        command = ["mount", "-t", "tmpfs", "-o", options, "cpsched-test", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def disk(tmp_path):
    """A disk of 1 MiB."""
    found = Disk(tmp_path / "disk")
    found.folder.mkdir()
    try:
        mounted = found.mount("size=1m")
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield found
    subprocess.run(["umount", "--lazy", str(found.folder)], check=True)


@pytest.mark.parametrize(
    ("small", "room"),
    [("remount,size={}k", [4 * pages for pages in range(1, 60)]), ("remount,nr_inodes={}", list(range(2, 60)))],
    ids=["bytes", "files"],
)
def test_full_disk_is_reported_and_same_command_resumes(tmp_path, disk, monkeypatch, small, room):
    """The disk grows by a page, or by a file, from nothing on: it is full at every file of a study once."""
    monkeypatch.setattr(dask_executor, "make_task_executor", lambda *options, **limits: Here())
    path, out = written(tmp_path, jobs=True), disk.folder / "out"
    assert invoke(path, "--out", tmp_path / "elsewhere").exit_code == 0
    codes, kept, decided_at = [], {}, []
    for amount in room:
        assert disk.mount(small.format(amount)).returncode == 0
        found = invoke(path, "--out", out)
        codes.append(found.exit_code)
        now = results_in(out) if (out / "cases").exists() else {}
        assert {name: now[name] for name in kept} == kept, "nothing that was finished is lost or changed"
        assert not [each for each in disk.folder.rglob(".*") if each.name != ".lock"], "nothing half is left"
        decided_at.append(len(now))
        kept = now
        if found.exit_code == 0:
            break
        told = found.stderr.splitlines()[-1]
        assert "cannot be written" in told, told
        assert "No space left on device" in told, told
        assert "Traceback" not in found.stderr
    assert codes == [2] * (len(codes) - 1) + [0]
    assert {0, 1, 2, 3, 4} == set(decided_at)
    assert decided_at.count(4) > 3, "it was full while the report was written, too"
    assert kept == results_in(tmp_path / "elsewhere")
    assert (out / "report.md").read_bytes() == (tmp_path / "elsewhere" / "report.md").read_bytes()


FORK = (
    "import os, time; OTHER = int(os.environ.get('OTHER') or os.fork()); os.environ['OTHER'] = str(OTHER or -1); "
    "OTHER > 0 and open({!r}, 'a').write(str(OTHER) + ' '); "
)
"""Forks when it is first asked, and writes down what it forked; both go on with what follows."""
END_OF_ARCHIVE = b"PK\5\6"


@pytest.fixture
def fork(tmp_path, monkeypatch):
    """`FORK`, of which nothing must be left when the test is over."""
    monkeypatch.syspath_prepend(tmp_path)
    noted = tmp_path / "forked"
    yield FORK.format(str(noted))
    forked = [int(word) for word in noted.read_text().split()]
    assert forked
    over_s = time.monotonic() + ENOUGH_S
    while left := [id for id in forked if not is_gone(id)]:
        if time.monotonic() > over_s:
            for id in left:
                os.kill(id, signal.SIGKILL)
            pytest.fail(f"{len(left)} of {len(forked)} forks outlived their cases")
        time.sleep(0.05)


@pytest.fixture
def lives_on(fork):
    """A dispatcher that dies while what it forked lives on."""
    return f"{fork}OTHER or time.sleep({10 * ENOUGH_S}); os._exit(4)"


def test_exiting_or_forking_dispatcher_fails_only_its_case(tmp_path, fork, lives_on):
    """Also one whose fork continues to decide and would report a result."""
    leaves, fails = "import os; os._exit(0)", "import os; os._exit(3)"
    study = own_dispatchers(tmp_path, leaves=leaves, fails=fails, lives_on=lives_on, twice=fork)
    told = told_of(run_study(study | {"jobs": True, "limits": {"minutes": ENOUGH_S / 60}}, tmp_path / "out"))
    died = "its process died with exit code"
    assert {name: row["why"] for name, row in told.items()} == {
        "easy": "", "leaves": f"{died} 0", "fails": f"{died} 3", "lives_on": f"{died} 4", "twice": "",
    }  # fmt: skip


def test_forked_processes_end_at_timeout_and_stop(tmp_path, fork, monkeypatch):
    """Also if it ignores SIGTERM. The clock continues after a fork."""
    deaf = "import signal; [signal.signal(each, signal.SIG_IGN) for each in (signal.SIGTERM, signal.SIGINT)]; "
    study = own_dispatchers(tmp_path, slow=f"{deaf}{fork}time.sleep({10 * ENOUGH_S})")
    noted = tmp_path / "forked"

    def stop(done, total):
        if noted.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_missing_cases(
            build_study_cases(study), StudyResultStore(tmp_path / "stopped"), LocalProcessExecutor(2), progress=stop
        )
    forked = noted.read_text().split()
    assert len(forked) == 1
    noted.rename(tmp_path / "forked before")
    monkeypatch.setattr(task_runner, "time", SimpleNamespace(monotonic=lambda: 1e6 if noted.exists() else 0.0))
    campaign = build_study_cases(study | {"limits": {"minutes": 2}})
    row = told_of(
        run_missing_cases(campaign, StudyResultStore(tmp_path / "out"), LocalProcessExecutor(2, limit_s=120))
    )["slow"]
    assert (row["why"], row["wall_s"], row["share"]) == ("did not end in 2 min", 1e6, 0.0)
    assert 0 < row["cpu_s"] < 60
    noted.write_text(noted.read_text() + forked[0])


def test_cases_end_with_killed_study(tmp_path, fork):
    study = own_dispatchers(tmp_path, slow=f"{fork}time.sleep({10 * ENOUGH_S})")
    del study["grids"][0]["dispatchers"][0]
    path, noted = written(tmp_path, **study), tmp_path / "forked"
    command = [sys.executable, "-m", "cpsched_sim.cli", "study", "run", str(path), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        over_s = time.monotonic() + ENOUGH_S
        while not noted.exists() and process.poll() is None and time.monotonic() < over_s:
            time.sleep(0.05)
        process.kill()


def test_worker_takes_one_outcome_and_ignores_forks(tmp_path, fork, lives_on):
    from cpsched_sim.experiments.dask_executor import run_task_in_subprocess

    study = own_dispatchers(tmp_path, twice=fork, lives_on=lives_on) | {"jobs": True}
    cases = [case for case in build_study_cases(study).cases if case.labels["dispatcher"] != "easy"]
    path = [each for each in sys.path if each]
    twice, leaves = (
        run_task_in_subprocess(
            pickle.dumps((run_case_within_limits, {**case.task, "memory_mib": None}, 0.0)), ENOUGH_S, path
        )
        for case in cases
    )
    assert leaves == TaskFailure.from_exit_code(4)
    outcome = pickle.loads(twice)
    assert outcome.result["outcome"] == "ended"
    assert outcome.jobs.count(END_OF_ARCHIVE) == 1, "one schedule, and nothing after it"


def test_second_study_in_folder_is_rejected(tmp_path):
    path, out = written(tmp_path), tmp_path / "out"
    run_study(path, out)
    (tmp_path / "by another name").symlink_to(out)
    written(tmp_path, title="another")
    before = {each: each.read_bytes() for each in out.rglob("*") if each.is_file()}
    with StudyResultStore(out).lock_exclusively():
        for name in (out, tmp_path / "by another name"):
            found = warm.cpsched("study", "run", path, "--out", name, timeout=ENOUGH_S)
            assert found.returncode == 2
            rule = "another study is writing to this folder; wait, or choose another folder with --out"
            assert found.stderr.endswith(f"{name}: {rule}\n")
        assert "4 finished, 0 to run" in invoke(path, "--out", out, "--dry-run").stdout
    assert {each: each.read_bytes() for each in out.rglob("*") if each.is_file()} == before
    assert Path(out / "report.md").read_text().startswith("# four jobs")


SYSTEM = "name: mine\nsummary: a pool\nresources: [processors]\nunits: { rule: pool }\n"


@pytest.mark.parametrize("kind", ["system", "plugin"])
def test_file_changed_during_study_fails_its_cases(tmp_path, monkeypatch, kind):
    """Its results would stand under the digest of what it said before."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / ("mine.yaml" if kind == "system" else "helper.py")
    written(tmp_path)
    own = plugin(tmp_path)
    text = SYSTEM if kind == "system" else path.read_text()
    path.write_text(text)
    axes = {"systems": ["mine.yaml"], "dispatchers": ["easy"]} if kind == "system" else {"dispatchers": [own, "easy"]}
    campaign = build_study_cases(words(grids=[{"traces": ["four"], **axes}]), tmp_path)

    def outcomes(name):
        rows = run_missing_cases(campaign, StudyResultStore(tmp_path / name), LocalProcessExecutor(2)).rows()
        return {row["dispatcher"]: (row["outcome"], row["why"]) for row in rows}

    path.write_text(f"# another line\n{text}")
    changed = f"{path}: has changed since the study was read"
    told = outcomes("out")
    assert told.pop("easy" if kind == "system" else own) == ("failed", changed)
    assert set(told.values()) <= {("ended", "")}
    path.unlink()
    assert next(iter(outcomes("gone").values()))[0] == "failed"


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\3\4cut"], ids=["empty", "text", "cut"])
def test_damaged_schedule_is_named_and_recomputed_if_deleted(tmp_path, content):
    pytest.importorskip("pyarrow")
    written(tmp_path)
    campaign, store = build_study_cases(words(jobs=True), tmp_path), StudyResultStore(tmp_path / "out")
    write_study_outputs(run_missing_cases(campaign, store, Here()))
    schedule = sorted((tmp_path / "out" / "jobs").iterdir())[0]
    schedule.write_bytes(content)
    rule = f"{schedule.name}: is not a schedule: delete it, and run the same command again"
    with pytest.raises(InputError, match=rule):
        write_study_outputs(run_missing_cases(campaign, store, Here()))
    schedule.unlink()
    write_study_outputs(run_missing_cases(campaign, store, once := Here()))
    assert (len(once.decided), schedule.exists()) == (1, True)


def test_plugin_output_does_not_mix_with_json(tmp_path):
    plugin(tmp_path, "import os; print('by Python', flush=True); os.write(1, b'past Python')")
    mine = tmp_path / "mine.py"
    mine.write_text("print('imported')\n" + mine.read_text())
    path = written(tmp_path, grids=[{"traces": ["four"], "dispatchers": ["mine:Own"]}])
    words = ["study", "run", str(path), "--out", str(tmp_path / "out"), "--json"]
    command = [sys.executable, "-m", "cpsched_sim.cli", *words]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=ENOUGH_S, check=True)
    assert json.loads(found.stdout) == {"cases": 1, "bad": 0, "report": str(tmp_path / "out" / "report.html")}
    assert all(said in found.stderr for said in ("imported", "by Python", "past Python"))


def test_resumed_study_reads_each_result_once_and_reports_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_executor, "make_task_executor", lambda *options, **limits: Here())
    path, out, read = written(tmp_path), tmp_path / "out", []
    run_study(path, out)
    find = CaseStore.find
    monkeypatch.setattr(CaseStore, "find", lambda store, digest: read.append(digest) or find(store, digest))
    (out / "cases" / "0.json").write_text("{}")
    told = invoke(path, "--out", out).stderr
    assert "1 results from different code, data or settings are not used" in told
    assert "4 of 4 replays had already finished" in told
    (out / "cases" / "0.json").unlink()
    assert sorted(read) == sorted(Path(name).stem for name in results_in(out))
    edited = next((out / "cases").iterdir())
    edited.write_text(edited.read_text().replace('"bsld": ', '"bsld": 1'))
    told = invoke(path, "--out", out).stderr
    assert f"1 results have changed since they were stored, so their cases run again: {edited.stem}" in told


def test_clock_set_back_changes_no_result_or_duration(tmp_path, monkeypatch):
    from cpsched_sim.study import case_execution

    class Yesterday(case_execution.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(1999, 12, 31, tzinfo=tz)

    written(tmp_path)
    study = words()
    run_missing_cases(build_study_cases(study, tmp_path), StudyResultStore(tmp_path / "now"), Here())
    monkeypatch.setattr(case_execution, "datetime", Yesterday)
    then = iter(range(10**9, 0, -1000))
    monkeypatch.setattr("time.time", lambda: next(then))
    rows = run_missing_cases(build_study_cases(study, tmp_path), StudyResultStore(tmp_path / "then"), Here()).rows()
    assert results_in(tmp_path / "now") == results_in(tmp_path / "then")
    assert all(row["wall_s"] >= 0 and row["date"].startswith("1999-12-31") for row in rows)
