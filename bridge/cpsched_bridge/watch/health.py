"""Whether the loop is alive, and whether its last cycle was good, with reasons in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched.errors import printable
from cpsched_bridge.report import OK, CycleReport
from cpsched_bridge.settings import CycleSettings

_SLACK_S = 30.0
"""For reading the cluster and sending commands, beside the decision and the pause."""
_MOST_TOLD = 5


@dataclass(slots=True)
class Health:
    """Takes in the end of each cycle; asked from another thread."""

    cycle: CycleSettings
    clock: Callable[[], float] = time.monotonic
    _last_s: float = field(init=False)
    _report: CycleReport | None = None

    def __post_init__(self) -> None:
        self._last_s = self.clock()

    @property
    def limit_s(self) -> float:
        """The longest time between the ends of two cycles of a loop that is alive."""
        return self.cycle.decide_timeout_s + max(self.cycle.max_backoff_s, self.cycle.interval_s) + _SLACK_S

    def __call__(self, report: CycleReport) -> None:
        """Take note of one cycle."""
        self._report, self._last_s = report, self.clock()

    def stalled(self) -> list[str]:
        """Why the loop does not seem to be alive; empty if it is."""
        age_s = self.clock() - self._last_s
        if age_s <= self.limit_s:
            return []
        return [f"no cycle ended for {age_s:.0f} s; the longest that a living loop takes is {self.limit_s:.0f} s"]

    def not_ready(self) -> list[str]:
        """Why the bridge does no good work now; empty if its last cycle was good."""
        report, found = self._report, self.stalled()
        if report is None:
            return [*found, "no cycle has ended yet"]
        if report.result != OK:
            told = [h.detail for h in report.happenings if h.kind == report.result][:_MOST_TOLD]
            found.append(f"round {report.number} failed: {report.result}")
            found += [printable(detail)[:500] for detail in told]
        return found

    def told(self) -> str:
        """What the last cycle was, where nothing is wrong."""
        report = self._report
        return "no cycle yet" if report is None else f"round {report.number}, {report.mode}, {report.result}"
