"""The examples in docstrings produce the stated results."""

import doctest
import importlib
import pkgutil

import pytest

import cpsched

MODULES = sorted(m.name for m in pkgutil.walk_packages(cpsched.__path__, "cpsched.") if ".cp." not in m.name)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_are_correct(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
