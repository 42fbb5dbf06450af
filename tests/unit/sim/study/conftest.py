"""Tests of studies write dispatchers of the same names, each into a folder of its own."""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_dispatcher_of_another_test():
    for name in ("mine", "helper"):
        sys.modules.pop(name, None)
