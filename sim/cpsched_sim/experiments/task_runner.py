"""Run many replays in parallel, in processes on this machine or on a Dask cluster.

Each replay has its own process. A replay that crashes, runs out of memory or raises an exception does not affect the
others. All processes are forked by a server, a fresh process that has imported only the modules needed by replays.
Therefore, no state of this process affects a replay, and only the first replay waits for the imports (almost a second).
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
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S, watch_plugins

Tell = Callable[..., None]
"""A replay's callback. It is called with (done, total), or without arguments to report only that work continues."""
Work = Callable[[Any, Tell], Any]
"""A function that runs one task. It must be defined at module level, because other processes import it by name."""
Fractions = Callable[[float, int], None]
"""A callback that receives the number of finished replays, including fractions, and the total number of replays."""
PROGRESS_SHARE_STEP = 0.01
_PRELOADED_MODULES = (
    "__main__",
    "cpsched.kernels",
    "cpsched.jit.numba_struct_types",  # imports Numba, which takes most of the time
    "cpsched_sim.clairvoyant_policies",
    "cpsched_sim.simulation",
    "cpsched_sim.cluster.replay",
    "cpsched_sim.experiments.task_runner",
)
"""Modules that the server imports before it forks: what every replay needs."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The outcome of a task without a result."""

    why: str
    kind: Literal["raised", "died", "late"] = "raised"
    """"raised": the task raised an exception. "died": its process ended without a result. "late": it exceeded its time
    limit.
    """
    wall_s: float | None = None
    """Wall-clock time in seconds since its process started."""
    cpu_s: float | None = None
    """CPU time in seconds when the task was killed. It is known only for a late task."""
    share: float = 0.0
    """The fraction of the task that was completed."""

    def __str__(self) -> str:
        return self.why

    @classmethod
    def from_exit_code(cls, exit_code: int | None, wall_s: float | None = None) -> TaskFailure:
        """Return the outcome of a process that ended without a result."""
        return cls(f"its process died with exit code {exit_code}", "died", wall_s)

    @classmethod
    def from_timeout(cls, wall_s: float | None = None, cpu_s: float | None = None) -> TaskFailure:
        """Return the outcome of a process that exceeded its time limit."""
        return cls("it exceeded its time limit", "late", wall_s, cpu_s)


TaskCallback = Callable[[int, Any], None]
"""A callback that receives a task's number, and either the fraction done (float), a `TaskFailure` or the result."""


class TaskExecutor(Protocol):
    """A runner of tasks. Any exception, including Ctrl-C, ends the running tasks."""

    def __call__(
        self,
        work: Work,
        tasks: Mapping[int, Any],
        on_result: TaskCallback,
        on_poll: Callable[[], None],
    ) -> None:
        """Run all tasks. Call `on_poll` about once a second."""


def run_tasks(
    work: Work,
    tasks: Mapping[int, Any],
    engine: TaskExecutor,
    on_result: TaskCallback,
    progress: Fractions | None = None,
) -> None:
    """Run all tasks and pass each result to `on_result` immediately."""
    shares = dict.fromkeys(tasks, 0.0)

    def on_message(at: int, message: Any) -> None:
        if isinstance(message, float):
            shares[at] = max(shares[at], message)
            return
        on_result(at, replace(message, share=shares[at]) if isinstance(message, TaskFailure) else message)
        shares[at] = 1.0

    def on_poll() -> None:
        if progress is not None:
            progress(sum(shares.values()), len(shares))

    on_poll()
    if tasks:
        engine(work, tasks, on_message, on_poll)
        on_poll()


def execute_task(work: Work, task: Any, stall_limit_s: float, send: Callable[[float], object]) -> Any:
    """Run a task in this process. `send` periodically receives the fraction done.

    A plug-in's output is redirected to standard error, and a hanging plug-in is stopped.
    """
    reported = 0.0

    def report_task_progress(*done: float) -> None:
        nonlocal reported
        if len(done) == 2 and (share := done[0] / max(1, done[1])) >= reported + PROGRESS_SHARE_STEP:
            reported = share
            send(min(0.999, share))

    began_s = time.monotonic()
    try:
        with watch_plugins(stall_limit_s) as patient:
            return work(task, patient.resetting_callback(report_task_progress))
    except BrokenPipeError:
        raise
    except Exception as error:
        on_purpose = isinstance(error, CpschedError) and str(error)
        why = str(error) if on_purpose else f"{type(error).__name__}: {error}"
        return TaskFailure(why, wall_s=time.monotonic() - began_s)


