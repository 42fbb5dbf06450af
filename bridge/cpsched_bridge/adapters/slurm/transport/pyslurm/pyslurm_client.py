"""Call the pyslurm child with deadlines.

Importing pyslurm in the child may take a long time on a slow machine. Each call waits for only a part of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cpsched_bridge.child_server import ChildProgram, ChildServer
from cpsched_bridge.errors import (
    BackendDied,
    BackendError,
    BackendStartFailed,
    BackendStarting,
    BackendTimeout,
    ChildDied,
    ChildStartFailed,
    ChildTimeout,
)

CHILD_MODULE = "cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_worker"

START_TIMEOUT_S = 20.0
"""Maximum time in seconds that a call waits for a starting child. The next call continues to wait."""


class PyslurmCall(NamedTuple):
    """A request to the child. It answers with plain values, or with a `BackendError`."""

    name: str
    arguments: dict[str, Any]


class PyslurmClient:
    """A client of one child process at a time, started on first use.

    Calls come from one thread, which outlives the child. `module` is the name of pyslurm.
    """

    def __init__(self, module: str = "pyslurm", environment: dict[str, str] | None = None) -> None:
        program = ChildProgram(CHILD_MODULE, "the pyslurm process", "importing pyslurm", environment)
        self._server = ChildServer(program, module)

    @property
    def pid(self) -> int | None:
        """Return the child's process id, or None if there is no child."""
        return self._server.pid

    @property
    def starts(self) -> int:
        """Number of child processes started so far."""
        return self._server.starts

    def call(self, name: str, deadline_s: float, **arguments: Any) -> Any:
        """Return the child's answer to a call.

        Raise `BackendError` on failure, or if no answer arrives within `deadline_s` seconds. If the child is still
        starting, raise `BackendStarting` and send nothing.
        """
        if not self.wait_until_ready(START_TIMEOUT_S):
            raise BackendStarting(f"{name}: not sent yet: {self.not_ready_reason()}")
        try:
            answer = self._server.call(PyslurmCall(name, arguments), deadline_s)
        except ChildTimeout as error:
            raise BackendTimeout(f"{name}: {error}") from error
        except ChildDied as error:
            raise BackendDied(f"{name}: {error}") from error
        if isinstance(answer, BackendError):
            raise type(answer)(f"{name}: {answer}")
        return answer

    def not_ready_reason(self) -> str | None:
        """Return what the child must do before its first call, or None if it is ready.

        Raise the same errors as `wait_until_ready`.
        """
        if self.wait_until_ready(0.0):
            return None
        return f"the pyslurm process has been importing pyslurm for {self._server.step_age_s:.0f} s"

    def wait_until_ready(self, wait_s: float) -> bool:
        """Return whether the child is ready within `wait_s` seconds.

        Start a child if needed. Raise `BackendStartFailed` if the child cannot start.
        """
        self._server.discard_ended_child()
        try:
            return self._server.wait_until_ready(wait_s)
        except ChildStartFailed as error:
            raise BackendStartFailed(str(error)) from error

    def close(self) -> int | None:
        """Kill the child and return its exit status. Return None if there is no child."""
        return self._server.close()
