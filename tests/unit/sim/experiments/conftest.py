"""Fixtures for tests that write dispatchers with the same name."""

from tests.unit.sim.study.conftest import no_dispatcher_of_another_test  # noqa: F401
