"""Background threads of the bridge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

ENDS_WITHIN_S = 10.0
"""Maximum time to wait for a thread at the end."""


@contextmanager
def run_in_background(name: str, work: Callable[[Event], None]) -> Iterator[None]:
    """Run `work` in a thread until the block ends. It must return soon after the event is set."""
    over = Event()
    thread = Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(ENDS_WITHIN_S)
