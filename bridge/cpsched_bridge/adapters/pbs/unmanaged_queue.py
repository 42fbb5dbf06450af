"""The queue of the jobs that are left to PBS: closed to PBS's own scheduler while the bridge sends starts.

`qrun` checks no room, and neither does the server when its scheduler runs a job. So one of the two must wait.

- A scheduler that was at work when the queue was closed may still start jobs of it. The server says when it is idle.
- A scheduler that begins later sees the queue closed.
- Opening a queue is no reason for PBS to look at it: PBS is made to look.

A bridge that dies in between leaves the queue closed. The next one opens it when it takes control, as `release-all`
does. If an operator closes it after that, it stays closed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Protocol

from cpsched_bridge.adapters.pbs.pbs_records import Record, text_of
from cpsched_bridge.adapters.pbs.translation.pbs_queues import is_true, why_unreadable
from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.errors import BackendError

LOOK_AGAIN_S = 0.05


class QueueReader(Protocol):
    """What is asked of `transport.pbs_reader.PbsReader`."""

    def queues(self) -> dict[str, Record]:
        """Queues alone."""
        ...

    def server(self) -> Record:
        """The server alone."""
        ...

    def schedulers(self) -> dict[str, Record]:
        """PBS's own schedulers."""
        ...


class UnmanagedQueue:
    """The queue `name`; empty: there is none."""

    def __init__(self, reader: QueueReader, tells: PbsCommands, name: str) -> None:
        self.name = name
        self._reader = reader
        self._tells = tells
        self._closed = bool(name)
        """Whether a bridge may have closed it: this one, or the one before."""

    @contextlib.contextmanager
    def closed(self, until_s: float) -> Iterator[str]:
        """Keep PBS's schedulers from the queue; why that could not be done before `until_s`, empty where it was."""
        try:
            yield self._close(until_s) if self.name else ""
        finally:
            self.reopen()

    def _close(self, until_s: float) -> str:
        try:
            if self._is_open(self._reader.queues().get(self.name)):
                self._closed = True
                self._tells.set_started(self.name, False)
            while is_at_work(self._reader.schedulers()):
                if time.monotonic() >= until_s:
                    return "PBS's own scheduler is at work"
                time.sleep(LOOK_AGAIN_S)
        except BackendError as error:
            return str(error)
        return ""

    def _is_open(self, record: Record | None) -> bool:
        return record is not None and (bool(why_unreadable(record)) or is_true(record, "started"))

    def reopen(self) -> str:
        """Open the queue if a bridge may have closed it; what is in the way of that, empty for nothing."""
        if not self._closed:
            return ""
        try:
            record = self._reader.queues().get(self.name)
            if record is not None and not is_true(record, "started"):
                self._tells.set_started(self.name, True)
                self.have_pbs_look()
        except BackendError as error:
            return f"queue {self.name} may still be closed: {error}"
        self._closed = False
        return ""

    def have_pbs_look(self) -> None:
        """Have PBS's own scheduler look at once: it takes an opened queue for no reason to (OpenPBS 23.06.06).

        A server that does not schedule is left so. Without an answer PBS looks later: at the next submission or end of
        a job, or after `scheduler_iteration`.
        """
        with contextlib.suppress(BackendError):
            if is_true(self._reader.server(), "scheduling"):
                self._tells.look()


def is_at_work(schedulers: Mapping[str, Record]) -> bool:
    """Whether any scheduler is in a cycle, which may start jobs by what it read before."""
    return any(text_of(each, "state").lower() == "scheduling" for each in schedulers.values())
