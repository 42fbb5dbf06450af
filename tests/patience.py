"""Time limits for events that take no noticeable time on an idle machine."""

import time
from collections.abc import Callable

ENOUGH_S = 600.0
"""For a heavily loaded machine; only a failing test waits this long."""


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true; fail after `ENOUGH_S`."""
    last_s = time.monotonic() + ENOUGH_S
    while not holds():
        assert time.monotonic() < last_s, "no result in time"
        time.sleep(0.02)
