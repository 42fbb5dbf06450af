"""Whether the loop is alive, and whether its last cycle was good, with reasons in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched.errors import escape_controls
from cpsched_bridge.cycle_report import LATE_INTERVALS, OK, CycleReport
from cpsched_bridge.settings import CycleSettings

_SLACK_S = 30.0
"""For reading the cluster and sending commands, beside the decision and the pause."""
_MOST_TOLD = 5


@dataclass(slots=True)
class LoopHealth:
    """Takes in the end of each cycle; asked from another thread."""

    cycle: CycleSettings
    clock: Callable[[], float] = time.monotonic
    _last_s: float = field(init=False)
    _report: CycleReport | None = None
    _waits_for: str = ""

    def __post_init__(self) -> None:
        self._last_s = self.clock()

    @property
    def limit_s(self) -> float:
        """The longest time between the ends of two cycles of a loop that is alive."""
        return (
            self.cycle.decide_timeout_s
            + max(self.cycle.max_backoff_s, self.cycle.max_interval_factor * self.cycle.interval_s)
            + _SLACK_S
        )

    @property
    def fresh_s(self) -> float:
        """How long after the end of a good cycle the next one ends, unless it begins or takes so long as to be told."""
        return (self.cycle.max_interval_factor + LATE_INTERVALS) * self.cycle.interval_s

    def __call__(self, report: CycleReport) -> None:
        """Take note of one cycle."""
        self._report, self._last_s, self._waits_for = report, self.clock(), report.waits_for

    def begins(self, words: str) -> None:
        """Take note of what is done before the first cycle, or of nothing any more; a bridge that does it is alive."""
        self._waits_for, self._last_s = words, self.clock()

    @property
    def waits_for(self) -> str:
        """What a decision waits for, in words; empty: for nothing."""
        return self._waits_for

    def stalled(self) -> list[str]:
        """Why the loop does not seem to be alive; empty if it is."""
        age_s = self.clock() - self._last_s
        if age_s <= self.limit_s:
            return []
        return [f"no cycle ended for {age_s:.0f} s; the longest that a living loop takes is {self.limit_s:.0f} s"]

    def not_ready(self) -> list[str]:
        """Why the bridge does no good work now; empty if its last cycle was good, and a moment ago."""
        report, found = self._report, self.stalled()
        if self._waits_for:
            found.append(f"nothing can be decided yet: {self._waits_for}")
        if report is None:
            return [*found, "no cycle has ended yet"]
        if report.result != OK:
            told = [h.detail for h in report.happenings if h.kind == report.result][:_MOST_TOLD]
            found.append(f"round {report.number} failed: {report.result}")
            found += [escape_controls(detail)[:500] for detail in told]
        elif not found and (age_s := self.clock() - self._last_s) > self.fresh_s:
            found.append(f"the last good cycle ended {age_s:.0f} s ago; one ends every {self.cycle.interval_s:g} s")
        return found

    def told(self) -> str:
        """What the last cycle was, where nothing is wrong."""
        report = self._report
        return "no cycle yet" if report is None else f"round {report.number}, {report.mode}, {report.result}"
