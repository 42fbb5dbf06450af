"""Test that the wheel contains the files that an administrator needs, and no tests."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cpsched_bridge.program.command_help import EXAMPLES
from cpsched_bridge.program.deploy_files import FILES, read_adapted_content
from tests.patience import ENOUGH_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel of this tree without a network, and return its path."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=ENOUGH_S)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_installed_program_writes_deployment_files(wheel, tmp_path):
    site, out = tmp_path / "site", tmp_path / "out"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(pip, check=True, capture_output=True, timeout=ENOUGH_S)
    done = subprocess.run(
        [sys.executable, "-m", "cpsched_bridge.program.cli", "deploy-files", out],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=ENOUGH_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for file in FILES:
        assert (out / file.name).read_bytes() == read_adapted_content(file), "as from the clone"
        assert (out / file.name).stat().st_mode & 0o777 == file.mode
    assert (out / "README.md").exists()


def test_wheel_contains_three_packages_without_tests_or_traces(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {
        "cpsched",
        "cpsched_sim",
        "cpsched_bridge",
    }
    shared = [name for name in names if ".data/" in name]
    assert all(".data/data/share/man/man1/cpsched" in name for name in shared)
    assert len(shared) == 1 + len(EXAMPLES)
    made = (".gz", ".swf", ".pyc", ".nbi", ".nbc")
    assert not [name for name in names if name.split("/")[-1].startswith("test_") or name.endswith(made)]
    assert {f"{package}/py.typed" for package in ("cpsched", "cpsched_sim", "cpsched_bridge")} <= set(names)
