"""Cut a trace's last weeks into windows, which are replayed separately.

Each window has a margin before and after it. Jobs that arrive in the margins are replayed but not judged. The first
margin fills the machine. The second keeps it busy until the last judged jobs have started. Predictors learn from the
history: the jobs that ended before the window.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cpsched.errors import require
from cpsched.model import EndedJob
from cpsched_sim.errors import InputError
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload

DAY_S = 86_400
MIN_WINDOWS = 4
"""Minimum number of windows: two for choosing and two for judging."""
MIN_WINDOW_JOBS = 20
"""Minimum number of judged jobs in a window."""
MAX_HISTORY_JOBS = 2000
"""Maximum number of earlier jobs that predictors learn from."""
MARGIN_SHARE = 1 / 7
"""The margin before and after a window, relative to its length."""


@dataclass(frozen=True, slots=True, eq=False)
class TuningWindow:
    """A part of a trace with margins. Only jobs between the margins are judged.

    `workload` includes the margins' jobs. Its history are the jobs that ended before the window.
    """

    workload: Workload
    from_s: int
    to_s: int
    judged: int
    digest: str
    """A digest that is equal for equal jobs on equal machines."""

    @property
    def days(self) -> float:
        """Return the length of the window in days, without margins."""
        return (self.to_s - self.from_s) / DAY_S


@dataclass(frozen=True, slots=True)
class TuningWindowSplit:
    """The choosing and judging windows. No window is used for both."""

    choosing: tuple[TuningWindow, ...]
    judging: tuple[TuningWindow, ...]

    @property
    def all(self) -> tuple[TuningWindow, ...]:
        """Return all windows in order of time."""
        return tuple(sorted((*self.choosing, *self.judging), key=lambda window: window.from_s))


def split_last_weeks(
    workload: Workload, weeks: float, window_days: float, most_jobs: int
) -> tuple[TuningWindowSplit, list[str]]:
    """Return the windows of the last `weeks`, and notes on omissions.

    Windows are shortened if the trace has too few weeks for `MIN_WINDOWS`. They are assigned to the halves in the
    pattern 0, 1, 1, 0, so that each half includes every part of the week. A window with more than `most_jobs` jobs is
    cut at its end. Raise `InputError` if fewer than `MIN_WINDOWS` windows have at least `MIN_WINDOW_JOBS` jobs.
    """
    require(weeks > 0, "weeks", weeks, "must be positive")
    require(window_days > 0, "window_days", window_days, "must be positive")
    submits = [entry.job.submit_s for entry in workload.jobs]
    last_s, first_s = submits[-1] + 1, max(submits[0], int(submits[-1] + 1 - 7 * DAY_S * weeks))
    notes = []
    if first_s == submits[0] and last_s - first_s < 0.95 * 7 * DAY_S * weeks:
        notes.append(f"the trace has {(last_s - first_s) / 7 / DAY_S:.1f} weeks, fewer than the {weeks:g} requested")
    length_s = min(int(window_days * DAY_S), (last_s - first_s) // MIN_WINDOWS)
    require(length_s > 0, "trace", f"{last_s - first_s} s", "is too short to be cut into windows")
    if length_s < window_days * DAY_S:
        notes.append(f"windows are {length_s / DAY_S:.2g} days long, so that there are {MIN_WINDOWS}")
    begins = [last_s - length_s * (at + 1) for at in range((last_s - first_s) // length_s)][::-1]
    found = [cut_tuning_window(workload, submits, begin_s, begin_s + length_s, most_jobs) for begin_s in begins]
    kept = [window for window in found if window.judged >= MIN_WINDOW_JOBS]
    if len(kept) < len(found):
        notes.append(
            f"{len(found) - len(kept)} of {len(found)} windows have fewer than {MIN_WINDOW_JOBS} jobs and are omitted"
        )
    cut = sum(window.to_s - window.from_s < length_s for window in kept)
    if cut:
        notes.append(f"{cut} windows have more than {most_jobs:,} jobs and were cut there")
    if len(kept) < MIN_WINDOWS:
        raise InputError(
            f"{workload.name}: windows={len(kept)}: must be at least {MIN_WINDOWS} windows of {length_s / DAY_S:.2g} "
            f"days with at least {MIN_WINDOW_JOBS} jobs each: use more weeks or shorter windows"
        )
    sides: tuple[list[TuningWindow], list[TuningWindow]] = ([], [])
    for at, window in enumerate(kept):
        sides[at % 4 in (1, 2)].append(window)
    return TuningWindowSplit(tuple(sides[0]), tuple(sides[1])), notes


def cut_tuning_window(
    workload: Workload, submits: Sequence[int], from_s: int, to_s: int, most_jobs: int
) -> TuningWindow:
    """Return the window of jobs that arrive in [`from_s`, `to_s`).

    `submits` are the arrivals of all jobs. The window and each of its margins have at most `most_jobs` jobs.
    """
    margin_s = int(MARGIN_SHARE * (to_s - from_s))
    first, last = bisect_left(submits, from_s), bisect_left(submits, to_s)
    if last - first > most_jobs:
        last = first + most_jobs
        to_s = submits[last]
        last = bisect_left(submits, to_s)
    begin = max(bisect_left(submits, from_s - margin_s), first - most_jobs)
    end = min(bisect_left(submits, to_s + margin_s), last + most_jobs)
    jobs = workload.jobs[begin:end]
    history = (
        _ended_jobs_before(workload.jobs[max(0, begin - MAX_HISTORY_JOBS) : begin], submits[begin])
        if begin < len(submits)
        else ()
    )
    part = replace(workload, jobs=jobs, notes=(), history=history)
    return TuningWindow(part, from_s, to_s, last - first, _window_digest(part, from_s, to_s))


def _ended_jobs_before(before: Sequence[TraceJob], now_s: int) -> tuple[EndedJob, ...]:
    """Return the jobs that would have ended by `now_s` if all had started at once.

    They are in order of their ends.
    """
    ended = [EndedJob(each.job, each.job.submit_s, each.job.submit_s + each.run_s) for each in before]
    return tuple(sorted((each for each in ended if each.end_s <= now_s), key=lambda each: each.end_s))


def _window_digest(part: Workload, from_s: int, to_s: int) -> str:
    cluster, found = part.cluster, hashlib.sha256()
    facts = (cluster.node_names, cluster.resources, cluster.power, from_s, to_s, part.site and part.site.sha256)
    found.update(repr(facts).encode())
    found.update(cluster.capacity.tobytes() + cluster.node_sets.tobytes())
    for entry in part.jobs:
        found.update(repr((entry.job, entry.run_s)).encode())
    for ended in part.history:
        found.update(repr((ended.job, ended.end_s)).encode())
    return found.hexdigest()
