"""Test `pytest --cpsched-dispatcher my.module:Class`, the property suite for users of the installed package."""

import os
import subprocess
import sys

import pytest

from tests.installed import SMALLEST, install

OVERBOOKING = """
    import cpsched

    class Everything(cpsched.Dispatcher):
        \"\"\"Starts every job on the first node, whatever there is.\"\"\"

        def decide(self, snapshot, need="plan"):
            jobs = zip(snapshot.queue.tolist(), snapshot.queued_jobs())
            starts = cpsched.Starts.of({slot: ((0, job.request.units),) for slot, job in jobs})
            return cpsched.Decision(starts, cpsched.Effort("everything"))
"""


def suite(folder, *arguments):
    """Run pytest in an empty folder, without this repository's tests."""
    program = "import sys, pytest; sys.path.remove(''); sys.exit(pytest.main())"  # as the `pytest` command does
    command = [sys.executable, "-c", program, "-q", "-p", "cpsched_sim.testing.plugin", "-p", "no:cacheprovider"]
    command += ["-p", "_hypothesis_pytestplugin"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin")
    install(path, "mine", {"mine_good": SMALLEST, "mine_bad": OVERBOOKING})
    (path / "test_own.py").write_text("def test_own(): pass\n")
    return path


@pytest.mark.slow
def test_good_dispatcher_passes_and_only_suite_runs(folder):
    done = suite(folder, "--cpsched-dispatcher", "mine_good:SmallestFirst")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_overbooking_dispatcher_fails_with_example(folder):
    done = suite(folder, "--cpsched-dispatcher", "mine_bad:Everything", "-k", "decisions_are_feasible")
    assert done.returncode == 1
    assert "decisions_are_feasible_and_explained" in done.stdout
    assert "Violation(" in done.stdout, "the rules that are broken"
    assert "snapshot=Snapshot(" in done.stdout, "and the smallest world in which they are"


@pytest.mark.slow
def test_named_tests_run_besides_suite(folder):
    done = suite(folder, "test_own.py", "--cpsched-dispatcher", "mine_good:SmallestFirst", "-k", "own or deterministic")
    assert "2 passed" in done.stdout, done.stdout
    assert "1 passed" in suite(folder).stdout
