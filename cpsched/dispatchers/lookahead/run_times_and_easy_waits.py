"""Record the history on which costs depend: users' run times and waits under EASY."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np

from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.kernels.virtual_easy import (
    ENTRY_FIELDS,
    MAX_ENTRIES_AHEAD,
    PAIR_FIELDS,
    VirtualEasySchedule,
    map_slots_to_entries,
    new_virtual_schedule,
    record_real_ends,
    restore_entries,
    take_real_virtual_pairs,
    unfinished_entries,
    update_virtual_schedule,
)
from cpsched.model import NEVER, EndedJob, IntArray, Snapshot
from cpsched.run_time_model import MeanRunToWalltimeRatios
from cpsched.site.priority_multipliers import FloatArray


class RunTimesAndEasyWaits:
    """Run times of ended jobs, and a virtual schedule of all jobs under `easy`.

    Call `advance_virtual_schedule` before reading results. Without history, jobs are expected to use their whole
    walltimes, and the waits of running jobs count as zero.
    """

    def __init__(self) -> None:
        self.shares = MeanRunToWalltimeRatios()
        self._virtual = new_virtual_schedule()
        self._ended: dict[int, tuple[int, int, int]] = {}
        """Run time (s), wait (s) and user hash of jobs ended since the virtual schedule's last update, by job id."""
        self._jobs: object = None
        self._ids: IntArray = np.zeros(0, np.int64)
        self._user: IntArray = np.zeros(0, np.int64)
        """Index of the job's user, by slot."""
        self._index: dict[str, int] = {}
        """Index of each user, in ascending order."""

    def learn(self, ended: EndedJob) -> None:
        """Record an ended job."""
        self.shares.learn(ended)
        self._ended[ended.job.id] = (ended.run_s, ended.wait_s, crc32(ended.job.user.encode()))
        if len(self._ended) > MAX_ENTRIES_AHEAD:
            del self._ended[next(iter(self._ended))]

    def advance_virtual_schedule(self, snapshot: Snapshot, site: SchedulingState) -> tuple[FloatArray, float]:
        """Advance the virtual schedule towards now, as far as run times are known.

        Return each queued job's expected run time, float64[Q], and the longest wait under `easy`, both in seconds.
        The longest wait covers jobs that are pending in the virtual schedule now, and jobs that started in it recently.
        """
        self._index_job_table(snapshot)
        expected_s = self.expected_run_times_s(snapshot, np.concatenate((snapshot.queue, snapshot.running)))
        self._record_ended_jobs()
        longest_s = update_virtual_schedule(site, self._virtual, expected_s, self._ids)
        return expected_s[: len(snapshot.queue)], float(longest_s)

    def take_real_virtual_pairs(self) -> IntArray:
        """Return jobs that ended virtually since the last call, int64[N, PAIR_FIELDS].

        They are in order of their virtual ends. See `cpsched.kernels.virtual_easy.PAIR_FIELDS`.
        """
        found: IntArray = take_real_virtual_pairs(self._virtual) if self._virtual.paired else np.zeros(0, np.int64)
        return found.reshape(-1, PAIR_FIELDS)

    def expected_run_times_s(self, snapshot: Snapshot, slots: IntArray) -> FloatArray:
        """Return the expected run times of the jobs in `slots` in seconds, at least 1."""
        users, user, share = list(self._index), self._user[slots], np.zeros(len(self._index))
        share[user] = 1.0
        present = share.nonzero()[0].tolist()  # only users of these jobs, because a site may have thousands of users
        share[present] = [self.shares.mean_run_to_walltime_ratio(users[each]) for each in present]
        found: FloatArray = np.maximum(1.0, share[user] * snapshot.table.walltime_s[slots])
        return found

    def memory(self) -> dict[str, Any]:
        """Return the shares and the virtual schedule as JSON.

        Each entry is one string, because the journal stores only a list's changed strings.
        """
        self._record_ended_jobs()
        return {"shares": self.shares.memory(), "virtual": _virtual_schedule_to_json(self._virtual)}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore the state from an earlier result of `memory()`."""
        self.shares.recall(memory["shares"])
        self._ended.clear()
        self._virtual = _virtual_schedule_from_json(memory["virtual"])
        self._jobs = None

    def _record_ended_jobs(self) -> None:
        """Pass the run times of ended jobs to the virtual schedule."""
        if self._ended:
            rows = [(id, *known) for id, known in sorted(self._ended.items())]
            ended = np.array(rows, np.int64).T.reshape(-1)
            record_real_ends(self._virtual, ended)
            self._ended.clear()

    def _index_job_table(self, snapshot: Snapshot) -> None:
        """Map users and entries to this snapshot's slots if its table has changed."""
        jobs, known = snapshot.table.jobs, len(self._ids)
        if jobs is self._jobs and len(jobs) == known:
            return
        index = self._index
        if jobs is not self._jobs:
            known = 0
            index.clear()
        users = [index.setdefault(job.user, len(index)) for job in jobs[known:]]
        ids = np.fromiter((job.id for job in jobs[known:]), np.int64, len(jobs) - known)
        if known:
            self._ids, self._user = np.append(self._ids, ids), np.append(self._user, users)
        else:
            self._ids, self._user = ids, np.array(users, np.int64)
            map_slots_to_entries(self._virtual, ids)
        self._jobs = jobs


def _virtual_schedule_to_json(virtual: VirtualEasySchedule) -> dict[str, Any]:
    rows = [" ".join(map(str, row)) for row in unfinished_entries(virtual).reshape(-1, ENTRY_FIELDS).tolist()]
    return {"now_s": virtual.now_s, "longest_s": virtual.longest_s, "jobs": rows}


def _virtual_schedule_from_json(memory: Mapping[str, Any]) -> VirtualEasySchedule:
    """Restore a virtual schedule. Memories of version 0.1 lack the last two fields."""
    virtual, numbers = new_virtual_schedule(), list[int]()
    for row in memory["jobs"]:
        fields = [int(number) for number in row.split()]
        numbers += fields if len(fields) == ENTRY_FIELDS else [*fields, NEVER, 0]
    restore_entries(virtual, np.array(numbers, np.int64))
    virtual.now_s, virtual.longest_s = memory["now_s"], memory["longest_s"]
    return virtual
