"""A policy is what a site configures: a predictor and a dispatcher; it turns snapshots into decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import Decision, EndedJob, Need, Snapshot
from cpsched.overrun import Overrun, expected_end_s
from cpsched.predictors.base import Predictor

_SPARE = 10_000
"""Estimates kept beyond twice the jobs of a snapshot: a job that is not eligible for a while keeps its own."""


@dataclass(slots=True)
class Policy:
    """Predictor + dispatcher. A job is predicted once, when it is first seen; the estimate is kept until it ends."""

    predictor: Predictor
    dispatcher: Dispatcher
    overrun: Overrun = "one-second"
    _estimates: dict[int, int] = field(default_factory=dict)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Which jobs start now, where, and what the others wait for."""
        if len(snapshot.fresh):
            snapshot = self.estimated(snapshot)
        return self.dispatcher.decide(snapshot, need)

    def estimated(self, snapshot: Snapshot) -> Snapshot:
        """`snapshot` with an estimate for every job, and its running jobs in order of their expected ends."""
        table = snapshot.table
        if len(self._estimates) > 2 * len(table.jobs) + _SPARE:
            self._forget_all_but(job.id for job in table.jobs)
        unknown = [slot for slot in snapshot.fresh.tolist() if table.jobs[slot].id not in self._estimates]
        self.predictor.fill(table, np.array(unknown, dtype=np.int64))
        for slot in unknown:
            self._estimates[table.jobs[slot].id] = int(table.estimate_s[slot])
        for slot in snapshot.fresh.tolist():
            table.estimate_s[slot] = self._estimates[table.jobs[slot].id]
        running = snapshot.running.tolist()
        for slot in running:
            table.end_s[slot] = expected_end_s(
                int(table.start_s[slot]),
                int(table.estimate_s[slot]),
                int(table.walltime_s[slot]),
                snapshot.now_s,
                self.overrun,
            )
        running.sort(key=lambda slot: (table.end_s[slot], table.jobs[slot].id))
        return dataclasses.replace(
            snapshot, running=np.array(running, dtype=np.int64), fresh=np.zeros(0, dtype=np.int64)
        )

    def _forget_all_but(self, job_ids: Iterable[int]) -> None:
        """Drop the estimates of jobs that left without ending (cancelled before they ran)."""
        self._estimates = {id: self._estimates[id] for id in job_ids if id in self._estimates}

    @property
    def learns(self) -> bool:
        """Whether `learn` must be called for every ended job."""
        return self.predictor.learns or self.dispatcher.learns or bool(self._estimates)

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""
        self._estimates.pop(ended.job.id, None)
        self.predictor.learn(ended)
        self.dispatcher.learn(ended)
