"""Run child processes that are connected by a socket and end with the bridge.

`SocketChildProcess` is the bridge's end; a child calls `prepare_child_process` first.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

from cpsched_sim.program_runner import kill_with_parent

STALL_TIMEOUT_S = 600.0
"""Seconds without progress after which a starting child counts as hung.

Start-up (imports, compilation) has no other limit, because a busy machine may be slow.
"""


class SocketChildProcess:
    """A process `python -m MODULE FD PARENT_PID WORDS...` and the bridge's socket.

    Raises `OSError` if the process cannot be started.
    """

    def __init__(self, module: str, *text: str, environment: Mapping[str, str] | None = None) -> None:
        self.channel, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid()), *text],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=None if environment is None else {**os.environ, **environment},
                start_new_session=True,
            )
        except OSError:
            self.channel.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def is_alive(self, wait_s: float = 0.0) -> bool:
        """Wait up to `wait_s` seconds for the process to end. Return whether it is alive."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> int:
        """Kill the process unless it has ended. Return its exit status."""
        self.channel.close()
        self._process.kill()
        return self._process.wait()


def prepare_child_process(parent: int) -> None:
    """Prepare a child: end with the parent, ignore Ctrl-C, and print only to stderr."""
    kill_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries and plug-ins may print; the socket must stay clean
