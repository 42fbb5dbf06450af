"""True run times by user, and waits under EASY: the history on which costs depend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.kernels.virtual_easy import (
    ENTRY_FIELDS,
    MOST_AHEAD,
    find_entries,
    follow_real_schedule,
    new_virtual_schedule,
    note_ended,
    restore_entries,
    unfinished_entries,
)
from cpsched.model import EndedJob, IntArray, Snapshot
from cpsched.run_time_model import MeanWalltimeShares
from cpsched.site.priority_weights import FloatArray


class RunAndWaitHistory:
    """Run times of ended jobs, and a virtual schedule of the same jobs under `easy`, updated along with the real one.

    Call `follow` before reading results. Without history, jobs are expected to run to their walltimes, and jobs that
    are already running have not waited.
    """

    def __init__(self) -> None:
        self.shares = MeanWalltimeShares()
        self._virtual = new_virtual_schedule()
        self._ended: dict[int, int] = {}
        """Run times, by job id, of jobs that have ended since the last update of the virtual schedule."""
        self._jobs: object = None
        self._ids: IntArray = np.zeros(0, np.int64)
        self._user: IntArray = np.zeros(0, np.int64)
        """Index of the job's user in `_share`, by slot."""
        self._index: dict[str, int] = {}
        self._share: FloatArray = np.ones(0)
        """`MeanWalltimeShares.mean_run_share` of each user, by user index."""

    def learn(self, ended: EndedJob) -> None:
        """Record an ended job."""
        self.shares.learn(ended)
        self._ended[ended.job.id] = ended.run_s
        if len(self._ended) > MOST_AHEAD:
            del self._ended[next(iter(self._ended))]
        self._share = np.ones(0)

    def follow(self, snapshot: Snapshot, site: SchedulingState) -> tuple[FloatArray, float]:
        """Advance the virtual schedule to now.

        Return the expected run time of each queued job, float64[Q], and the longest wait under `easy`, both in seconds.
        The longest wait covers jobs that are pending in the virtual schedule now, and jobs that started in it recently.
        """
        self._meet(snapshot)
        expected_s = self.expected_s(snapshot, np.concatenate((snapshot.queue, snapshot.running)))
        self._note_ended()
        longest_s = follow_real_schedule(site, self._virtual, expected_s, self._ids)
        return expected_s[: len(snapshot.queue)], float(longest_s)

    def expected_s(self, snapshot: Snapshot, slots: IntArray) -> FloatArray:
        """Return the expected run times of the jobs in `slots` in seconds, at least 1."""
        if not len(self._share):
            self._share = np.array([self.shares.mean_run_share(user) for user in self._index])
        found: FloatArray = np.maximum(1.0, self._share[self._user[slots]] * snapshot.table.walltime_s[slots])
        return found

    def memory(self) -> dict[str, Any]:
        """Return shares and the virtual schedule as JSON.

        Each entry is one string, because the journal stores only changed strings of a list.
        """
        self._note_ended()
        virtual = self._virtual
        rows = [" ".join(map(str, row)) for row in unfinished_entries(virtual).reshape(-1, ENTRY_FIELDS).tolist()]
        return {
            "shares": self.shares.memory(),
            "virtual": {"now_s": virtual.now_s, "longest_s": virtual.longest_s, "jobs": rows},
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Replace the state with an earlier `memory`."""
        self.shares.recall(memory["shares"])
        self._ended.clear()
        self._virtual = new_virtual_schedule()
        virtual = memory["virtual"]
        numbers = [int(number) for row in virtual["jobs"] for number in row.split()]
        restore_entries(self._virtual, np.array(numbers, np.int64))
        self._virtual.now_s, self._virtual.longest_s = virtual["now_s"], virtual["longest_s"]
        self._jobs = None

    def _note_ended(self) -> None:
        """Pass the run times of ended jobs to the virtual schedule."""
        if self._ended:
            ended = np.array(sorted(self._ended.items()), np.int64)
            note_ended(self._virtual, np.ascontiguousarray(ended[:, 0]), np.ascontiguousarray(ended[:, 1]))
            self._ended.clear()

    def _meet(self, snapshot: Snapshot) -> None:
        """Map users and entries to the slots of this snapshot if its table is new or has grown."""
        jobs, known = snapshot.table.jobs, len(self._ids)
        if jobs is self._jobs and len(jobs) == known:
            return
        index = self._index
        if jobs is not self._jobs:
            known = 0
            index.clear()
        count = len(index)
        users = [index.setdefault(job.user, len(index)) for job in jobs[known:]]
        ids = np.fromiter((job.id for job in jobs[known:]), np.int64, len(jobs) - known)
        if known:
            self._ids, self._user = np.append(self._ids, ids), np.append(self._user, users)
        else:
            self._ids, self._user = ids, np.array(users, np.int64)
            find_entries(self._virtual, ids)
        if len(index) > count:
            self._share = np.ones(0)
        self._jobs = jobs
