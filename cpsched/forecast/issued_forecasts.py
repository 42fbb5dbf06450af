"""Record when each job gets a forecast: one rule for the bridge and for replays.

A job gets a forecast when it is first planned. Once per hour, all pending jobs get a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cpsched.forecast.calibration import StartTimeInterval

ISSUE_INTERVAL_S = 3600
"""Seconds between two forecasts of all pending jobs."""
_MOST_TOLD = 200_000
"""Maximum number of stored jobs, because some are cancelled, and limits can keep others waiting forever."""


@dataclass(slots=True)
class IssuedStartForecasts:
    """The forecasts of jobs that have not started; the caller chooses the number that identifies a job."""

    most: int = _MOST_TOLD
    told: dict[int, list[StartTimeInterval]] = field(default_factory=dict)
    """Intervals of each job, oldest first."""
    look_s: int | None = None
    """Time (s) at which all jobs get new forecasts; None means immediately."""

    def due_jobs(self, now_s: int, waiting: Iterable[int]) -> list[int]:
        """Return the jobs of `waiting` that are due for a forecast now, in the same order."""
        refresh_all = self.look_s is None or now_s >= self.look_s
        return [job for job in waiting if refresh_all or job not in self.told]

    def issue(self, now_s: int, intervals: Mapping[int, StartTimeInterval]) -> None:
        """Store the forecasts of the jobs returned by `due_jobs`."""
        if intervals and (self.look_s is None or now_s >= self.look_s):
            self.look_s = now_s + ISSUE_INTERVAL_S
        for job, interval in intervals.items():
            self.told.setdefault(job, []).append(interval)
        while len(self.told) > self.most:
            del self.told[next(iter(self.told))]

    def take_forecasts(self, job: int) -> list[StartTimeInterval]:
        """Remove a job that has started, and return its forecasts."""
        return self.told.pop(job, [])
