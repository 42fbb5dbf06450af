"""Dispatchers of the same name are written by several tests here, too."""

from tests.unit.sim.study.conftest import no_dispatcher_of_another_test  # noqa: F401
