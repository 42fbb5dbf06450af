"""Runs many replays side by side: each in a process of this machine, or on a Dask cluster.

A process of its own buys that a replay that crashes, runs out of memory or raises loses nothing but itself. All of them
are forked by a server, a fresh process that has imported what a replay needs and done nothing else: so no state of this
process leaks into a replay, and only the first one waits for the imports, which take most of a second.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Literal, Protocol

from typing_extensions import override

from cpsched.errors import CpschedError
from cpsched_sim.watchdog import LIMIT_S, watched

Tell = Callable[..., None]
"""Called with (done, total) of a replay, or without words: that there is progress."""
Work = Callable[[Any, Tell], Any]
"""Does one task. A function of a module: it travels to other processes by name, the task by its content."""
Fractions = Callable[[float, int], None]
"""Called with (replays done, parts included; replays in all)."""
SHARE_EVERY = 0.01
_IMPORTED_ONCE = (
    "__main__", "cpsched_sim.experiments.runner", "cpsched.kernels", "cpsched_sim.simulation", "cpsched_sim.offline_dispatcher",  # noqa: E501
    "cpsched_sim.cluster.replay", "numba",
)  # fmt: skip
"""What the server imports before it forks. Every replay calls kernels, which need Numba."""


@dataclass(frozen=True, slots=True)
class Failed:
    """What comes of a task that has no result."""

    why: str
    kind: Literal["raised", "died", "late"] = "raised"
    """late: it was ended after its time."""
    wall_s: float | None = None
    """Since its process began it."""
    cpu_s: float | None = None
    """What it had used when it was ended; known of late ones alone."""
    share: float = 0.0
    """How much of it was done."""

    def __str__(self) -> str:
        return self.why

    @classmethod
    def died(cls, exit_code: int | None, wall_s: float | None = None) -> Failed:
        """Of a process that ended without its last word."""
        return cls(f"its process died with exit code {exit_code}", "died", wall_s)

    @classmethod
    def late(cls, wall_s: float | None = None, cpu_s: float | None = None) -> Failed:
        """Of a process that was ended after its time."""
        return cls("it took too long", "late", wall_s, cpu_s)


Heard = Callable[[int, Any], None]
"""Called with the number of a task and the share of it that is done (float), `Failed`, or its result."""


class Engine(Protocol):
    """What does tasks somewhere. Any exception, Ctrl-C included, ends what is under way."""

    def __call__(
        self, work: Work, tasks: Mapping[int, Any], heard: Heard, looked: Callable[[], None], limit_s: float = math.inf
    ) -> None:
        """Do all of them, each in at most `limit_s`. `looked` is called about once a second."""


def run_all(
    work: Work,
    tasks: Mapping[int, Any],
    engine: Engine,
    on_result: Heard,
    progress: Fractions | None = None,
    done: int = 0,
    limit_s: float = math.inf,
) -> None:
    """Do all tasks. `on_result` is called with each result at once; `done` tasks were done before, for `progress`."""
    shares = dict.fromkeys(tasks, 0.0)

    def heard(at: int, message: Any) -> None:
        if isinstance(message, float):
            shares[at] = max(shares[at], message)
            return
        on_result(at, replace(message, share=shares[at]) if isinstance(message, Failed) else message)
        shares[at] = 1.0

    def looked() -> None:
        if progress is not None:
            progress(done + sum(shares.values()), done + len(shares))

    looked()
    if tasks:
        engine(work, tasks, heard, looked, limit_s)
        looked()


def outcome_of(work: Work, task: Any, patience_s: float, send: Callable[[float], object]) -> Any:
    """What comes of a task in this process; `send` gets the share that is done, now and then.

    What a plug-in prints goes to standard error, and one that hangs is ended.
    """
    told = 0.0

    def tell(*done: float) -> None:
        nonlocal told
        if len(done) == 2 and (share := done[0] / max(1, done[1])) >= told + SHARE_EVERY:
            told = share
            send(min(0.999, share))

    began_s = time.monotonic()
    try:
        with watched(patience_s) as patient:
            return work(task, patient.and_tell(tell))
    except BrokenPipeError:
        raise
    except Exception as error:
        on_purpose = isinstance(error, CpschedError) and str(error)
        why = str(error) if on_purpose else f"{type(error).__name__}: {error}"
        return Failed(why, wall_s=time.monotonic() - began_s)


@dataclass(frozen=True, slots=True)
class Processes(Engine):
    """The engine that is always there: at most `count` processes of this machine at once.

    A process ends with its task, unless they are to `reuse` them: loading kernels takes longer than a short replay.
    """

    count: int = 2
    patience_s: float = LIMIT_S
    reuse: bool = False

    @override
    def __call__(
        self, work: Work, tasks: Mapping[int, Any], heard: Heard, looked: Callable[[], None], limit_s: float = math.inf
    ) -> None:
        waiting = list(tasks)[::-1]
        running: dict[Connection, _Child] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.count:
                    at = waiting.pop()
                    _begin(running, at, (work, tasks[at], self.patience_s))
                for pipe in wait(list(running), timeout=1.0):
                    assert isinstance(pipe, Connection)
                    child = running[pipe]
                    message = _received(pipe, child)
                    heard(child.at, message)
                    if isinstance(message, float):
                        continue
                    if self.reuse and waiting and child.process.is_alive():
                        child.at, child.began_s = waiting.pop(), time.monotonic()
                        with suppress(OSError):  # where it died, that is heard next
                            pipe.send(tasks[child.at])
                    else:
                        del running[pipe]
                        _end(child.process)
                for pipe, child in list(running.items()):
                    if (wall_s := time.monotonic() - child.began_s) > limit_s:
                        cpu_s = _cpu_s(child.process)
                        _end(child.process)
                        del running[pipe]
                        heard(child.at, Failed.late(wall_s, cpu_s))
                looked()
        finally:
            for child in running.values():
                _end(child.process)


@dataclass(slots=True)
class _Child:
    process: ForkServerProcess
    at: int
    began_s: float


def _begin(running: dict[Connection, _Child], at: int, given: tuple[Work, Any, float]) -> None:
    """Start a process with its first task."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(_IMPORTED_ONCE))  # no effect on a server that runs already
    ours, theirs = server.Pipe()
    process = server.Process(target=_begun, args=(dict(os.environ), *given, theirs), daemon=True)
    with _interrupts_held():
        process.start()
        running[ours] = _Child(process, at, time.monotonic())
    theirs.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is through; a process started in it never sees one, its parent ends it.

    The mask is for the process (masks are inherited), the handler for this one, whose other threads a signal may
    reach in spite of the mask. The resource tracker is started first because its start would lift the mask.
    """
    resource_tracker.ensure_running()
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if held:
            signal.raise_signal(signal.SIGINT)


def _received(pipe: Connection, child: _Child) -> object:
    """What a process sent."""
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        child.process.join()
        return Failed.died(child.process.exitcode, time.monotonic() - child.began_s)


def _end(process: ForkServerProcess) -> None:
    """End a process and whatever it forked: it leads a group of its own, in which forks stay unless they leave it."""
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # one that has just begun leads no group yet
    process.join()


def _cpu_s(process: ForkServerProcess) -> float | None:
    """The CPU time of a process until now, in seconds; None where the system does not report it."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


def _begun(environment: Mapping[str, str], work: Work, task: Any, patience_s: float, pipe: Connection) -> None:
    """Do tasks in the environment of the process that asks; the server has the one of its own beginning.

    Of the processes that a plug-in forks none can speak for this one, nor hide that it died, nor outlive it.
    """
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(2, 1)  # standard output is the command's
    _end_without(pipe)
    os.register_at_fork(after_in_child=pipe.close)
    with suppress(BrokenPipeError, EOFError):
        while True:
            pipe.send(outcome_of(work, task, patience_s, pipe.send))
            task = pipe.recv()


def _end_without(pipe: Connection) -> None:
    """End this process, and what it forked, when the other end is gone: the process that asked was killed."""
    gone = select.poll()
    gone.register(pipe, 0)  # errors are reported unasked, and the end of the other end is one

    def wait() -> None:
        gone.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
