"""Count the past week's start-interval outcomes by horizon.

A job starts within, before or after its interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES, IntervalResult
from cpsched.formatting import format_duration

HOUR_S = 3600
WEEK_H = 7 * 24
HORIZON_LABELS = (*(f"up to {format_duration(most_s)}" for most_s in HORIZONS_S), "later")
"""Label of each horizon."""
Counts = Mapping[tuple[int, IntervalResult], int]
"""Number of intervals by horizon and outcome."""


@dataclass(slots=True)
class PastWeekIntervalOutcomes:
    """Counts of interval outcomes per hour, at most a few hundred for a week."""

    hours: dict[int, dict[tuple[int, IntervalResult], int]] = field(default_factory=dict)
    """Counts by hour on the cluster's clock."""

    def add_outcome(self, horizon: int, outcome: IntervalResult, start_s: int) -> None:
        """Count the outcome of an interval whose job started at `start_s`."""
        hour = self.hours.setdefault(start_s // HOUR_S, {})
        hour[horizon, outcome] = hour.get((horizon, outcome), 0) + 1
        while len(self.hours) > WEEK_H + 1:
            del self.hours[min(self.hours)]

    def count_outcomes(self, now_s: int) -> Counts:
        """Return the counts for the week before `now_s`."""
        found: dict[tuple[int, IntervalResult], int] = {
            (horizon, outcome): 0 for horizon in range(len(HORIZON_LABELS)) for outcome in INTERVAL_OUTCOMES
        }
        for hour, counts in list(self.hours.items()):
            if now_s // HOUR_S - WEEK_H < hour <= now_s // HOUR_S:
                for key, count in list(counts.items()):
                    found[key] += count
        return found
