"""What these tests share with those of the simulator."""

from tests.unit.sim.conftest import four_jobs

__all__ = ["four_jobs"]
