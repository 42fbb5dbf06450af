"""When jobs will start, as intervals: the plan carried on with run times as jobs really have them.

- `draws`: the starts of all jobs in the queue under many drawings of run times.
- `questions`: when a job would start if it were submitted now; what could run right now.
- `calibration`: what became of earlier intervals, so that those of now hold as often as they say.
"""

from cpsched.outlook.calibration import HOLDS, HORIZONS_S, TOLD_EVERY_S, Calibration, Interval
from cpsched.outlook.draws import DRAWS, drawn_starts
from cpsched.outlook.questions import Window, asked_job, planned_start_s, smaller, windows, with_job

__all__ = [
    "DRAWS",
    "HOLDS",
    "HORIZONS_S",
    "TOLD_EVERY_S",
    "Calibration",
    "Interval",
    "Window",
    "asked_job",
    "drawn_starts",
    "planned_start_s",
    "smaller",
    "windows",
    "with_job",
]
