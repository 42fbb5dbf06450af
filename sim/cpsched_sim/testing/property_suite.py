"""The properties as tests of the dispatchers in `--cpsched-dispatcher`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cpsched_sim.testing.dispatcher_properties import PROPERTIES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Create one test per dispatcher and property."""
    names = metafunc.config.getoption("cpsched_dispatcher")
    metafunc.parametrize("dispatcher", names)
    metafunc.parametrize("promise", PROPERTIES, ids=[promise.__name__ for promise in PROPERTIES])


def test_dispatcher(dispatcher: str, promise: Callable[[str], None]) -> None:
    """Check one property of the dispatcher."""
    promise(dispatcher)
