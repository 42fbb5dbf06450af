"""Test a dispatcher and a predictor outside the repository: installed with pip, then used in every API.

The package is the documentation's example, `docs/examples/plugin`. It is built with installed tools, without a network,
and is installed to a temporary folder.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from cpsched_bridge.errors import BridgeError
from cpsched_bridge.settings import load_settings
from cpsched_bridge.store.state_paths import open_journal
from tests import warm
from tests.patience import ENOUGH_S

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "plugin"
CPSCHED = [sys.executable, "-m", "cpsched_bridge.program.cli"]
TRACE_DAYS = "0.1"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the example for processes that start during the test."""
    for tool in ("pip", "hatchling"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed, so that pip cannot build the example (pip install -e '.[dev]')")
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(folder / "source")], check=True, timeout=ENOUGH_S)
    paths = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    warm.server()  # start the server without the example, because other tests use the same server
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(scope="module")
def trace(installed, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "day.csv.gz"
    cpsched("workload", "eurora", "--days", TRACE_DAYS, "--load", "8", "--out", path)
    return path


def cpsched(*arguments, in_new_process=False):
    """Return the output of a command, run in a new process if `in_new_process`."""
    if in_new_process:
        done = subprocess.run([*CPSCHED, *arguments], capture_output=True, text=True, timeout=ENOUGH_S)
    else:
        done = warm.cpsched(*arguments, timeout=ENOUGH_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_plugins_are_listed_with_settings(installed):
    listed = json.loads(cpsched("dispatchers", "--json", in_new_process=True))["dispatchers"][-1]
    assert (listed["name"], listed["parameters"]) == ("smallest-first", {"reservations": 1})
    assert listed["source"] == "cpsched-example 0.1.0"
    assert json.loads(cpsched("predictors", "--json"))["predictors"][-1]["name"] == "user-median"


def test_simulates_plugin_by_name_and_class(installed, trace):
    """The plugin's name and class give the same schedule, and a setting changes the schedule."""
    by_name = ("--dispatcher", "smallest-first", "--predictor", "user-median")
    by_class = (
        "--dispatcher", "cpsched_example.smallest:SmallestFirst", "--predictor", "cpsched_example.median:UserMedian",
    )  # fmt: skip
    first, second, third = (
        json.loads(cpsched("simulate", trace, *names, "--json"))
        for names in (by_name, by_class, (*by_name, "--set", "reservations=0"))
    )
    assert first["violations"] == 0
    assert [first[key] for key in ("bsld", "af")] == [second[key] for key in ("bsld", "af")]
    assert third["bsld"] != first["bsld"]


def test_compare_uses_plugins_in_its_processes(installed, trace):
    names = "easy,smallest-first"
    shown = cpsched("compare", trace, "--dispatcher", names, "--predictor", "user-median", "--json")
    rows = json.loads(shown)["results"]
    assert [(row["dispatcher"], row["error"]) for row in rows] == [("easy", None), ("smallest-first", None)]
    assert rows[0]["summary"]["bsld"] != rows[1]["summary"]["bsld"]


def test_bridge_decides_with_plugin(installed, trace, tmp_path):
    """In control of the mock, rounds are recorded with the plugin's names and replay equally."""
    config = tmp_path / "bridge.yaml"
    settings = {
        "mode": "control",
        "adapter": "mock",
        "state_dir": str(tmp_path / "state"),
        "options": {"trace": str(trace), "system": "eurora", "speed": 2000.0},
        "policy": {
            "dispatcher": "smallest-first", "dispatcher_settings": {"reservations": 2}, "predictor": "user-median",
        },
        "cycle": {"interval_s": 0.05},
        "metrics": {"enabled": False}, "page": {"enabled": False},
    }  # fmt: skip
    config.write_text(yaml.safe_dump(settings))
    with subprocess.Popen([*CPSCHED, "bridge", "--config", config], stderr=subprocess.PIPE, text=True) as bridge:
        until = time.monotonic() + ENOUGH_S
        while not started(config):
            assert bridge.poll() is None, bridge.stderr.read()
            assert time.monotonic() < until, "no start in time"
            time.sleep(0.05)
        bridge.terminate()
        bridge.communicate(timeout=ENOUGH_S)
    assert bridge.returncode == 0
    first = started(config)[0]
    assert "policy smallest-first {'reservations': '2'}, predictor user-median" in cpsched(
        "journal", "show", first, "--config", config
    )
    assert " 0 different" in cpsched("journal", "replay", "--all", "--config", config)


def started(config):
    """Return the numbers of the rounds that started jobs, or an empty list without a journal."""
    with contextlib.suppress(BridgeError), open_journal(load_settings(config)) as journal:
        return [line.number for line in journal.list_rounds(with_starts=True)]
    return []
