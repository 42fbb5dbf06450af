"""A result's key depends on its inputs and on the code."""

import pytest

from cpsched_sim.experiments import result_keys
from cpsched_sim.experiments.result_keys import code_digest, compute_result_key, plugin_digests, plugin_file_digests
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
        monkeypatch.setattr(result_keys, "module_source_files", lambda module: [tmp_path / "one.py"])
        monkeypatch.setattr(result_keys, "version", {"cpsched": cpsched, "ortools": ortools}.get)
        return code_digest.__wrapped__()

    return of


@pytest.mark.parametrize("change", [{"text": "a = 2"}, {"ortools": "3"}], ids=str)
def test_identity_depends_on_source_and_libraries(identity, change):
    assert identity() == identity() != identity(**change)


def test_wheel_of_same_source_has_same_identity(identity):
    assert identity() == identity(cpsched="2")


def test_identity_covers_core_and_simulator():
    files = {path.as_posix() for name in result_keys.OWN_PACKAGES for path in result_keys.module_source_files(name)}
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
