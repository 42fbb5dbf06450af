"""Start-up before the first decision: imports, compiling. All steps are reported, none is a decision.

During start-up the bridge holds no new jobs. Jobs of an earlier run stay held for `KEPT_S` seconds, because most
start-ups are shorter, and are then released to the cluster's own scheduler. The same applies to a bridge without a
fallback whose dispatcher's process restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.ports import LoopClock

KEPT_S = 60.0
"""Seconds for which held jobs wait for a decision. The dead-man timer waits longer for a sign of life."""
LOOK_S = 0.5
"""Seconds between two progress checks."""

Step = Callable[[], str | None]
"""Does the next part of a step. Returns what remains as text, or None once it is done. It may take seconds."""
Teller = Callable[[str], None]
"""Receives what the bridge waits for at each progress check; empty text: nothing."""


@dataclass(slots=True)
class BridgeStartup:
    """The steps of a start-up in order, and the listeners for their progress."""

    steps: list[Step] = field(default_factory=list)
    tellers: Sequence[Teller] = ()
    _told: str = ""
    _has_decided: bool = False
    _words: str = ""
    """What a decision waits for, and since when."""
    _since_s: float = 0.0

    def pending_step(self) -> str | None:
        """Return the current step as text; None once all are done."""
        while self.steps:
            words = self.steps[0]()
            if words is not None:
                self.report_step(words)
                return words
            del self.steps[0]
        return None

    def report_step(self, words: str) -> None:
        """Report what the bridge waits for. Empty text reports the end, once."""
        if words or self._told:
            self._told = words
            for teller in self.tellers:
                teller(words)

    def wait(self, pace: LoopClock, on_look: Callable[[], None]) -> bool:
        """Wait for the steps, at most `KEPT_S` seconds. Return False if the loop is to end."""
        until_s = pace.monotonic_s() + KEPT_S
        while self.pending_step() is not None and pace.monotonic_s() < until_s:
            on_look()
            if not pace.wait(LOOK_S):
                return False
        if not self.steps:
            self.report_step("")
        return not pace.is_stopped

    def record_decision_wait(self, words: str, now_s: float) -> None:
        """Record what a decision waits for at a monotonic time; empty text: nothing."""
        if words and not self._words:
            self._since_s = now_s
        self._words, self._has_decided = words, self._has_decided or not words

    def no_decision_reason(self, now_s: float) -> str | None:
        """Return why the bridge must hold no jobs: there has been no decision for too long."""
        if not self._words or (self._has_decided and now_s - self._since_s < KEPT_S):
            return None
        return f"no decision yet: {self._words}"


@dataclass(slots=True)
class ThrottledProgressReporter:
    """Forwards a message if `every_s` seconds have passed since the last one, and the end at once."""

    teller: Teller
    every_s: float
    clock: Callable[[], float]
    _told_s: float | None = None

    def __call__(self, words: str) -> None:
        """Forward the current step if it is due."""
        now_s = self.clock()
        if not words or self._told_s is None or now_s - self._told_s >= self.every_s:
            self._told_s = now_s if words else None
            self.teller(words)
