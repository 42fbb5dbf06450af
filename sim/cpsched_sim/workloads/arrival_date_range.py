"""Select jobs by date: `2012-02-01`, `2012-02-01T12:00`, `+30d` or `+12h`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cpsched.errors import InvalidValue, require
from cpsched.model.snapshot import FIRST_DATED_S
from cpsched_sim.traces.slurm_times import parse_time_zone
from cpsched_sim.traces.trace_jobs import TraceJob

_RELATIVE_TIME = re.compile(r"\+(\d{1,6})([dh])", re.ASCII)
_UNIT_S = {"d": 86_400, "h": 3_600}
_DATE_FORM = "must be a date such as 2026-10-01, a date and a time, or +30d (days) or +12h (hours)"


@dataclass(frozen=True, slots=True)
class ArrivalDateRange:
    """The jobs that arrive at or after `from_` and before `to`.

    An empty text means no bound.

    In `from_`, `+30d` counts from the first job. In `to`, it counts from the beginning of the range. `zone` is the time
    zone of the dates, by default UTC.
    """

    from_: str = ""
    to: str = ""
    zone: str = ""

    def select_jobs(self, jobs: Sequence[TraceJob], epoch_s: int) -> list[TraceJob]:
        """Return the jobs in the range. `jobs` is in order of arrival.

        Raise `InvalidValue`.
        """
        if not jobs or self == ALL_DATES:
            return list(jobs)
        first_s = jobs[0].job.submit_s
        is_dated = first_s + epoch_s >= FIRST_DATED_S
        begin_s = self._parse_bound("--from", self.from_, first_s, epoch_s, is_dated)
        end_s = self._parse_bound("--to", self.to, begin_s, epoch_s, is_dated) if self.to else jobs[-1].job.submit_s + 1
        require(begin_s < end_s, "--from, --to", (self.from_, self.to), "the first must be before the second")
        return [entry for entry in jobs if begin_s <= entry.job.submit_s < end_s]

    def _parse_bound(self, option: str, text: str, since_s: int, epoch_s: int, is_dated: bool) -> int:
        if not text:
            return since_s
        if match := _RELATIVE_TIME.fullmatch(text):
            return since_s + int(match[1]) * _UNIT_S[match[2]]
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidValue(option, text, _DATE_FORM) from None
        require(
            is_dated,
            option,
            text,
            "requires a trace with dates (UnixStartTime in its header); use a relative time such as +30d",
        )
        return (
            int((at if at.tzinfo is not None else at.replace(tzinfo=parse_time_zone(self.zone))).timestamp()) - epoch_s
        )


ALL_DATES = ArrivalDateRange()
"""The range of the whole trace."""


def trace_epoch_s(header: Mapping[str, str]) -> int:
    """Return the Unix time of a trace's time 0: the header's UnixStartTime, or 0."""
    start = header.get("UnixStartTime", "").split()
    return int(start[0]) if start and start[0].isascii() and start[0].isdigit() and len(start[0]) < 13 else 0


def arrival_dates_text(jobs: Sequence[TraceJob], epoch_s: int) -> str:
    """Return the arrival dates: `2012-02-03 to 2012-10-12`, or the number of days.

    Return "" if there are no jobs.
    """
    if not jobs:
        return ""
    first_s, last_s = (jobs[at].job.submit_s + epoch_s for at in (0, -1))
    if first_s < FIRST_DATED_S:
        return f"{(last_s - first_s) / 86_400:.1f} days"
    try:
        return " to ".join(f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}" for at_s in (first_s, last_s))
    except (ValueError, OverflowError, OSError):  # a trace's times may be outside the range of dates
        return f"{(last_s - first_s) / 86_400:.1f} days"
