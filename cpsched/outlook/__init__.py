"""When jobs will start, as intervals: the plan carried on with run times as jobs really have them.

- `draws`: the starts of all jobs in the queue under many drawings of run times.
- `questions`: when a job would start if it were submitted now; what could run right now.
- `telling`: who is told an interval when.
- `calibration`: what became of earlier intervals, so that those of now hold as often as they say.
"""

from cpsched.outlook.calibration import HOLDS, HORIZONS_S, OUTCOMES, Calibration, Interval, Outcome
from cpsched.outlook.draws import DRAWS, drawn_starts, likewise
from cpsched.outlook.questions import StartWindow, asked_job, placed, smaller, windows, with_job
from cpsched.outlook.telling import TOLD_EVERY_S, Telling

__all__ = [
    "DRAWS",
    "HOLDS",
    "HORIZONS_S",
    "OUTCOMES",
    "TOLD_EVERY_S",
    "Calibration",
    "Interval",
    "Outcome",
    "StartWindow",
    "Telling",
    "asked_job",
    "drawn_starts",
    "likewise",
    "placed",
    "smaller",
    "windows",
    "with_job",
]
