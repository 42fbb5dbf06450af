"""Recipes for package managers: they parse, and name the release and the Pythons of this tree."""

import ast
import re
import tomllib

import pytest
import yaml

from deploy.version import RELEASE, ROOT

FOLDER = ROOT / "deploy" / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]


def test_the_spack_package_names_release_and_pythons():
    tree = ast.parse((FOLDER / "package.py").read_text())
    calls = {ast.unparse(node.func): ast.literal_eval(node.args[0]) for node in ast.walk(tree)
             if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)}  # fmt: skip
    assert calls["version"] == RELEASE
    assert calls["license"] == PROJECT["license"]
    assert calls["depends_on"] == f"python@{PYTHONS[0]}:{PYTHONS[-1]}"


def test_the_easyconfig_names_release_and_a_promised_python():
    (path,) = FOLDER.glob("*.eb")
    tree = ast.parse(path.read_text())
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body
              if isinstance(node, ast.Assign)}  # fmt: skip
    assert path.name == "{name}-{version}-{toolchain[name]}-{toolchain[version]}.eb".format(**values)
    assert values["version"] == RELEASE
    ((program, python),) = values["dependencies"]
    assert program == "Python"
    assert python.rpartition(".")[0] in PYTHONS


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
def test_hosted_checks_run_on_the_oldest_and_newest_python(python):
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert {"target": "test", "python": python} in jobs["check"]["strategy"]["matrix"]["include"]
