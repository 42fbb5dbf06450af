"""Close the queue of unmanaged jobs while the bridge sends starts.

`qrun` does not check free amounts, and neither does the server when its scheduler runs a job. The bridge and PBS's
scheduler must therefore not start jobs at the same time.

- A scheduler cycle that began before the bridge closed the queue may still start jobs from it. The bridge waits until
  that cycle ends.
- A later cycle finds the queue closed.
- Opening a queue does not trigger a cycle, so the bridge triggers one.

If the bridge dies in the meantime, the queue stays closed until the next bridge takes control or `release-all` runs. A
queue that an operator closes later stays closed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

from cpsched_bridge.adapters.pbs.pbs_objects import PbsQueue, PbsServer
from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.errors import BackendError

POLL_INTERVAL_S = 0.05


class UnmanagedQueueGate:
    """The queue `name`, which this class opens and closes.

    An empty name means that there is no queue.
    """

    def __init__(self, reader: PbsStateReader, commands: PbsCommands, name: str) -> None:
        self.name = name
        self._reader = reader
        self._commands = commands
        self._is_open = bool(name)
        """Whether the queue was open at the last reading, or this bridge has tried to open it since."""
        self._may_be_closed = bool(name)
        """Whether this bridge or an earlier one may have closed the queue."""

    def record_reading(self, queues: Mapping[str, PbsQueue]) -> None:
        """Record whether the queue is open, so that `keep_closed` need not read it."""
        queue = queues.get(self.name)
        self._is_open = queue is not None and (bool(queue.unreadable) or queue.is_started)

    @contextlib.contextmanager
    def keep_closed(self, until_s: float) -> Iterator[str]:
        """Keep the queue closed within the context.

        Yield "", or the reason why it could not be closed by `until_s`.
        """
        closes = self._is_open
        try:
            yield self._close_queue(until_s) if self.name else ""
        finally:
            if closes:
                self._open()
            else:
                self.reopen()

    def _close_queue(self, until_s: float) -> str:
        try:
            if self._is_open:
                self._may_be_closed = True
                schedulers = self._commands.close_queue(self.name)
            else:
                schedulers = self._reader.read_schedulers()
            while any(scheduler.is_running for scheduler in schedulers.values()):
                if time.monotonic() >= until_s:
                    return "PBS's own scheduler is still running"
                time.sleep(POLL_INTERVAL_S)
                schedulers = self._reader.read_schedulers()
        except BackendError as error:
            return str(error)
        return ""

    def reopen(self) -> str:
        """Open the queue if a bridge may have closed it. Return the error, or ""."""
        if not self._may_be_closed:
            return ""
        try:
            queue = self._reader.read_queues().get(self.name)
        except BackendError as error:
            return self._describe_closed_queue(error)
        if queue is not None and not queue.is_started:
            return self._open()
        self._may_be_closed = False
        return ""

    def _open(self) -> str:
        self._is_open = True
        try:
            server = self._commands.open_queue(self.name)
        except BackendError as error:
            return self._describe_closed_queue(error)
        self._may_be_closed = False
        self.trigger_scheduling(server)
        return ""

    def _describe_closed_queue(self, error: BackendError) -> str:
        return f"queue {self.name} may still be closed: {error}"

    def trigger_scheduling(self, server: PbsServer) -> None:
        """Trigger a scheduler cycle, because opening a queue does not (OpenPBS 23.06.06).

        If `scheduling` is false, it stays false. If the command fails, PBS starts a cycle at the next job submission or
        job end, or after `scheduler_iteration`.
        """
        with contextlib.suppress(BackendError):
            if server.is_scheduling:
                self._commands.trigger_scheduling()
