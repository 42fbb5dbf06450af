"""Run tasks in processes on this machine, or on a Dask cluster (extra `dask`).

Only this module imports `distributed`.

A worker runs each task in its own process, so that time and memory limits apply and a crash does not end the worker. If
a worker dies, Dask assigns its tasks to another. Traces must have the same path on all machines, and workers check
their digests. `python -m cpsched_sim.experiments.dask_executor` runs one task.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import inf, isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

from typing_extensions import override

from cpsched.errors import escape_controls
from cpsched_sim.errors import InputError
from cpsched_sim.experiments.task_runner import (
    LocalProcessExecutor,
    TaskCallback,
    TaskExecutor,
    TaskFailure,
    Work,
    execute_task,
)
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S
from cpsched_sim.program_runner import kill_with_parent

MAX_WORKER_DEATHS = 3
"""Number of workers that may die while running a task before that task fails."""
_MAX_ERROR_CHARS = 300


def make_task_executor(
    on: str | None, processes: int, stall_limit_s: float = STALL_TIMEOUT_S, limit_s: float = inf
) -> TaskExecutor:
    """Return the executor for `--on`, or for local processes. Raise `InputError`.

    tcp://HOST:8786            the scheduler of a Dask cluster
    scheduler.json             a Dask scheduler file
    workers.py:make            a function in a file or module that returns a client, or a Dask cluster, which is
                               closed after the study; with `dask_jobqueue.SLURMCluster`, workers are Slurm jobs
    """
    if on is None:
        return LocalProcessExecutor(processes, stall_limit_s, limit_s=limit_s)
    return make_dask_executor(on, stall_limit_s, limit_s)


def make_dask_executor(on: str, stall_limit_s: float, limit_s: float = inf) -> DaskExecutor:
    """Return the executor for `--on`: an address, a scheduler file or a function.

    Raise `InputError`.
    """
    distributed, own = _import_distributed(), None
    try:
        if "://" in on:
            client = distributed.Client(on, timeout="15s", set_as_default=False)
        elif on.endswith(".json"):
            client = distributed.Client(scheduler_file=str(Path(on)), timeout="15s", set_as_default=False)
        else:
            made = _call_executor_factory(on)
            own = None if isinstance(made, distributed.Client) else made
            client = made if own is None else distributed.Client(made, timeout="15s", set_as_default=False)
    except Exception as error:  # a user's function may raise any exception
        if own is not None:
            own.close()
        raise InputError(f"--on {on}: {type(error).__name__}: {error}") from error
    return DaskExecutor(client, stall_limit_s, own, limit_s)


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InputError("--on requires distributed: pip install 'cpsched[dask]'") from error
    return distributed


def _call_executor_factory(name_or_path: str) -> Any:
    """Return the result of calling `module:function` or `file.py:function`."""
    made = _import_function(name_or_path)()
    if made is None:
        raise ValueError("the function must return a Dask cluster or a Dask client")
    return made


def _import_function(name_or_path: str) -> Callable[[], Any]:
    home, colon, name = name_or_path.rpartition(":")
    if not colon:
        raise ValueError("must be tcp://HOST:PORT, a scheduler file, or module:function")
    if not home.endswith(".py"):
        named: Callable[[], Any] = getattr(import_module(home), name)
        return named
    spec = spec_from_file_location("cpsched_study_cluster", home)
    if spec is None or spec.loader is None:
        raise ImportError(f"{home}: cannot be read")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], Any] = getattr(module, name)
    return found


@dataclass(frozen=True, slots=True)
class DaskExecutor(TaskExecutor):
    """A task executor on a Dask cluster, accessed through a client."""

    client: Any
    stall_limit_s: float
    own: Any = None
    """The cluster created for this study. It is closed at the end."""
    limit_s: float = inf
    """Maximum wall-clock time of a task in seconds."""

    @override
    def __call__(
        self,
        work: Work,
        tasks: Mapping[int, Any],
        on_result: TaskCallback,
        on_poll: Callable[[], None],
    ) -> None:
        distributed = _import_distributed()
        path = [each for each in sys.path if each]
        bound_s = self.limit_s if isfinite(self.limit_s) else None
        study = uuid4().hex  # task names must be unique, because the scheduler may serve other studies
        futures = dict[Any, int]()
        try:
            futures = {
                self.client.submit(
                    run_task_in_subprocess, pickle.dumps((work, task, self.stall_limit_s)), bound_s, path,
                    key=f"cpsched-{study}-{at}", pure=False, retries=MAX_WORKER_DEATHS,
                ): at
                for at, task in tasks.items()
            }  # fmt: skip
            left = set(futures)
            while left:
                try:
                    with self.client.as_current():
                        finished = distributed.wait(left, timeout=1.0, return_when="FIRST_COMPLETED").done
                except (TimeoutError, distributed.TimeoutError):
                    finished = set()
                for future in finished:
                    on_result(futures[future], _result_of_future(future))
                    future.release()
                left -= finished
                on_poll()
        finally:
            try:
                self.client.cancel([future for future in futures if not future.done()], force=True)
                self.client.close()
            finally:
                if self.own is not None:
                    self.own.close()


def _result_of_future(future: Any) -> Any:
    if future.status != "finished":
        error = future.exception() if future.status == "error" else None
        why = f"{type(error).__name__}: {error}" if error is not None else future.status
        return TaskFailure(escape_controls(why[:_MAX_ERROR_CHARS]))
    found = future.result()
    return pickle.loads(found) if isinstance(found, bytes) else found  # pickled by this program's own workers


def run_task_in_subprocess(given: bytes, limit_s: float | None, path: list[str]) -> bytes | TaskFailure:
    """Run a task in a worker's subprocess. Return its pickled result or a failure."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "cpsched_sim.experiments.dask_executor"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment, process_group=0,
    )  # fmt: skip
    try:
        result, _ = process.communicate(given, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return TaskFailure.from_timeout()
    finally:
        with suppress(ProcessLookupError):  # kill the process and its children
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return TaskFailure.from_exit_code(process.returncode) if process.returncode else result


def main() -> None:
    """Run the task on standard input, and write its result to standard output.

    This process ends when the worker ends.
    """
    kill_with_parent()
    out = os.dup(1)
    os.dup2(2, 1)
    os.register_at_fork(after_in_child=lambda: os.dup2(2, out))  # children of a plug-in must not write to the result
    work, task, stall_limit_s = pickle.loads(sys.stdin.buffer.read())
    outcome = execute_task(work, task, stall_limit_s, lambda share: None)
    with os.fdopen(out, "wb") as file:
        pickle.dump(outcome, file)


if __name__ == "__main__":
    main()
