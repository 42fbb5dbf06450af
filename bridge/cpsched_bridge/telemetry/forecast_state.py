"""Store the learned state of the forecasts in a file with a checksum, written atomically.

The state consists of ended jobs, start intervals, and the outcomes of intervals. Each value read from the file is
validated. An invalid value raises `CorruptFileContent`. Decisions do not use the file. If it is damaged, it is
discarded and learning restarts.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cpsched.errors import CpschedError
from cpsched.forecast import (
    FIRST_CLASS,
    INTERVAL_OUTCOMES,
    LEVELS,
    IssuedStartForecasts,
    StartCalibrator,
    StartForecast,
)
from cpsched.model import EndedJob, Job, Request
from cpsched_bridge.store.corruption_checks import (
    DATE_RANGE_S,
    CorruptFileContent,
    add_checksum,
    convert_content_errors,
    read_file_head,
    require_regular_file_or_missing,
    verify_checksum,
)
from cpsched_bridge.store.lock_and_request_files import replace_file
from cpsched_bridge.telemetry.forecast_outcomes import PastWeekIntervalOutcomes

MAX_BYTES = 16 << 20
MAX_UNPACKED_BYTES = 64 << 20
FORMAT = 3
MAX_ENDED_JOBS = 20_000
"""Maximum number of stored ended jobs. The oldest are dropped first."""
MAX_JOBS_WITH_INTERVALS = 20_000
"""Maximum number of jobs with intervals. The oldest are dropped first."""
MAX_INTERVALS_PER_JOB = 200
"""Maximum number of intervals per job. The oldest are dropped first."""
_MAX_NAME_CHARS = 256
_MAX_POLICY_CHARS = 1 << 16
_MAX_COUNT = 10**9


def write_forecast_state(path: Path, kept: Any) -> None:
    """Replace the stored state with `kept`. Raise `OSError`, with the file unchanged."""
    packed = add_checksum(zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), 6))
    if len(packed) > MAX_BYTES:
        raise OSError(f"size of {len(packed):,} bytes: must be at most {MAX_BYTES:,} bytes")
    replace_file(path, packed)


def read_forecast_state(path: Path) -> Any:
    """Return the stored state, or None if there is no file.

    Raise `CorruptFileContent` or `OSError`.
    """
    require_regular_file_or_missing(path)
    try:
        packed = read_file_head(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(packed) > MAX_BYTES:
        raise CorruptFileContent(f"is longer than {MAX_BYTES:,} bytes")
    with convert_content_errors():
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(verify_checksum(packed), MAX_UNPACKED_BYTES)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise CorruptFileContent("the compressed data has the wrong length")
        return json.loads(text)


@dataclass(slots=True)
class LearnedForecastState:
    """The forecasts' learned state."""

    clock_s: int = 0
    """Cluster time of the last observation, in seconds."""
    policy: str = ""
    """Mode and policy under which `calibration` was learned."""
    ends: Sequence[EndedJob] = ()
    """The ended jobs, oldest first."""
    calibration: StartCalibrator = field(default_factory=StartCalibrator)
    issued: IssuedStartForecasts = field(default_factory=IssuedStartForecasts)
    week: PastWeekIntervalOutcomes = field(default_factory=PastWeekIntervalOutcomes)


def forecast_state_to_json(memory: LearnedForecastState) -> Any:
    """Return the learned state as plain values."""
    forecasts = list(memory.issued.by_job.items())[-MAX_JOBS_WITH_INTERVALS:]
    return {
        "format": FORMAT,
        "clock_s": memory.clock_s,
        "policy": memory.policy,
        "ends": [
            [e.job.id, e.job.user[:_MAX_NAME_CHARS], e.job.name[:_MAX_NAME_CHARS], e.job.walltime_s,
             e.job.request.units, e.start_s, e.end_s]
            for e in memory.ends
        ],
        "known": [[*features, ratio] for features, ratio in memory.calibration.past_errors],
        "levels": memory.calibration.levels_by_class,
        "first_outcomes": memory.calibration.first_outcomes,
        "told": [[id, [_forecast_to_json(each) for each in intervals[-MAX_INTERVALS_PER_JOB:]]]
                 for id, intervals in forecasts],
        "week": [[hour, outcome_class, INTERVAL_OUTCOMES.index(outcome), count]
                 for hour, counts in memory.week.hours.items() for (outcome_class, outcome), count in counts.items()],
    }  # fmt: skip


