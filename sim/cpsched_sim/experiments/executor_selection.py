"""Choose where replays run: on this machine, or on the Dask cluster of `--on`."""

from __future__ import annotations

import math

from cpsched_sim.experiments import dask_executor
from cpsched_sim.experiments.task_runner import LocalProcessExecutor, TaskExecutor
from cpsched_sim.plugin_watchdog import STALL_TIMEOUT_S


def make_task_executor(
    on: str | None, processes: int, stall_limit_s: float = STALL_TIMEOUT_S, limit_s: float = math.inf
) -> TaskExecutor:
    """Return the executor for `--on`, or for local processes. Raise `InputError`.

    tcp://HOST:8786            the scheduler of a Dask cluster
    scheduler.json             a Dask scheduler file
    workers.py:make            a function in a file or module that returns a client, or a Dask cluster, which is
                               closed after the study; with `dask_jobqueue.SLURMCluster`, workers are Slurm jobs
    """
    if on is None:
        return LocalProcessExecutor(processes, stall_limit_s, limit_s=limit_s)
    return dask_executor.make_dask_executor(on, stall_limit_s, limit_s)
