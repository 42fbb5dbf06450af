import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import cpsched
from cpsched.package_imports import warn_if_installations_differ

ROOT = Path(cpsched.__file__).parents[1]


@pytest.mark.parametrize("package", ["cpsched_sim", "cpsched_bridge"])
def test_mixed_installation_gives_one_warning(tmp_path, package):
    """As in a clone's folder, which shadows the core of the installed packages."""
    shutil.copytree(ROOT / "cpsched", tmp_path / "cpsched", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", f"import {package}"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    assert shown.count("two copies of cpsched are mixed") == 1
    assert f"cpsched is from {tmp_path}, another package from {ROOT}" in shown


@pytest.mark.parametrize("folder", ["", "sim", "bridge"])
def test_consistent_installation_gives_no_warning(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_installations_differ(str(ROOT / folder / "cpsched_other" / "__init__.py"))
