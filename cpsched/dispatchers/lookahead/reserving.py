"""Plans with other run times than the estimates: a snapshot in which every job is expected to run to its walltime."""

from __future__ import annotations

import numpy as np

from cpsched.model import IntArray, JobTable, Snapshot, Starts
from cpsched.model.table import COLUMNS


def by_walltime(snapshot: Snapshot) -> tuple[Snapshot, IntArray]:
    """The snapshot with walltimes in the place of estimates, and its slots in the table of the given one.

    Running jobs are expected to end at their walltimes, or one second from now where that is over.
    """
    table, queued = snapshot.table, len(snapshot.queue)
    slots = np.concatenate((snapshot.queue, snapshot.running))
    columns = {name: np.ascontiguousarray(getattr(table, name)[slots]) for name in COLUMNS}
    columns["estimate_s"] = columns["walltime_s"].copy()
    end_s = np.maximum(columns["start_s"] + columns["walltime_s"], snapshot.now_s + 1)
    end_s[:queued] = 0
    columns["end_s"] = end_s
    jobs = [table.jobs[slot] for slot in slots.tolist()]
    running = np.arange(queued, len(slots))
    ids = np.fromiter((job.id for job in jobs[queued:]), np.int64, len(running))
    found = Snapshot(
        snapshot.now_s,
        snapshot.cluster,
        snapshot.free,
        JobTable(jobs=jobs, places=table.places, **columns),
        np.arange(queued),
        running[np.lexsort((ids, end_s[queued:]))],
        True,
    )
    return found, slots


def named_by(starts: Starts, slots: IntArray) -> Starts:
    """The starts with each slot exchanged for the one that it stands for."""
    return Starts(slots[starts.slots], starts.offsets, starts.nodes, starts.units, True)
