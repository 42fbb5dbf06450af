"""Repeats what `cpsched doctor` checks while the bridge works, and tells what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cpsched_bridge.cycle.guard import concerning
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, Check
from cpsched_bridge.report import CycleReport

UNANSWERED = "checks"
"""The check that there are checks at all."""


@dataclass(slots=True)
class Checking:
    """Asks `backend` every `every_s` seconds, the first time so long after the bridge began; 0: never."""

    backend: Backend
    every_s: float
    now_s: float
    mode: str = "control"
    """The mode that is configured: checks that do not concern it are left out."""
    _failing: dict[str, str] = field(default_factory=dict, init=False)

    def note(self, now_s: float, report: CycleReport) -> None:
        """Check if it is time to, at a monotonic time.

        A failed check is an event when it begins to fail and when it says something else, another one when it holds
        again. Nothing here fails the cycle: jobs go on as long as they can.
        """
        if not self.every_s or now_s - self.now_s < self.every_s:
            return
        self.now_s = now_s
        report.checks = self._checks()
        failing = {check.name: _words(check) for check in report.checks if not check.ok}
        for name in failing:
            if failing[name] != self._failing.get(name):
                report.tell("check_failed", f"{name}: {failing[name]}")
        for name in self._failing.keys() - failing.keys():
            report.tell("check_mended", name)
        self._failing = failing

    def _checks(self) -> Sequence[Check]:
        try:
            return [Check(UNANSWERED, True, "answered"), *concerning(self.backend.checks(), self.mode)]
        except BackendError as error:
            return [Check(UNANSWERED, False, str(error))]


def _words(check: Check) -> str:
    return f"{check.detail}; {check.mend}".rstrip("; ")
