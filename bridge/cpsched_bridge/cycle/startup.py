"""Run the start-up steps, such as imports and compiling, that precede the first decision. All steps are reported.

During start-up, the bridge makes no decisions and holds no new jobs. Jobs held by an earlier run stay held for
`KEPT_S` seconds, because most start-ups are shorter, and are then released to the cluster's own scheduler. The same
applies while the dispatcher's process of a bridge without a fallback restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.ports import LoopClock

KEPT_S = 60.0
"""Seconds for which held jobs wait for a decision. The dead-man timer waits longer for a heartbeat."""
LOOK_S = 0.5
"""Seconds between two progress checks."""

Step = Callable[[], str | None]
"""A function that does the next part of a step, which may take seconds.

Returns the remaining work as text, or None once the step is done.
"""
Teller = Callable[[str], None]
"""A function that receives, at each progress check, what the bridge waits for; empty text if it does not wait."""


@dataclass(slots=True)
class BridgeStartup:
    """The steps of a start-up, in order, and the listeners for their progress."""

    steps: list[Step] = field(default_factory=list)
    tellers: Sequence[Teller] = ()
    _told: str = ""
    _has_decided: bool = False
    _words: str = ""
    """What a decision waits for (`_words`), and the monotonic time since when (`_since_s`)."""
    _since_s: float = 0.0

    def pending_step(self) -> str | None:
        """Return the current step as text, or None once all steps are done."""
        while self.steps:
            words = self.steps[0]()
            if words is not None:
                self.report_step(words)
                return words
            del self.steps[0]
        return None

    def report_step(self, words: str) -> None:
        """Report what the bridge waits for. Empty text reports the end of the wait, once."""
        if words or self._told:
            self._told = words
            for teller in self.tellers:
                teller(words)

    def wait(self, pace: LoopClock, on_look: Callable[[], None]) -> bool:
        """Run the steps for at most `KEPT_S` seconds. Return False if the loop must end."""
        until_s = pace.monotonic_s() + KEPT_S
        while self.pending_step() is not None and pace.monotonic_s() < until_s:
            on_look()
            if not pace.wait(LOOK_S):
                return False
        if not self.steps:
            self.report_step("")
        return not pace.is_stopped

    def record_decision_wait(self, words: str, now_s: float) -> None:
        """Record what a decision waits for at monotonic time `now_s`; empty text if it does not wait."""
        if words and not self._words:
            self._since_s = now_s
        self._words, self._has_decided = words, self._has_decided or not words

    def no_decision_reason(self, now_s: float) -> str | None:
        """Return why the bridge must hold no jobs, because no decision was made for too long; otherwise None."""
        if not self._words or (self._has_decided and now_s - self._since_s < KEPT_S):
            return None
        return f"no decision yet: {self._words}"


@dataclass(slots=True)
class ThrottledProgressReporter:
    """A reporter that forwards at most one message per `every_s` seconds, and the end of the wait immediately."""

    teller: Teller
    every_s: float
    clock: Callable[[], float]
    _told_s: float | None = None

    def __call__(self, words: str) -> None:
        """Forward the current step if a message is due."""
        now_s = self.clock()
        if not words or self._told_s is None or now_s - self._told_s >= self.every_s:
            self._told_s = now_s if words else None
            self.teller(words)
