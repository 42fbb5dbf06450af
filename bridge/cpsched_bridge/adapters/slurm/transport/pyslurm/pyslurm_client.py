"""Call the pyslurm child with deadlines, and replace a hung or dead child.

A call's deadline applies only to its answer. Importing pyslurm in the child may take a long time on a slow machine. The
import has its own time limit, and each call waits for only a part of it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from typing import Any

from cpsched_bridge.adapters.slurm.transport.pyslurm import wire_protocol
from cpsched_bridge.errors import (
    BackendDied,
    BackendError,
    BackendStartFailed,
    BackendStarting,
    BackendTimeout,
    BackendUnavailable,
    CommandRefused,
)
from cpsched_bridge.socket_child_process import STALL_TIMEOUT_S, SocketChildProcess

CHILD_MODULE = "cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_worker"

START_TIMEOUT_S = 20.0
"""Maximum time in seconds that a call waits for a starting child. The next call continues to wait."""
READ_TIMEOUT_S = 5.0
"""Time limit in seconds for reading an answer that has begun to arrive."""

ERRORS: dict[str, type[BackendError]] = {
    "unavailable": BackendUnavailable,
    "timeout": BackendTimeout,
    "refused": CommandRefused,
}


class PyslurmClient:
    """A client that runs one child process at a time, started on first use.

    Calls come from one thread, which outlives the child.
    """

    def __init__(self, module: str = "pyslurm", environment: dict[str, str] | None = None) -> None:
        self._module = module
        self._environment = environment
        self._child: SocketChildProcess | None = None
        self._asked, self._deadline_s, self._until_s = "", 0.0, 0.0
        self._started_s, self._has_begun = 0.0, False
        self.starts = 0
        """Number of child processes started so far."""

    @property
    def pid(self) -> int | None:
        """Return the child's process id, or None if there is no child."""
        return None if self._child is None else self._child.pid

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        """Return the child's answer to a call.

        Raise `BackendError` on failure, or if no answer arrives within `deadline_s` seconds. If the child is still
        starting, raise `BackendStarting` and send nothing.
        """
        self.send_call(name, deadline_s, **arguments)
        return self.receive_answer()

    def send_call(self, name: str, deadline_s: float, **arguments: Any) -> None:
        """Send a call without waiting for its result.

        `receive_answer` returns the result within `deadline_s` seconds.
        """
        if not self.wait_until_ready(START_TIMEOUT_S):
            raise BackendStarting(f"{name}: not sent yet: {self.not_ready_reason()}")
        self._asked = name
        self._deadline_s, self._until_s = deadline_s, time.monotonic() + deadline_s
        with self._stop_child_and_raise():
            if self._child is None:
                raise wire_protocol.WorkerChannelClosed("the process has already ended")
            self._child.channel.settimeout(deadline_s)
            wire_protocol.send_frame(self._child.channel, {"call": name, "arguments": arguments})

    def not_ready_reason(self) -> str | None:
        """Return what the child must do before its first call, or None if it is ready.

        Raise the same errors as `wait_until_ready`.
        """
        if self.wait_until_ready(0.0):
            return None
        return f"the pyslurm process has been importing pyslurm for {time.monotonic() - self._started_s:.0f} s"

    def wait_until_ready(self, wait_s: float) -> bool:
        """Return whether the child is ready within `wait_s` seconds.

        Start a child if needed. Raise `BackendStartFailed` if the child cannot start, or is not ready within
        `STALL_TIMEOUT_S` seconds.
        """
        channel = self._ensure_child_channel()
        if self._has_begun:
            return True
        left_s = self._started_s + STALL_TIMEOUT_S - time.monotonic()
        if select([channel], (), (), max(0.0, min(wait_s, left_s)))[0]:
            try:
                self._has_begun = (
                    wire_protocol.receive_frame(channel, time.monotonic() + READ_TIMEOUT_S) == wire_protocol.READY_FRAME
                )
            except (wire_protocol.WorkerChannelClosed, OSError, ValueError) as error:
                raise BackendStartFailed(f"the pyslurm process ended (exit status {self.close()}): {error}") from error
        elif left_s <= wait_s:
            self.close()
            raise BackendStartFailed(f"the pyslurm process did not import pyslurm within {STALL_TIMEOUT_S:g} s; killed")
        return self._has_begun

    def receive_answer(self) -> Any:
        """Wait until the last call's deadline for its result, and return it.

        Raise the same errors as `call`.
        """
        with self._stop_child_and_raise():
            if self._child is None:
                raise wire_protocol.WorkerChannelClosed("the process has already ended")
            reply = wire_protocol.receive_frame(self._child.channel, self._until_s)
        if "error" in reply:
            raise ERRORS[reply["error"]](f"{self._asked}: {reply['detail']}")
        return reply["result"]

    @contextmanager
    def _stop_child_and_raise(self) -> Iterator[None]:
        """Stop a child that fails to answer, and raise the call's error."""
        name = self._asked
        try:
            yield
        except TimeoutError:
            self.close()
            raise BackendTimeout(
                f"{name}: no response from the pyslurm process within {self._deadline_s:g} s; killed"
            ) from None
        except (wire_protocol.WorkerChannelClosed, OSError) as error:
            status = self.close()
            raise BackendDied(f"{name}: the pyslurm process died (exit status {status}): {error}") from error
        except ValueError as error:
            self.close()
            raise BackendUnavailable(f"{name}: the pyslurm process sent an invalid message: {error}") from error

    def _ensure_child_channel(self) -> socket.socket:
        """Return the channel to a live child. Start a child if needed."""
        if self._child is not None and not self._child.is_alive():
            self.close()
        if self._child is None:
            try:
                self._child = SocketChildProcess(CHILD_MODULE, self._module, environment=self._environment)
            except OSError as error:
                raise BackendStartFailed(f"the pyslurm process cannot start: {error}") from error
            self._started_s, self._has_begun = time.monotonic(), False
            self.starts += 1
        return self._child.channel

    def close(self) -> int | None:
        """Kill the child and return its exit status. Return None if there is no child."""
        if self._child is None:
            return None
        status = self._child.kill()
        self._child = None
        return status
