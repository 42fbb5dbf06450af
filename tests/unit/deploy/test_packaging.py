"""The version of a source tree, and recipes for package managers, which state its release and Python versions."""

import ast
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.version import Version

from deploy.version import RELEASE, ROOT, version

FOLDER = ROOT / "deploy" / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]


def test_spack_package_names_release_and_pythons():
    tree = ast.parse((FOLDER / "package.py").read_text())
    calls = {ast.unparse(node.func): ast.literal_eval(node.args[0]) for node in ast.walk(tree)
             if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)}  # fmt: skip
    assert (calls["version"], calls["license"]) == (RELEASE, PROJECT["license"])
    assert calls["depends_on"] == f"python@{PYTHONS[0]}:{PYTHONS[-1]}"


def test_easyconfig_names_release_and_supported_python():
    (path,) = FOLDER.glob("*.eb")
    tree = ast.parse(path.read_text())
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body
              if isinstance(node, ast.Assign)}  # fmt: skip
    assert path.name == "{name}-{version}-{toolchain[name]}-{toolchain[version]}.eb".format(**values)
    assert values["version"] == RELEASE
    ((program, python),) = values["dependencies"]
    assert program == "Python"
    assert python.rpartition(".")[0] in PYTHONS


def test_packages_require_glibc_of_their_python():
    found = re.search(r"^version=(\S+) .*glibc=(\S+)", (FOLDER / "build-python").read_text(), re.MULTILINE)
    version, glibc = found.groups()
    assert version in PYTHONS
    files = {
        FOLDER / "cpsched.spec": f"\nRequires: glibc >= {glibc}\n",
        FOLDER / "control": f"libc6 (>= {glibc})",
        ROOT / "docs" / "start.md": f"glibc {glibc}",
    }
    assert [file for file, words in files.items() if words not in file.read_text()] == []


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
def test_hosted_checks_run_on_oldest_and_newest_python(python):
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert {"target": "test", "python": python} in jobs["check"]["strategy"]["matrix"]["include"]


def test_hosted_workflows_run_make_targets():
    targets = set(re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())
    texts = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = {name for text in texts for name in re.findall(r"(?:- run: make |target: )([a-z-]+)", text)}
    assert used - targets == set()
    assert {"test", "release", "test-role"} <= used


def committed(tree, name, *tags):
    """The version of a new commit of the tree."""
    (tree / name).write_text(name)
    git = "git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b"
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", name], *(["tag", tag] for tag in tags)):
        subprocess.run([*git, *words], check=True)
    return version(tree)


def test_version_changes_with_every_commit(tmp_path, monkeypatch):
    """A wheel of the same version as the installed one would not be installed over it."""
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-25T13:00:00+0100")
    first = committed(tmp_path, "first")
    assert re.fullmatch(rf"{RELEASE}\.dev20261125120000\+g[0-9a-f]{{8}}", first)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-25T12:00:01+0000")
    assert Version(first) < Version(committed(tmp_path, "second")) < Version(RELEASE)
    assert committed(tmp_path, "third", "other", f"v{RELEASE}") == RELEASE
    monkeypatch.setenv("CPSCHED_RELEASE", RELEASE)  # `make release`, which builds before the tag
    assert committed(tmp_path, "fourth") == RELEASE
    monkeypatch.setenv("CPSCHED_RELEASE", "9.9.9")
    assert committed(tmp_path, "fifth").startswith(f"{RELEASE}.dev")
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nVersion: 9.8.7\n\nVersion: 1\n")
    assert version(tmp_path) == "9.8.7"


def test_version_without_git_is_package_digest(tmp_path):
    package = tmp_path / "cpsched"
    (package / "__pycache__").mkdir(parents=True)
    copied = version(tmp_path)
    assert re.fullmatch(rf"{RELEASE}\.dev0\+tree\.[0-9a-f]{{12}}", copied)
    (package / "__pycache__" / "a.pyc").write_text("compiled")
    assert version(tmp_path) == copied
    (package / "a.py").write_text("")
    assert version(tmp_path) != copied
