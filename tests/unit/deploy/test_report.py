"""What a run of the live tests leaves behind, and the table that the site makes of it."""

import json
from types import SimpleNamespace

import pytest

from docs.scripts import releases
from tests.slurm.harness import project_of, release_of
from tests.slurm.report import report, write


def outcome(name):
    return SimpleNamespace(nodeid=f"tests/slurm/test_a.py::{name}")


def test_the_table_shows_each_run_with_its_failures(tmp_path, monkeypatch):
    outcomes = {"passed": [outcome("a"), outcome("b")], "error": [outcome("d")], "failed": [outcome("c"), outcome("d")]}
    write(tmp_path / "runs/22.05-cli.json", report("slurm-wlm 22.05.8\n", "cli", 125.4, outcomes))
    write(tmp_path / "runs/26.05-cli.json", report("slurm 26.05.5", "cli", 59.6, {"skipped": [outcome("e")]}))
    assert json.loads((tmp_path / "runs/26.05-cli.json").read_text())["skipped"] == ["tests/slurm/test_a.py::e"]
    monkeypatch.setattr(releases, "RUNS", tmp_path / "none")
    assert releases.tested() == "No run has been recorded yet."
    monkeypatch.setattr(releases, "RUNS", tmp_path / "runs")
    assert releases.tested().splitlines()[2:] == [
        "| 22.05.8 | `cli` | 2 | `c`, `d` | 0 | 2 min 5 s |",
        "| 26.05.5 | `cli` | 0 | none | 1 | 1 min 0 s |",
    ]


def test_each_release_has_a_cluster_and_a_network_of_its_own():
    found = [release_of({"SLURM": number}) for number in ("22.05", "24.11", "26.05")]
    assert [each["suite"] for each in found] == ["bookworm", "trixie", "forky"]
    assert len({each["project"] for each in found}) == len({each["net"] for each in found}) == 3
    assert [bool(each["pyslurm"]) for each in found] == [False, False, True]
    assert release_of({}) == found[2]
    assert project_of({"SLURM": "22.05", "CPSCHED_PROJECT": ""}) == found[0]["project"]


def test_an_unknown_release_is_refused():
    with pytest.raises(FileNotFoundError):
        release_of({"SLURM": "20.11"})
