"""Where replays are done: in processes of this machine, or on an existing engine that `--on` names."""

from __future__ import annotations

from cpsched_sim.experiments import dask
from cpsched_sim.experiments.runner import Engine, Processes
from cpsched_sim.watchdog import LIMIT_S


def engine_of(on: str | None, processes: int, patience_s: float = LIMIT_S) -> Engine:
    """The engine of what `--on` says; None: `processes` of this machine. Raises `UnusableObject`, also without
    `distributed`.

    tcp://HOST:8786            the scheduler of a Dask cluster
    scheduler.json             the file in which a Dask scheduler says where it is
    workers.py:make            a function, in a file or a module, that returns a Dask cluster, which ends with the
                               study, or a client: with `dask_jobqueue.SLURMCluster` workers are jobs of Slurm
    """
    if on is None:
        return Processes(processes, patience_s)
    return dask.engine(on, patience_s)
