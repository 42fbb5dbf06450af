"""Convert the forecasts' persistent state (ended jobs, intervals, and their outcomes) to and from plain values.

Each value read from a file is validated. An invalid value raises `CorruptFileContent`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cpsched.errors import CpschedError
from cpsched.forecast import HORIZONS_S, INTERVAL_OUTCOMES, IntervalCalibrator, IssuedStartForecasts, StartTimeInterval
from cpsched.model import EndedJob, Job, Request
from cpsched_bridge.store.corruption import DATES_S, CorruptFileContent, raise_as_corrupt
from cpsched_bridge.telemetry.past_week_outcomes import PastWeekIntervalOutcomes

FORMAT = 1
MOST_ENDS = 20_000
"""Maximum number of stored ended jobs; the oldest are dropped first."""
MOST_TOLD = 20_000
"""Maximum number of jobs with intervals; the oldest are dropped first."""
MOST_EACH = 200
"""Maximum number of intervals per job; the oldest are dropped first."""
_MOST_LETTERS = 256
_MOST_COUNT = 10**9


@dataclass(slots=True)
class LearnedForecastState:
    """The learned state of forecasts."""

    clock_s: int = 0
    """The cluster's clock at the last observation."""
    ends: Sequence[EndedJob] = ()
    """The ended jobs, oldest first."""
    calibration: IntervalCalibrator = field(default_factory=IntervalCalibrator)
    telling: IssuedStartForecasts = field(default_factory=IssuedStartForecasts)
    week: PastWeekIntervalOutcomes = field(default_factory=PastWeekIntervalOutcomes)


def memory_to_json(memory: LearnedForecastState) -> Any:
    """Return the learned state as plain values."""
    told = list(memory.telling.told.items())[-MOST_TOLD:]
    return {
        "format": FORMAT,
        "clock_s": memory.clock_s,
        "ends": [
            [e.job.id, e.job.user[:_MOST_LETTERS], e.job.name[:_MOST_LETTERS], e.job.walltime_s, e.job.request.units,
             e.start_s, e.end_s]
            for e in memory.ends
        ],
        "known": [[*features, ratio] for features, ratio in memory.calibration.past_errors],
        "below": memory.calibration.lower_quantiles,
        "above": memory.calibration.upper_quantiles,
        "look_s": memory.telling.look_s,
        "told": [[id, [_told(each) for each in intervals[-MOST_EACH:]]] for id, intervals in told],
        "week": [[hour, horizon, INTERVAL_OUTCOMES.index(outcome), count]
                 for hour, counts in memory.week.hours.items() for (horizon, outcome), count in counts.items()],
    }  # fmt: skip


def _told(each: StartTimeInterval) -> list[Any]:
    return [each.issued_at_s, each.from_s, each.to_s, each.median_s, int(each.calibrated), *each.features]


def memory_from_json(kept: Any) -> LearnedForecastState:
    """Return the learned state for plain values. Raise `CorruptFileContent` if a value is invalid."""
    try:
        with raise_as_corrupt():
            if kept["format"] != FORMAT:
                raise CorruptFileContent(f"format {kept['format']!r:.20}: must be {FORMAT}")
            found = LearnedForecastState(
                _time(kept["clock_s"]),
                [_end(*row) for row in kept["ends"][-MOST_ENDS:]],
                IntervalCalibrator.from_memory(
                    [(tuple(map(_number, row[:-1])), _number(row[-1])) for row in kept["known"]],
                    list(map(_number, kept["below"])),
                    list(map(_number, kept["above"])),
                ),
            )
            found.telling.look_s = None if kept["look_s"] is None else _time(kept["look_s"])
            for id, rows in kept["told"][-MOST_TOLD:]:
                found.telling.told[_whole(id)] = [_interval(*row) for row in rows[-MOST_EACH:]]
            _count_week(found.week, kept["week"])
            return found
    except CpschedError as error:
        raise CorruptFileContent(str(error)) from error


def _end(id: Any, user: Any, name: Any, walltime_s: Any, units: Any, start_s: Any, end_s: Any) -> EndedJob:
    request = Request(_whole(units), (1,))
    job = Job(_whole(id), _time(start_s), _whole(walltime_s), request, user=_words(user), name=_words(name))
    return EndedJob(job, _time(start_s), _time(end_s))


def _interval(at_s: Any, from_s: Any, to_s: Any, middle_s: Any, calibrated: Any, *features: Any) -> StartTimeInterval:
    if not _time(from_s) <= _time(to_s):
        raise CorruptFileContent("an interval ends before it begins")
    numbers = tuple(map(_number, features))
    IntervalCalibrator.require_features(numbers)
    return StartTimeInterval(_time(at_s), from_s, to_s, _time(middle_s), bool(_whole(calibrated)), numbers)


def _count_week(week: PastWeekIntervalOutcomes, rows: Iterable[Any]) -> None:
    for hour, horizon, outcome, count in rows:
        if not (0 <= _whole(horizon) <= len(HORIZONS_S) and _whole(outcome) >= 0 and 0 <= _whole(count) < _MOST_COUNT):
            raise CorruptFileContent("a count is invalid")
        week.hours.setdefault(_whole(hour), {})[horizon, INTERVAL_OUTCOMES[outcome]] = count


def _whole(value: Any) -> int:
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise CorruptFileContent(f"{value!r:.60}: must be an integer")
    return value


def _time(value: Any) -> int:
    if not DATES_S[0] <= _whole(value) <= DATES_S[1]:
        raise CorruptFileContent(f"{value!r:.60}: must be a time")
    return int(value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e6:
        raise CorruptFileContent(f"{value!r:.60}: must be a number")
    return float(value)


def _words(value: Any) -> str:
    if type(value) is not str or len(value) > _MOST_LETTERS:
        raise CorruptFileContent(f"{value!r:.60}: must be a name")
    return value
