"""Run and report the steps before the first decision, such as compilation.

During start-up, the bridge makes no decisions and holds no new jobs. Jobs held by an earlier run stay held for
`MAX_HELD_WAIT_S` seconds, because most start-ups are shorter, and are then released to the cluster's own scheduler. The
same rule applies while a bridge without a fallback restarts the dispatcher's process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.cycle.loop_clock import LoopClock

MAX_HELD_WAIT_S = 60.0
"""Seconds for which held jobs wait for a decision, less than the dead-man timer waits by default."""
CHECK_INTERVAL_S = 0.5
"""Seconds between progress checks."""

Step = Callable[[], str | None]
"""A function that does the next part of a step and may take several seconds.

It returns a description of the remaining work, or None once the step is done.
"""
ProgressListener = Callable[[str], None]
"""A function that receives what the bridge is waiting for, or empty text once the wait is over."""


@dataclass(slots=True)
class BridgeStartupSteps:
    """The steps of a start-up, in order, and the listeners for their progress."""

    steps: list[Step] = field(default_factory=list)
    progress_listeners: Sequence[ProgressListener] = ()
    _reported_step: str = ""
    _has_decided: bool = False
    _waits_for: str = ""
    """What the next decision is waiting for, since monotonic time `_since_s`."""
    _since_s: float = 0.0

    def poll_pending_step(self) -> str | None:
        """Return a description of the current step, or None once all steps are done."""
        while self.steps:
            text = self.steps[0]()
            if text is not None:
                self.report_step(text)
                return text
            del self.steps[0]
        return None

    def report_step(self, step: str) -> None:
        """Report what the bridge is waiting for. Report the end of the wait only once."""
        if step or self._reported_step:
            self._reported_step = step
            for listener in self.progress_listeners:
                listener(step)

    def wait(self, pace: LoopClock, on_look: Callable[[], None]) -> bool:
        """Run the steps for up to `MAX_HELD_WAIT_S` s. Return False if the loop must end."""
        until_s = pace.monotonic_s() + MAX_HELD_WAIT_S
        while self.poll_pending_step() is not None and pace.monotonic_s() < until_s:
            on_look()
            if not pace.wait(CHECK_INTERVAL_S):
                return False
        if not self.steps:
            self.report_step("")
        return not pace.is_stopped

    def record_decision_wait(self, text: str, now_s: float) -> None:
        """Record what the next decision waits for ("": nothing) at monotonic time `now_s`."""
        if text and not self._waits_for:
            self._since_s = now_s
        self._waits_for, self._has_decided = text, self._has_decided or not text

    def overdue_decision_reason(self, now_s: float) -> str | None:
        """Return why the bridge must not hold jobs, or None if decisions are not overdue."""
        if not self._waits_for or (self._has_decided and now_s - self._since_s < MAX_HELD_WAIT_S):
            return None
        return f"no decision yet: {self._waits_for}"


@dataclass(slots=True)
class ThrottledProgressReporter:
    """A reporter that forwards one message per `every_s` seconds, and each wait's end."""

    listener: ProgressListener
    every_s: float
    clock: Callable[[], float]
    _told_s: float | None = None

    def __call__(self, text: str) -> None:
        """Forward the current step if a message is due. Empty text is always forwarded."""
        now_s = self.clock()
        if not text or self._told_s is None or now_s - self._told_s >= self.every_s:
            self._told_s = now_s if text else None
            self.listener(text)
