"""When jobs will start, as intervals: the plan carried on with run times as jobs really have them.

- `draws`: the starts of all jobs in the queue under many drawings of run times.
- `questions`: when a job would start if it were submitted now; what could run right now.
- `telling`: who is told an interval when.
- `calibration`: what became of earlier intervals, so that those of now hold as often as they say.
"""

from cpsched.forecast.calibration import COVERAGE, HORIZONS_S, INTERVAL_OUTCOMES, Calibration, Outcome, StartInterval
from cpsched.forecast.hypothetical_jobs import (
    BackfillWindow,
    backfill_windows,
    hypothetical_job,
    planned_queue,
    smaller_requests,
    with_hypothetical_job,
)
from cpsched.forecast.issued_forecasts import ISSUE_INTERVAL_S, IssuedForecasts
from cpsched.forecast.start_sampling import SAMPLES, sample_hypothetical_start, sample_starts

__all__ = [
    "COVERAGE",
    "HORIZONS_S",
    "INTERVAL_OUTCOMES",
    "ISSUE_INTERVAL_S",
    "SAMPLES",
    "BackfillWindow",
    "Calibration",
    "IssuedForecasts",
    "Outcome",
    "StartInterval",
    "backfill_windows",
    "hypothetical_job",
    "planned_queue",
    "sample_hypothetical_start",
    "sample_starts",
    "smaller_requests",
    "with_hypothetical_job",
]
