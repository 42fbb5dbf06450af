"""The examples in docstrings produce the stated results."""

import doctest
import importlib
import pkgutil

import pytest

import cpsched
import cpsched_bridge
import cpsched_sim

MODULES = sorted(
    found.name
    for package in (cpsched, cpsched_bridge, cpsched_sim)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if ">>> " in (found.module_finder.find_spec(found.name).loader.get_source(found.name) or "")
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_are_correct(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
