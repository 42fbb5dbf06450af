"""Forecast job starts as quantiles by simulating plans with sampled run times.

- `start_sampling`: the starts of all queued jobs for many samples of run times.
- `hypothetical_jobs`: when a job would start if it were submitted now, and which jobs could start right now.
- `issued_forecasts`: when each job gets a forecast.
- `calibration`: quantiles that hold as often as stated, computed from samples and the outcomes of earlier forecasts.
"""

from cpsched.forecast.calibration import (
    FIRST_CLASS,
    HORIZONS_S,
    INTERVAL_OUTCOMES,
    INTERVALS,
    LEVELS,
    MIN_FIRST_OUTCOMES,
    IntervalResult,
    StartCalibrator,
    StartForecast,
    pinball_loss_s,
    select_one_per_class,
)
from cpsched.forecast.hypothetical_jobs import (
    BackfillWindow,
    backfill_windows,
    hypothetical_job,
    planned_queue,
    smaller_requests,
    with_hypothetical_job,
)
from cpsched.forecast.issued_forecasts import IssuedStartForecasts
from cpsched.forecast.start_sampling import SAMPLES, sample_hypothetical_start, sample_starts

__all__ = [
    "FIRST_CLASS",
    "HORIZONS_S",
    "INTERVALS",
    "INTERVAL_OUTCOMES",
    "LEVELS",
    "MIN_FIRST_OUTCOMES",
    "SAMPLES",
    "BackfillWindow",
    "IntervalResult",
    "IssuedStartForecasts",
    "StartCalibrator",
    "StartForecast",
    "backfill_windows",
    "hypothetical_job",
    "pinball_loss_s",
    "planned_queue",
    "sample_hypothetical_start",
    "sample_starts",
    "select_one_per_class",
    "smaller_requests",
    "with_hypothetical_job",
]