def _forecast_to_json(each: StartForecast) -> list[Any]:
    flags = map(int, (each.calibrated, each.learned, each.first))
    return [each.issued_at_s, list(each.quantiles_s), *flags, each.user[:_MAX_NAME_CHARS], *each.features]


def forecast_state_from_json(kept: Any) -> LearnedForecastState:
    """Return the learned state from plain values. Raise `CorruptFileContent`."""
    try:
        with convert_content_errors():
            if kept["format"] != FORMAT:
                raise CorruptFileContent(f"format {kept['format']!r:.20}: must be {FORMAT}")
            found = LearnedForecastState(
                _require_time(kept["clock_s"]),
                _require_name(kept["policy"], _MAX_POLICY_CHARS),
                [_parse_ended_job(*row) for row in kept["ends"][-MAX_ENDED_JOBS:]],
                StartCalibrator.from_memory(
                    [(tuple(map(_require_number, row[:-1])), _require_number(row[-1])) for row in kept["known"]],
                    [list(map(_require_number, row)) for row in kept["levels"]],
                    _require_integer(kept["first_outcomes"]),
                ),
            )
            for id, rows in kept["told"][-MAX_JOBS_WITH_INTERVALS:]:
                found.issued.by_job[_require_integer(id)] = [
                    _parse_forecast(*row) for row in rows[-MAX_INTERVALS_PER_JOB:]
                ]
            _add_week_counts(found.week, kept["week"])
            return found
    except CpschedError as error:
        raise CorruptFileContent(str(error)) from error


def _parse_ended_job(id: Any, user: Any, name: Any, walltime_s: Any, units: Any, start_s: Any, end_s: Any) -> EndedJob:
    request = Request(_require_integer(units), (1,))
    job = Job(
        _require_integer(id),
        _require_time(start_s),
        _require_integer(walltime_s),
        request,
        user=_require_name(user),
        name=_require_name(name),
    )
    return EndedJob(job, _require_time(start_s), _require_time(end_s))


def _parse_forecast(
    at_s: Any, quantiles_s: Any, calibrated: Any, learned: Any, first: Any, user: Any, *features: Any
) -> StartForecast:
    starts_s = tuple(map(_require_time, quantiles_s))
    if len(starts_s) != len(LEVELS) or list(starts_s) != sorted(starts_s):
        raise CorruptFileContent(f"a forecast must have {len(LEVELS)} ascending quantiles")
    numbers = tuple(map(_require_number, features))
    StartCalibrator.require_feature_count(numbers)
    return StartForecast(
        _require_time(at_s),
        starts_s,
        bool(_require_integer(calibrated)),
        bool(_require_integer(learned)),
        bool(_require_integer(first)),
        _require_name(user),
        numbers,
    )


def _add_week_counts(week: PastWeekIntervalOutcomes, rows: Iterable[Any]) -> None:
    for hour, outcome_class, outcome, count in rows:
        if not (
            0 <= _require_integer(outcome_class) <= FIRST_CLASS
            and _require_integer(outcome) >= 0
            and 0 <= _require_integer(count) < _MAX_COUNT
        ):
            raise CorruptFileContent("a count is invalid")
        week.hours.setdefault(_require_integer(hour), {})[outcome_class, INTERVAL_OUTCOMES[outcome]] = count


def _require_integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise CorruptFileContent(f"{value!r:.60}: must be an integer")
    return value


def _require_time(value: Any) -> int:
    if not DATE_RANGE_S[0] <= _require_integer(value) <= DATE_RANGE_S[1]:
        raise CorruptFileContent(f"{value!r:.60}: must be a time")
    return int(value)


def _require_number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > 1e6:
        raise CorruptFileContent(f"{value!r:.60}: must be a number")
    return float(value)


def _require_name(value: Any, most: int = _MAX_NAME_CHARS) -> str:
    if type(value) is not str or len(value) > most:
        raise CorruptFileContent(f"{value!r:.60}: must be a name")
    return value
