"""Fixtures for tests that write dispatchers with the same names to separate folders."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_dispatcher_of_another_test(tmp_path_factory):
    everybody_s = tmp_path_factory.getbasetemp()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).is_relative_to(everybody_s):
            del sys.modules[name]
