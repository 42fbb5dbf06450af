"""Count the past week's start-interval outcomes by class: first forecasts, and later ones by horizon.

A job starts within, before or after its interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES, IntervalResult
from cpsched.formatting import format_duration

HOUR_S = 3600
WEEK_H = 7 * 24
CLASS_LABELS = (*(f"later, up to {format_duration(most_s)}" for most_s in HORIZONS_S), "later, over 1 d", "first")
"""Label of each `StartForecast.outcome_class`. The horizon is the time from the forecast to its median."""
Counts = Mapping[tuple[int, IntervalResult], int]
"""Number of intervals by class and outcome."""


@dataclass(slots=True)
class PastWeekIntervalOutcomes:
    """Counts of interval outcomes per hour, at most a few hundred for a week."""

    hours: dict[int, dict[tuple[int, IntervalResult], int]] = field(default_factory=dict)
    """Counts by hour on the cluster's clock."""

    def add_outcome(self, outcome_class: int, outcome: IntervalResult, start_s: int) -> None:
        """Count the outcome of an interval whose job started at `start_s`."""
        hour = self.hours.setdefault(start_s // HOUR_S, {})
        hour[outcome_class, outcome] = hour.get((outcome_class, outcome), 0) + 1
        while len(self.hours) > WEEK_H + 1:
            del self.hours[min(self.hours)]

    def count_outcomes(self, now_s: int) -> Counts:
        """Return the counts for the week before `now_s`."""
        found: dict[tuple[int, IntervalResult], int] = {
            (at, outcome): 0 for at in range(len(CLASS_LABELS)) for outcome in INTERVAL_OUTCOMES
        }
        for hour, counts in list(self.hours.items()):
            if now_s // HOUR_S - WEEK_H < hour <= now_s // HOUR_S:
                for key, count in list(counts.items()):
                    found[key] += count
        return found
