"""When jobs will start, as intervals: the plan carried on with run times as jobs really have them.

- `draws`: the starts of all jobs in the queue under many drawings of run times.
- `calibration`: what became of earlier intervals, so that those of now hold as often as they say.
"""

from cpsched.outlook.calibration import HOLDS, Calibration, Interval
from cpsched.outlook.draws import drawn_starts

__all__ = ["HOLDS", "Calibration", "Interval", "drawn_starts"]
