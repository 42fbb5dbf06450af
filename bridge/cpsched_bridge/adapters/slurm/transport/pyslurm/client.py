"""The bridge's side of the pyslurm child: calls with deadlines, a child that hangs is killed, a dead one replaced."""

from __future__ import annotations

import socket
import time
from typing import Any

from cpsched_bridge.adapters.slurm.transport.pyslurm import wire
from cpsched_bridge.children import Child
from cpsched_bridge.errors import BackendDied, BackendError, BackendTimeout, BackendUnavailable, CommandRefused

CHILD = "cpsched_bridge.adapters.slurm.transport.pyslurm.child"

ERRORS: dict[str, type[BackendError]] = {
    "unavailable": BackendUnavailable,
    "timeout": BackendTimeout,
    "refused": CommandRefused,
}


class Client:
    """One child process at a time, started when first needed. Calls come from one thread, which outlives the child."""

    def __init__(self, module: str = "pyslurm", environment: dict[str, str] | None = None) -> None:
        self._module = module
        self._environment = environment
        self._child: Child | None = None
        self.starts = 0
        """Children started so far."""

    @property
    def pid(self) -> int | None:
        """The child's process id, if there is one."""
        return None if self._child is None else self._child.pid

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        """The answer of the child. Raises `BackendError`: also when no answer comes within `deadline_s` seconds."""
        until_s = time.monotonic() + deadline_s
        channel = self._running()
        try:
            channel.settimeout(deadline_s)
            wire.send(channel, {"call": name, "arguments": arguments})
            reply = wire.receive(channel, until_s)
        except TimeoutError:
            self.close()
            raise BackendTimeout(f"{name}: no answer from the pyslurm process in {deadline_s:g} s: killed") from None
        except (wire.Closed, OSError) as error:
            status = self.close()
            raise BackendDied(f"{name}: the pyslurm process died (exit status {status}): {error}") from error
        except ValueError as error:
            self.close()
            raise BackendUnavailable(f"{name}: the pyslurm process sent no message: {error}") from error
        if "error" in reply:
            raise ERRORS[reply["error"]](f"{name}: {reply['detail']}")
        return reply["result"]

    def _running(self) -> socket.socket:
        """A channel to a live child, which is started if there is none."""
        if self._child is not None and not self._child.alive():
            self.close()
        if self._child is None:
            try:
                self._child = Child(CHILD, self._module, environment=self._environment)
            except OSError as error:
                raise BackendUnavailable(f"the pyslurm process cannot be started: {error}") from error
            self.starts += 1
        return self._child.channel

    def close(self) -> int | None:
        """Kill the child; returns its exit status, if there was a child."""
        if self._child is None:
            return None
        status = self._child.kill()
        self._child = None
        return status
