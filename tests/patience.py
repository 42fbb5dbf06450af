"""Time limits for events that take no noticeable time on an idle machine."""

import time
from collections.abc import Callable
from pathlib import Path

ENOUGH_S = 600.0
"""For a heavily loaded machine; only a failing test waits this long."""


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true; fail after `ENOUGH_S`."""
    last_s = time.monotonic() + ENOUGH_S
    while not holds():
        assert time.monotonic() < last_s, "no result in time"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Return whether the process is dead. A zombie of another parent counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
