"""How time passes at a simulated site."""

import time

from cpsched.jit import compile_progress
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.adapters.mock.simulated_clocks import EventDrivenClock
from tests.builders import a_cluster


def test_clock_stops_during_kernel_compilation():
    """So that no decision is charged with it, and the live part of a demo is as long as promised."""
    pace = EventDrivenClock(MockCluster(a_cluster(), []))
    began_s = time.perf_counter()
    before_s = pace.monotonic_s()
    with compile_progress.measure_compilation():
        time.sleep(0.2)
    passed_s = pace.monotonic_s() - before_s
    assert time.perf_counter() - began_s - passed_s >= 0.2
