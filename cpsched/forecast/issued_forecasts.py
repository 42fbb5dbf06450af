"""Who is told an interval when, and what became of it: one rule, for a bridge and for a replay.

A job is told an interval when it is first planned. Once an hour, all jobs that wait are told one anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cpsched.forecast.calibration import StartInterval

ISSUE_INTERVAL_S = 3600
"""Seconds from one telling of all jobs that wait to the next."""
_MOST_TOLD = 200_000
"""Jobs that are remembered: some are cancelled, and some are kept waiting by limits for ever."""


@dataclass(slots=True)
class IssuedForecasts:
    """What jobs have been told, by whatever number the caller knows them by, until they start."""

    most: int = _MOST_TOLD
    told: dict[int, list[StartInterval]] = field(default_factory=dict)
    """By job, the intervals that are to be learned from, the oldest first."""
    look_s: int | None = None
    """When all jobs are told again; None: at once."""

    def due_jobs(self, now_s: int, waiting: Iterable[int]) -> list[int]:
        """Those of `waiting` that are to be told an interval now, in the same order."""
        everybody = self.look_s is None or now_s >= self.look_s
        return [job for job in waiting if everybody or job not in self.told]

    def issue(self, now_s: int, intervals: Mapping[int, StartInterval]) -> None:
        """Keep what the jobs that are `due_jobs` were told."""
        if intervals and (self.look_s is None or now_s >= self.look_s):
            self.look_s = now_s + ISSUE_INTERVAL_S
        for job, interval in intervals.items():
            self.told.setdefault(job, []).append(interval)
        while len(self.told) > self.most:
            del self.told[next(iter(self.told))]

    def started(self, job: int) -> list[StartInterval]:
        """What a job that has started was told; it is forgotten."""
        return self.told.pop(job, [])
