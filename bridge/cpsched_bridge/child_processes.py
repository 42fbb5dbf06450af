"""Processes of the bridge's own at the other end of a socket: killed at will, and gone when the bridge is gone.

The two ends are here: `ChildProcess` on the bridge's side, and what a child does before anything else, `enter_child`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

STALL_TIMEOUT_S = 600.0
"""A child that begins, and shows no progress for so long, hangs.

What it begins with (imports, compiling) has no other limit: on a busy machine that takes as long as it takes.
"""

_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)  # loaded now: between a fork and what runs then, other threads' locks stay taken


class ChildProcess:
    """A running `python -m MODULE FD PARENT_PID WORDS...`, and the bridge's end of the socket between them.

    Raises `OSError` where no process can be started.
    """

    def __init__(self, module: str, *words: str, environment: Mapping[str, str] | None = None) -> None:
        self.channel, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid()), *words],
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
        """The process id."""
        return self._process.pid

    def alive(self, wait_s: float = 0.0) -> bool:
        """Whether the process still runs, after it has had `wait_s` seconds to end by itself."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> int:
        """End the process if it has not ended by itself; returns its exit status."""
        self.channel.close()
        self._process.kill()
        return self._process.wait()


def enter_child(parent: int) -> None:
    """What a child does first: it dies with its parent, leaves Ctrl-C to it, and prints on stderr only."""
    kill_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # libraries and plug-ins may print; nothing but the socket is ours


def kill_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
