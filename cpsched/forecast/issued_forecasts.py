"""Select the jobs that are due for a forecast, for both the bridge and replays.

A job gets a forecast when it is first planned, and again 10 min, 40 min, 160 min, ... after the first forecast. The
intervals grow so that a job that waits for days counts little more than a job that waits for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cpsched.forecast.calibration import StartForecast

FIRST_PAUSE_S = 600
"""Seconds from the first forecast of a job to the second."""
PAUSE_FACTOR = 4
"""Factor by which the time since the first forecast grows from each forecast to the next."""
_MAX_STORED_JOBS = 200_000
"""Maximum number of stored jobs. It is needed because jobs can be cancelled or wait forever for a limit."""


@dataclass(slots=True)
class IssuedStartForecasts:
    """Forecasts of jobs that have not started, by a number that the caller defines."""

    most: int = _MAX_STORED_JOBS
    by_job: dict[int, list[StartForecast]] = field(default_factory=dict)
    """Forecasts of each job, oldest first."""

    def due_jobs(self, now_s: int, waiting: Iterable[int]) -> list[int]:
        """Return the jobs in `waiting` that are due for a forecast, in the same order."""
        return [job for job in waiting if now_s >= self.next_due_s(job)]

    def next_due_s(self, job: int) -> int:
        """Return when the job is due for its next forecast, or 0 before its first one."""
        issued = self.by_job.get(job)
        if not issued:
            return 0
        return issued[0].issued_at_s + FIRST_PAUSE_S * int(PAUSE_FACTOR ** (len(issued) - 1))

    def is_first(self, job: int, now_s: int) -> bool:
        """Return whether a forecast at `now_s` is the job's first one, or repeats it before the second is due."""
        return len(self.by_job.get(job, ())) < 2 and now_s < (self.next_due_s(job) or now_s + 1)

    def store_issued(self, forecasts: Mapping[int, StartForecast]) -> None:
        """Store the forecasts of the jobs returned by `due_jobs`."""
        for job, forecast in forecasts.items():
            self.by_job.setdefault(job, []).append(forecast)
        while len(self.by_job) > self.most:
            del self.by_job[next(iter(self.by_job))]

    def forecasts_of(self, waiting: Iterable[int]) -> list[StartForecast]:
        """Return the forecasts of the jobs in `waiting`."""
        return [forecast for job in waiting for forecast in self.by_job.get(job, ())]

    def take_forecasts(self, job: int) -> list[StartForecast]:
        """Remove a job that has started, and return its forecasts."""
        return self.by_job.pop(job, [])
