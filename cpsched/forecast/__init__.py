"""Forecast job starts as intervals, by simulating the plan with sampled run times.

- `start_sampling`: starts of all queued jobs for many samples of run times.
- `hypothetical_jobs`: when a job would start if it were submitted now, and what could start right now.
- `issued_forecasts`: when each job gets a forecast.
- `calibration`: corrects intervals with the outcomes of earlier ones, so that their coverage is as intended.
"""

from cpsched.forecast.calibration import (
    COVERAGE,
    HORIZONS_S,
    INTERVAL_OUTCOMES,
    IntervalCalibrator,
    Outcome,
    StartTimeInterval,
)
from cpsched.forecast.hypothetical_jobs import (
    BackfillWindow,
    backfill_windows,
    hypothetical_job,
    planned_queue,
    smaller_requests,
    with_hypothetical_job,
)
from cpsched.forecast.issued_forecasts import ISSUE_INTERVAL_S, IssuedStartForecasts
from cpsched.forecast.start_sampling import SAMPLES, sample_hypothetical_start, sample_starts

__all__ = [
    "COVERAGE",
    "HORIZONS_S",
    "INTERVAL_OUTCOMES",
    "ISSUE_INTERVAL_S",
    "SAMPLES",
    "BackfillWindow",
    "IntervalCalibrator",
    "IssuedStartForecasts",
    "Outcome",
    "StartTimeInterval",
    "backfill_windows",
    "hypothetical_job",
    "planned_queue",
    "sample_hypothetical_start",
    "sample_starts",
    "smaller_requests",
    "with_hypothetical_job",
]
