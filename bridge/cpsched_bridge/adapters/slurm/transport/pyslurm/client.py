"""The bridge's side of the pyslurm child: calls with deadlines, a child that hangs is killed, a dead one replaced."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import Any

from cpsched_bridge.adapters.slurm.transport.pyslurm import wire
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused

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
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.starts = 0
        """Children started so far."""

    @property
    def pid(self) -> int | None:
        """The child's process id, if there is one."""
        return self._process.pid if self._process else None

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
            raise BackendTimeout(f"{name}: the pyslurm process died (exit status {status}): {error}") from error
        except ValueError as error:
            self.close()
            raise BackendUnavailable(f"{name}: the pyslurm process sent no message: {error}") from error
        if "error" in reply:
            raise ERRORS[reply["error"]](f"{name}: {reply['detail']}")
        return reply["result"]

    def _running(self) -> socket.socket:
        """A channel to a live child, which is started if there is none."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._channel is None:
            self._start()
        assert self._channel is not None
        return self._channel

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "cpsched_bridge.adapters.slurm.transport.pyslurm.child",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    self._module,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=None if self._environment is None else {**os.environ, **self._environment},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise BackendUnavailable(f"the pyslurm process cannot be started: {error}") from error
        finally:
            theirs.close()
        self._channel = ours
        self.starts += 1

    def close(self) -> int | None:
        """Kill the child; returns its exit status, if there was a child."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is None:
            return None
        self._process.kill()
        status = self._process.wait()
        self._process = None
        return status
