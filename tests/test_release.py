"""What `make release-check` refuses; that a wheel installs and runs is tried by itself, on several Pythons."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from deploy.version import RELEASE, version
from tests import release

FILES = ("CHANGELOG.md", "CITATION.cff")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of the files that say the version."""
    for name in FILES:
        shutil.copy(release.ROOT / name, tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_one_version_is_said_everywhere(tree):
    assert release.release() == RELEASE


def committed(tree, name, *tags):
    """The version of a new commit of the tree."""
    (tree / name).write_text(name)
    git = "git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b"
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", name], *(["tag", tag] for tag in tags)):
        subprocess.run([*git, *words], check=True)
    return version(tree)


def test_the_version_moves_with_every_commit(tmp_path, monkeypatch):
    """A wheel of the same version as the installed one would not be installed over it."""
    package = tmp_path / "tree" / "cpsched"
    (package / "__pycache__").mkdir(parents=True)
    copied = version(tmp_path / "tree")
    assert re.fullmatch(rf"{RELEASE}\.dev0\+tree\.[0-9a-f]{{12}}", copied)
    (package / "__pycache__" / "a.pyc").write_text("compiled")
    assert version(tmp_path / "tree") == copied
    (package / "a.py").write_text("")
    assert version(tmp_path / "tree") != copied
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-25T13:00:00+0100")
    first = committed(tmp_path / "tree", "first")
    assert re.fullmatch(rf"{RELEASE}\.dev20261125120000\+g[0-9a-f]{{8}}", first)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-25T12:00:01+0000")
    assert Version(first) < Version(committed(tmp_path / "tree", "second")) < Version(RELEASE)
    assert committed(tmp_path / "tree", "third", "other", f"v{RELEASE}") == RELEASE
    (tmp_path / "tree" / "PKG-INFO").write_text("Metadata-Version: 2.4\nVersion: 9.8.7\n\nVersion: 1\n")
    assert version(tmp_path / "tree") == "9.8.7"


@pytest.mark.parametrize("name", FILES)
def test_a_version_that_is_forgotten_in_one_file_is_told(tree, name):
    text = (tree / name).read_text()
    (tree / name).write_text(text.replace(RELEASE, "9.8.7", 1))
    with pytest.raises(release.Wrong, match=r"^(CHANGELOG.md|CITATION.cff): .*must be"):
        release.release()


def test_a_command_that_fails_is_one_line(tmp_path):
    with pytest.raises(release.Wrong, match=r"exit code 3: what is wrong$"):
        release.run(sys.executable, "-c", "print('what is wrong'); exit(3)", cwd=tmp_path)


def test_a_python_that_is_not_there_is_none():
    assert release.interpreter("3.999") is None


def test_a_python_that_is_in_an_image_alone_is_found_there(monkeypatch, tmp_path):
    docker = tmp_path / "docker"
    docker.write_text(
        "#!/bin/sh\n"
        "case $* in *' ls '*) echo cpsched/bundle:24.11 cpsched/bundle:26.05 ;;"
        " *' cpsched/bundle:24.11 python3 '*) echo Python 3.13.5 ;; *) echo Python 3.14.7 ;; esac\n"
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert release.image("3.13") == "cpsched/bundle:24.11"
    assert release.image("3.14") == "cpsched/bundle:26.05"
    assert release.image("3.1") is None
    docker.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release.image("3.14") is None


def test_an_installed_program_of_another_version_or_that_replays_nothing_is_wrong(monkeypatch, tmp_path):
    answers = {"--version": "cpsched 0.1.0\n", "--json": '{"jobs": 8}'}
    monkeypatch.setattr(release, "OUT", tmp_path)

    def run(*command, cwd=None):
        if command[1] == "venv":
            Path(command[-1]).mkdir()
        return answers.get(command[-1], "")

    monkeypatch.setattr(release, "run", run)
    python = Path(sys.executable)
    release.installs_and_runs(python, Path("some.whl"), "0.1.0")
    for wrong in ({"--version": "cpsched 0.0.9\n"}, {"--json": '{"jobs": 7}'}):
        shutil.rmtree(next(tmp_path.iterdir()))
        kept = dict(answers)
        answers.update(wrong)
        with pytest.raises(release.Wrong, match=r"must be cpsched 0\.1\.0|did not replay all 8 jobs"):
            release.installs_and_runs(python, Path("some.whl"), "0.1.0")
        answers.update(kept)


def test_without_any_python_it_is_no_success(monkeypatch, capsys):
    monkeypatch.setattr(release, "built", lambda: Path("cpsched-0.1.0-py3-none-any.whl"))
    monkeypatch.setattr(release, "image", lambda name: None)
    assert release.main(["3.999"]) == 1
    assert "no Python was found" in capsys.readouterr().err