@dataclass(frozen=True, slots=True)
class LocalProcessExecutor(TaskExecutor):
    """The default executor: at most `count` processes on this machine at a time.

    A process ends after its task unless `reuse` is set. Reuse saves time, because loading kernels takes longer than a
    short replay.
    """

    count: int = 2
    stall_limit_s: float = STALL_TIMEOUT_S
    reuse: bool = False
    limit_s: float = math.inf
    """Maximum wall-clock time of a task in seconds."""

    @override
    def __call__(
        self,
        work: Work,
        tasks: Mapping[int, Any],
        on_result: TaskCallback,
        on_poll: Callable[[], None],
    ) -> None:
        waiting = list(tasks)[::-1]
        running: dict[Connection, _TaskProcess] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.count:
                    at = waiting.pop()
                    _start_process(running, at, (work, tasks[at], self.stall_limit_s))
                for pipe in wait(list(running), timeout=1.0):
                    assert isinstance(pipe, Connection)
                    child = running[pipe]
                    message = _receive_message(pipe, child)
                    on_result(child.at, message)
                    if isinstance(message, float):
                        continue
                    if self.reuse and waiting and child.process.is_alive():
                        child.at, child.began_s = waiting.pop(), time.monotonic()
                        with suppress(OSError):  # if the process has died, the pipe reports this next
                            pipe.send(tasks[child.at])
                    else:
                        del running[pipe]
                        _kill_process_group(child.process)
                for pipe, child in list(running.items()):
                    if (wall_s := time.monotonic() - child.began_s) > self.limit_s:
                        cpu_s = _read_cpu_s(child.process)
                        _kill_process_group(child.process)
                        del running[pipe]
                        on_result(child.at, TaskFailure.from_timeout(wall_s, cpu_s))
                on_poll()
        finally:
            for child in running.values():
                _kill_process_group(child.process)


@dataclass(slots=True)
class _TaskProcess:
    process: ForkServerProcess
    at: int
    began_s: float


def _start_process(running: dict[Connection, _TaskProcess], at: int, given: tuple[Work, Any, float]) -> None:
    """Start a process, and send it its first task."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(_PRELOADED_MODULES))  # has no effect if the server is already running
    ours, theirs = server.Pipe()
    process = server.Process(target=_run_with_parent_environment, args=(dict(os.environ), *given, theirs), daemon=True)
    with _block_interrupts():
        process.start()
        running[ours] = _TaskProcess(process, at, time.monotonic())
    theirs.close()


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block Ctrl-C within the `with` block. Processes started there never receive it.

    Processes inherit the signal mask. The handler is for this process, because a signal may reach its other threads
    despite the mask. The resource tracker is started first, because its start would remove the mask.
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


def _receive_message(pipe: Connection, child: _TaskProcess) -> object:
    """Return the next message from a process."""
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        child.process.join()
        return TaskFailure.from_exit_code(child.process.exitcode, time.monotonic() - child.began_s)


def _kill_process_group(process: ForkServerProcess) -> None:
    """End a process and its children, unless they have left its process group."""
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # a process that has just started may not have its own group yet
    process.join()


def _read_cpu_s(process: ForkServerProcess) -> float | None:
    """Return a process's CPU time in seconds, or None if it is unknown."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


def _run_with_parent_environment(
    environment: Mapping[str, str], work: Work, task: Any, stall_limit_s: float, pipe: Connection
) -> None:
    """Run tasks with the parent's environment. The server's may be outdated.

    A plug-in's child processes cannot send messages for this process, hide its end, or outlive it.
    """
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(2, 1)  # only the command itself writes to standard output
    _exit_with_parent(pipe)
    os.register_at_fork(after_in_child=pipe.close)
    with suppress(BrokenPipeError, EOFError):
        while True:
            pipe.send(execute_task(work, task, stall_limit_s, pipe.send))
            task = pipe.recv()


def _exit_with_parent(pipe: Connection) -> None:
    """End this process and its children once the parent process has ended."""
    gone = select.poll()
    gone.register(pipe, 0)  # poll() always reports errors such as a closed pipe, even with an empty event mask

    def wait() -> None:
        gone.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
