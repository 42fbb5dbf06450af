"""Convert jobs and their schedule to a pandas frame (extra `pandas`).

Only this module imports pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cpsched.metrics import bounded_slowdown
from cpsched.model import NEVER, BoolArray, IntArray
from cpsched_sim.errors import InputError
from cpsched_sim.traces.trace_jobs import TraceJob

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame


def jobs_to_frame(items: Sequence[TraceJob], schedule: tuple[IntArray, IntArray, IntArray] | None = None) -> DataFrame:
    """Return a frame with one row per job, indexed by job id, in order of arrival.

    Raise `InputError` without pandas.

    `schedule` contains each job's start, end and number of processors. The start is `NEVER` if the job never ran. The
    columns are user, name, queue, account, submit_s, walltime_s, run_s, units and processors; with a schedule, start_s,
    end_s, wait_s and bounded_slowdown; then recorded_start_s and power_w. Start, end and wait are whole seconds. They
    are missing (`<NA>`) if the job never started, and its bounded slowdown is NaN. Recorded start and power are missing
    if the trace has none. Without a schedule, processors are the requested number.
    """
    pandas = _import_pandas()
    jobs = [item.job for item in items]
    submit_s = np.fromiter((job.submit_s for job in jobs), np.int64, len(jobs))
    run_s = np.fromiter((item.run_s for item in items), np.int64, len(items))
    asked = np.fromiter((job.request.units * job.request.per_unit[0] for job in jobs), np.int64, len(jobs))

    has_start = np.array([item.recorded_start_s is not None for item in items], np.bool_)
    recorded_s = np.fromiter((item.recorded_start_s or 0 for item in items), np.int64, len(items))

    drew = np.array([item.power_w is not None for item in items], np.bool_)
    power_w = np.fromiter((item.power_w or 0 for item in items), np.int64, len(items))

    def nullable_integers(values: IntArray, where: BoolArray) -> Any:
        return pandas.arrays.IntegerArray(values.copy(), mask=~where)

    columns = {
        "user": [job.user for job in jobs],
        "name": [job.name for job in jobs],
        "queue": [job.queue for job in jobs],
        "account": [job.account for job in jobs],
        "submit_s": submit_s,
        "walltime_s": [job.walltime_s for job in jobs],
        "run_s": run_s,
        "units": [job.request.units for job in jobs],
        "processors": asked,
    }
    if schedule is not None:
        start_s, end_s, columns["processors"] = schedule
        ran = start_s != NEVER
        wait_s = np.where(ran, start_s - submit_s, 0)
        slowdown = np.where(ran, bounded_slowdown(wait_s, run_s), np.nan)
        columns |= {
            "start_s": nullable_integers(start_s, ran),
            "end_s": nullable_integers(end_s, ran),
            "wait_s": nullable_integers(wait_s, ran),
        }
        columns["bounded_slowdown"] = slowdown
    columns |= {
        "recorded_start_s": nullable_integers(recorded_s, has_start),
        "power_w": nullable_integers(power_w, drew),
    }
    return pandas.DataFrame(columns, index=pandas.Index([job.id for job in jobs], name="job"))


def rows_to_frame(lines: Sequence[Sequence[object]]) -> DataFrame:
    """Convert a table to a frame. Its first line contains the column names.

    Raise `InputError` without pandas.
    """
    return _import_pandas().DataFrame(lines[1:], columns=list(lines[0]))


def _import_pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise InputError("to_frame() requires pandas: pip install 'cpsched[pandas]'") from error
    return pandas
