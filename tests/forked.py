"""Fork the bridge's children from this process, for tests that do not depend on how a child begins.

A child is `python -m MODULE ...`, which spends two seconds of CPU time on imports and on loading kernels. A forked
child inherits both from this process: `forks(monkeypatch)` makes `cpsched_bridge.child_server` fork. Tests of
what a child imports, compiles, reports, or dies of need real ones.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkProcess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from cpsched_bridge import child_server
from cpsched_sim.experiments import task_runner

if TYPE_CHECKING:
    import pytest


@cache
def _kernels_are_loaded() -> None:
    """Load the kernels once, so that no child has to."""
    import tests.opened  # noqa: F401


class Forked:
    """Like `subprocess.Popen` of `python -m MODULE ARG...`, as far as `cpsched_bridge.child_server` uses it."""

    def __init__(
        self,
        command: Sequence[str],
        stdin: int,
        pass_fds: Collection[int],
        env: Mapping[str, str] | None,
        start_new_session: bool,
    ) -> None:
        assert (command[:2], stdin, start_new_session) == ([sys.executable, "-m"], subprocess.DEVNULL, True)
        _kernels_are_loaded()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _be(command[2], list(command[3:]), set(pass_fds), env)
        self._ends = os.pidfd_open(self.pid)
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal; raise `subprocess.TimeoutExpired`."""
        if self._status is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked child", timeout or 0.0)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ends)
        return self._status

    def kill(self) -> None:
        """Send SIGKILL, unless it is known to have ended."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _be(module: str, words: list[str], kept: set[int], environment: Mapping[str, str] | None) -> NoReturn:
    """Turn this process into one that starts with this module, without inherited files, handlers or streams."""
    status = 1
    try:
        gc.freeze()  # what is collected here must not close descriptors by their old numbers
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        last = os.sysconf("SC_OPEN_MAX")
        for low, high in zip([2, *sorted(kept)], [*sorted(kept), last], strict=True):
            os.closerange(low + 1, high)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as exit:
        status = 0 if exit.code is None else exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


def forks(patch: pytest.MonkeyPatch) -> None:
    """Fork children from this process until the patch is undone."""
    begun = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    patch.setattr(child_server, "subprocess", begun)


_OURS: list[Connection] = []
"""Return the ends of pipes that the caller reads: a replay holding one would not notice a closed reader."""


class _Replay(ForkProcess):
    def run(self) -> None:
        for ours in _OURS:
            ours.close()
        super().run()


class _Forking(ForkContext):
    Process = _Replay  # type: ignore[assignment]

    def Pipe(self, duplex: bool = True) -> Any:  # noqa: N802
        ours, theirs = super().Pipe(duplex)
        _OURS.append(ours)
        return ours, theirs


def replays_fork() -> None:
    """Make the runner fork replays from this process."""
    context = _Forking()
    task_runner.multiprocessing = SimpleNamespace(get_context=lambda kind: context)  # type: ignore[attr-defined]
