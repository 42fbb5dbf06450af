"""A result's key depends on its inputs and on the code."""

import os

import pytest

from cpsched_sim.errors import SimulationError
from cpsched_sim.experiments import case_store
from cpsched_sim.experiments.case_store import (
    Case,
    CaseRunner,
    CaseStore,
    ResultFormat,
    code_digest,
    compute_result_key,
    plugin_digests,
    plugin_file_digests,
)
from cpsched_sim.experiments.task_runner import TaskFailure
from tests.unit.sim.study.studies import plugin


def test_key_depends_on_inputs_not_on_order():
    assert (
        compute_result_key({"a": 1, "b": 2})
        == compute_result_key({"b": 2, "a": 1})
        != compute_result_key({"a": 1, "b": 3})
    )


@pytest.fixture
def identity(tmp_path, monkeypatch):
    """The identity of code in one file, in a version of cpsched and a release of OR-Tools."""

    def of(text="a = 1", cpsched="1", ortools="2"):
        (tmp_path / "one.py").write_text(text)
        monkeypatch.setattr(case_store, "module_source_files", lambda module: [tmp_path / "one.py"])
        monkeypatch.setattr(case_store, "version", {"cpsched": cpsched, "ortools": ortools}.get)
        return code_digest.__wrapped__()

    return of


@pytest.mark.parametrize("change", [{"text": "a = 2"}, {"ortools": "3"}], ids=str)
def test_identity_depends_on_source_and_libraries(identity, change):
    assert identity() == identity() != identity(**change)


def test_wheel_of_same_source_has_same_identity(identity):
    assert identity() == identity(cpsched="2")


def test_identity_covers_core_and_simulator():
    files = {path.as_posix() for name in case_store.OWN_PACKAGES for path in case_store.module_source_files(name)}
    for name in ("cpsched/planning.py", "cpsched/kernels/__init__.py", "cpsched_sim/cluster/replay.py"):
        assert any(path.endswith(name) for path in files)


@pytest.mark.parametrize("changed", ["mine.py", "helper.py", "package/inner/deep.py"])
def test_plugin_identity_covers_module_and_neighbours(tmp_path, monkeypatch, changed):
    monkeypatch.syspath_prepend(tmp_path)
    own, deep = plugin(tmp_path), tmp_path / "package" / "inner" / "deep.py"
    deep.parent.mkdir(parents=True)
    for path in (tmp_path / "package" / "__init__.py", deep):
        path.write_text("")
    before = plugin_digests(own, "walltime")
    assert len(before) == 4
    (tmp_path / changed).write_text("# another line\n")
    after = plugin_digests(own, "walltime")
    assert {path for path in before if before[path] != after[path]} == {str(tmp_path / changed)}


def test_built_in_or_unknown_name_is_no_plugin():
    assert plugin_digests("easy", "unknown") == plugin_file_digests("cpsched.dispatchers.easy") == {}


# ------------------------------------------------------------------------------------------ store

TEXT = ResultFormat(".txt", str.encode, lambda content: content.decode("ascii"))


def run_here(work, tasks, heard, on_poll):
    """Run all tasks in this process."""
    for at, task in tasks.items():
        heard(at, work(task, lambda *done: None))


def shout(task, tell):
    return TaskFailure("too loud") if task == "b" else task.upper()


def test_runs_only_cases_without_intact_result(tmp_path):
    cases, told = [Case(f"key-{word}", word) for word in "abc"], []
    store = CaseStore(tmp_path, TEXT)
    first = CaseRunner(shout, run_here, store).run(cases)
    assert [str(each) for each in first] == ["A", "too loud", "C"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key-a.txt", "key-c.txt"]
    store.path("key-a").write_bytes(b"stored")
    store.path("key-c").write_bytes(b"\xff")
    again = CaseRunner(shout, run_here, store).run(cases, lambda done, total: told.append((done, total)))
    assert [str(each) for each in again] == ["stored", "too loud", "C"]
    assert (store.found, told) == (1, [(1, 3), (3, 3)])


def test_only_cache_ignores_write_errors(tmp_path):
    (tmp_path / "file").write_text("")
    CaseStore(tmp_path / "file", TEXT, is_cache=True).store("key", "a")
    with pytest.raises(SimulationError, match="file"):
        CaseStore(tmp_path / "file", TEXT).store("key", "a")


def test_cache_deletes_unused_results(tmp_path):
    used, unused = (CaseStore(tmp_path, TEXT).path(key) for key in ("used", "unused"))
    for path in (used, unused):
        path.write_text("a")
        os.utime(path, (0, 0))
    store = CaseStore(tmp_path, TEXT, is_cache=True)
    assert store.find("used") == "a"
    store.delete_unused()
    assert (used.exists(), unused.exists()) == (True, False)
    CaseStore(tmp_path / "none", TEXT).delete_unused()
    CaseStore(None, TEXT).delete_unused()


def test_converts_results_and_adds_them_to_known_ones(tmp_path):
    """Also a failure, which a study stores as a result. The caller has the results even after an interruption."""
    cases, results = [Case(f"key-{word}", word) for word in "abc"], {2: "known"}
    store = CaseStore(tmp_path, TEXT)
    runner = CaseRunner(shout, run_here, store, lambda case, returned: f"{case.key}: {returned}")
    assert runner.run(cases, results=results) == ["key-a: A", "key-b: too loud", "known"]
    assert results == {0: "key-a: A", 1: "key-b: too loud", 2: "known"}
    assert store.stored_keys() == ["key-a", "key-b"]


def test_case_may_write_its_own_file(tmp_path):
    """As a comparison does, whose cases are folders."""
    format = ResultFormat("/summary.txt", None, bytes.decode)
    store = CaseStore(tmp_path, format)
    store.store("key", "never written")
    assert store.stored_keys() == []
    (tmp_path / "key").mkdir()
    store.path("key").write_text("own")
    assert (store.stored_keys(), store.find("key")) == (["key"], "own")
