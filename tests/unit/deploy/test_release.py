"""What must be true of a tree before it becomes a release."""

import subprocess
from unittest import mock

import pytest

from deploy import release
from deploy.version import RELEASE


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree that can become the release, with every file committed."""
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {RELEASE} (2026-11-28)\n\n## 0.0.9 (soon)\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "_git", lambda *words: "")
    monkeypatch.setattr(release, "_docker_responds", lambda: True)
    return tmp_path


def test_release_needs_committed_tree_version_and_date(tree, monkeypatch):
    assert release.find_obstacles(RELEASE) == []
    assert release.find_obstacles("9.9.9") == [f"VERSION=9.9.9: must be {RELEASE}, the release in deploy/version.py"]
    monkeypatch.setattr(release, "_git", lambda *words: " M README.md\n?? new")
    assert release.find_obstacles(RELEASE) == ["2 files are not committed, the first is README.md"]


def test_release_needs_docker(tree, monkeypatch, capsys):
    monkeypatch.setattr(release, "_docker_responds", lambda: False)
    monkeypatch.setattr(release, "build", lambda: pytest.fail("built"))
    assert release.main([RELEASE]) == 1
    assert capsys.readouterr().err == "release: no Docker engine responds, which the packages need\n"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (subprocess.CalledProcessError(3, ["a", "b"]), 1, "release: a b: exit code 3\n"),
        (KeyboardInterrupt(), 130, "release: interrupted, and build/dist is not complete\n"),
    ],
    ids=["failure", "interrupt"],
)
def test_failed_build_prints_no_command_that_publishes(tree, monkeypatch, capsys, error, code, words):
    monkeypatch.setattr(release, "build", mock.Mock(side_effect=error))
    assert release.main([RELEASE]) == code
    assert capsys.readouterr() == ("", words)


@pytest.mark.parametrize("heading", [f"## {RELEASE} (not released yet)", f"## {RELEASE}", "## 9.9.9 (2026-11-28)"])
def test_newest_changelog_section_has_version_and_date(tree, heading):
    (tree / "CHANGELOG.md").write_text(f"{heading}\n\n## {RELEASE} (2026-11-28)\n")
    assert release.find_obstacles(RELEASE) == [
        f"CHANGELOG.md: begins with '{heading}': must be ## {RELEASE} (YYYY-MM-DD)"
    ]
