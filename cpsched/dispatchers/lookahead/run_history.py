"""What jobs really take, and how long they would wait under EASY: what prices by history are made of."""

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
from cpsched.run_time_model import MeanRunShares
from cpsched.site.priority_weights import FloatArray


class RunHistory:
    """Run times of ended jobs, and beside the real schedule the virtual one of `easy` over all that has happened.

    `follow_real_schedule` before anything is read. A new one knows nothing: jobs are expected to run to their
    walltimes, and those
    that run already have waited for nothing.
    """

    def __init__(self) -> None:
        self.shares = MeanRunShares()
        self._virtual = new_virtual_schedule()
        self._ended: dict[int, int] = {}
        """Run times, by job id, of jobs that have ended since the virtual schedule last followed."""
        self._jobs: object = None
        self._ids: IntArray = np.zeros(0, np.int64)
        self._user: IntArray = np.zeros(0, np.int64)
        """By slot: the index of its user in `_share`."""
        self._index: dict[str, int] = {}
        self._share: FloatArray = np.ones(0)
        """By user of the table: `MeanRunShares.of`."""

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        self.shares.learn(ended)
        self._ended[ended.job.id] = ended.run_s
        if len(self._ended) > MOST_AHEAD:
            del self._ended[next(iter(self._ended))]
        self._share = np.ones(0)

    def follow(self, snapshot: Snapshot, site: SchedulingState) -> tuple[FloatArray, float]:
        """Follow reality up to now.

        Returns how long each queued job is expected to run, float64[Q], and the longest wait of a job under `easy`:
        of those that wait there now and of those that started there lately; both in seconds.
        """
        self._meet(snapshot)
        expected_s = self.expected_s(snapshot, np.concatenate((snapshot.queue, snapshot.running)))
        self._note_ended()
        longest_s = follow_real_schedule(site, self._virtual, expected_s, self._ids)
        return expected_s[: len(snapshot.queue)], float(longest_s)

    def expected_s(self, snapshot: Snapshot, slots: IntArray) -> FloatArray:
        """How long the jobs of `slots` are expected to run, in seconds, at least 1."""
        if not len(self._share):
            self._share = np.array([self.shares.of(user) for user in self._index])
        found: FloatArray = np.maximum(1.0, self._share[self._user[slots]] * snapshot.table.walltime_s[slots])
        return found

    def memory(self) -> dict[str, Any]:
        """What was learned, and the virtual schedule, as JSON.

        An entry is one text: the journal keeps of a list of texts what changed.
        """
        self._note_ended()
        virtual = self._virtual
        rows = [" ".join(map(str, row)) for row in unfinished_entries(virtual).reshape(-1, ENTRY_FIELDS).tolist()]
        return {
            "shares": self.shares.memory(),
            "virtual": {"now_s": virtual.now_s, "longest_s": virtual.longest_s, "jobs": rows},
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Know what `memory` says, and nothing else."""
        self.shares.recall(memory["shares"])
        self._ended.clear()
        self._virtual = new_virtual_schedule()
        virtual = memory["virtual"]
        numbers = [int(number) for row in virtual["jobs"] for number in row.split()]
        restore_entries(self._virtual, np.array(numbers, np.int64))
        self._virtual.now_s, self._virtual.longest_s = virtual["now_s"], virtual["longest_s"]
        self._jobs = None

    def _note_ended(self) -> None:
        """Let the virtual schedule know the run times of jobs that have ended."""
        if self._ended:
            ended = np.array(sorted(self._ended.items()), np.int64)
            note_ended(self._virtual, np.ascontiguousarray(ended[:, 0]), np.ascontiguousarray(ended[:, 1]))
            self._ended.clear()

    def _meet(self, snapshot: Snapshot) -> None:
        """Name users and entries by the slots of this snapshot, where they are others than last time."""
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
