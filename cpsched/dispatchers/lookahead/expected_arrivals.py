"""Expect recent submissions to repeat, and measure the accuracy of estimates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from cpsched.model import EndedJob, IntArray, Snapshot, Starts

NO_ARRIVALS: IntArray = np.zeros((0, 3), np.int64)

MIN_ACCURACY = 0.9
"""Estimates count as accurate if the mean of min(run, estimate) / max(run, estimate) is at least this."""

ACCURACY_DECAY = 0.99
"""Factor applied to the weight of earlier jobs in this mean at each ended job."""

MIN_TOTAL_WEIGHT = 10.0
"""Minimum total weight by which the mean is divided, so that it stays low until enough jobs have ended."""

MAX_EXPECTED_PER_USER = 10
"""Maximum number of expected jobs per user, which limits how long they can delay other users' jobs."""

MAX_EXPECTED_JOBS = 100
"""Maximum number of expected jobs."""

MAX_STORED_STARTS = 10_000
"""Maximum number of started jobs whose estimates are stored."""


class ExpectedArrivals:
    """Expects jobs submitted in the last `period_s` seconds again one period later.

    These jobs are queued, running, or ended and reported by `learn`. Estimates are compared with the run times of the
    jobs that this dispatcher has started.
    """

    def __init__(self, period_s: int) -> None:
        self._period_s = period_s
        self._weight, self._accuracy = 0.0, 0.0
        """Total weight of ended jobs, and weighted sum of their accuracies."""
        self._estimate_s: dict[int, int] = {}
        """Estimates of started jobs, by job id."""
        self._ended: dict[int, tuple[int, int, int, str]] = {}
        """Submission (s), processors, run time (s) and user of ended jobs, by job id."""

    @property
    def are_estimates_accurate(self) -> bool:
        """Whether recent estimates were close to the run times on average."""
        return self._accuracy >= MIN_ACCURACY * max(self._weight, MIN_TOTAL_WEIGHT)

    def learn(self, ended: EndedJob) -> None:
        """Record an ended job."""
        job, run_s = ended.job, ended.run_s
        self._ended[job.id] = job.submit_s, job.request.units * job.request.per_unit[0], run_s, job.user
        if (estimate_s := self._estimate_s.pop(job.id, None)) is not None:
            self._weight = ACCURACY_DECAY * self._weight + 1
            self._accuracy = ACCURACY_DECAY * self._accuracy + min(run_s, estimate_s) / max(run_s, estimate_s)

    def record_start_estimates(self, snapshot: Snapshot, starts: Starts) -> None:
        """Store the estimates of the jobs that start now."""
        jobs, known = snapshot.table.jobs, self._estimate_s
        for slot in starts.slots.tolist():
            known[jobs[slot].id] = int(snapshot.table.estimate_s[slot])
            if len(known) > MAX_STORED_STARTS:
                del known[next(iter(known))]

    def expected_jobs(self, snapshot: Snapshot) -> IntArray:
        """Return the expected jobs, int64[M, 3], and drop jobs older than the period.

        The columns are processors, estimate (s) and expected submission (s). The jobs submitted last come first.
        """
        table, since_s = snapshot.table, snapshot.now_s - self._period_s
        self._ended = {id: known for id, known in self._ended.items() if known[0] > since_s}
        slots = np.concatenate((snapshot.queue, snapshot.running))
        slots = slots[table.submit_s[slots] > since_s]
        amounts = table.units[slots] * table.per_unit[slots, 0]
        rows = [(submit_s, id, amount, run_s, user) for id, (submit_s, amount, run_s, user) in self._ended.items()]
        columns = (column.tolist() for column in (slots, table.submit_s[slots], amounts, table.estimate_s[slots]))
        for slot, submit_s, amount, estimate_s in zip(*columns, strict=True):
            rows.append((submit_s, table.jobs[slot].id, amount, estimate_s, table.jobs[slot].user))
        found, of_user = [], Counter[str]()
        for submit_s, _, amount, estimate_s, user in sorted(rows, reverse=True):
            of_user[user] += 1
            if of_user[user] <= MAX_EXPECTED_PER_USER and amount > 0:
                found.append((amount, estimate_s, submit_s + self._period_s))
        return np.array(found[:MAX_EXPECTED_JOBS], np.int64).reshape(-1, 3)

    def memory(self) -> dict[str, Any]:
        """Return the state as JSON, with one string per job to keep the journal small."""
        return {
            "accuracy": [self._weight, self._accuracy],
            "started": {str(id): estimate_s for id, estimate_s in self._estimate_s.items()},
            "ended": [f"{id} {submit_s} {n} {run_s} {user}" for id, (submit_s, n, run_s, user) in self._ended.items()],
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Replace the state with an earlier `memory`."""
        self._weight, self._accuracy = memory["accuracy"]
        self._estimate_s = {int(id): estimate_s for id, estimate_s in memory["started"].items()}
        self._ended = {}
        for text in memory["ended"]:
            id, submit_s, amount, run_s, user = text.split(" ", 4)
            self._ended[int(id)] = int(submit_s), int(amount), int(run_s), user
