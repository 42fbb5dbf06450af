"""Share fixtures with the tests of the simulator."""

from tests.unit.sim.conftest import four_jobs

__all__ = ["four_jobs"]
