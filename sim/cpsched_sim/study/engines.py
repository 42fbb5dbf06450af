"""Where cases are decided: processes of this machine, or an existing engine that `--on` names.

tcp://HOST:8786            the scheduler of a Dask cluster
scheduler.json             the file in which a Dask scheduler says where it is
workers.py:make            a function, in a file or a module, that returns a Dask cluster, which ends with the study,
                           or a client: with `dask_jobqueue.SLURMCluster` workers are jobs of Slurm; PBS alike
"""

from __future__ import annotations

from cpsched_sim.patience import LIMIT_S
from cpsched_sim.study.running import Engine, Processes


def engine_of(on: str | None, processes: int, patience_s: float = LIMIT_S) -> Engine:
    """The engine of these words; None: so many processes here. Raises `Unusable`, also without `distributed`."""
    if on is None:
        return Processes(processes, patience_s)
    from cpsched_sim.study import dask

    return dask.engine(on, patience_s)
