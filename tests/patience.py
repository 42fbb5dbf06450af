"""How long tests wait for what comes at once on an idle machine."""

import time
from collections.abc import Callable

ENOUGH_S = 600.0
"""For a machine that has a hundred times as much to do: only a test that fails waits so long."""


def until(holds: Callable[[], object]) -> None:
    """Wait for it, and fail after `ENOUGH_S`."""
    last_s = time.monotonic() + ENOUGH_S
    while not holds():
        assert time.monotonic() < last_s, "no result in time"
        time.sleep(0.02)
