"""Time without a cycle that nobody planned: a stopped process, a machine without time, a cycle that took long."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpsched_bridge.report import CycleReport


@dataclass(slots=True)
class Gaps:
    """Compares the beginnings of cycles; one that comes more than `longest_s` late ends a gap."""

    longest_s: float
    _due_s: float | None = field(default=None, init=False)
    """Monotonic time at which the next cycle should begin."""

    def note(self, now_s: float, report: CycleReport) -> None:
        """Take note of a cycle that begins at a monotonic time, and tell the gap before it, if there was one."""
        if self._due_s is not None and now_s - self._due_s > self.longest_s:
            report.gap_s = now_s - self._due_s
            report.tell("cycle_gap", f"this cycle began {report.gap_s:.1f} s late")

    def plan(self, due_s: float) -> None:
        """Take note of when the next cycle is to begin, as a monotonic time."""
        self._due_s = due_s
