"""What a bridge does before it decides: imports, compiling. All of it is told, none of it is a decision.

Until then the bridge holds nothing new. What a former run held stays held for `KEPT_S` seconds, since most beginnings
are shorter, and goes back to the cluster's own scheduler if the beginning takes longer. The same goes for a bridge that
nobody decides for, because its dispatcher's process begins anew and there is no fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.ports import Pace

KEPT_S = 60.0
"""How long held jobs wait for somebody who decides. The dead-man timer waits longer for a sign of life."""
LOOK_S = 0.5
"""Time between two looks at how far it is."""

Step = Callable[[], str | None]
"""Something to be done, in its turn: what is left of it in words, or None once it is done. It may take seconds."""
Teller = Callable[[str], None]
"""Is told what the bridge waits for, each time it is looked at; empty words: for nothing any more."""


@dataclass(slots=True)
class Beginning:
    """The steps of a beginning, one after the other, and those who are told of it."""

    steps: list[Step] = field(default_factory=list)
    tellers: Sequence[Teller] = ()
    _told: str = ""

    def waits_for(self) -> str | None:
        """What is being done, in words; None when all is done, and from then on."""
        while self.steps:
            words = self.steps[0]()
            if words is not None:
                self.tell(words)
                return words
            del self.steps[0]
        return None

    def tell(self, words: str) -> None:
        """Tell what is waited for, or with empty words that nothing is; that is told once."""
        if words or self._told:
            self._told = words
            for teller in self.tellers:
                teller(words)


@dataclass(slots=True)
class Seldom:
    """Passes on to a teller what comes `every_s` seconds after it was last told something; and the end, at once."""

    teller: Teller
    every_s: float
    clock: Callable[[], float]
    _told_s: float | None = None

    def __call__(self, words: str) -> None:
        """Take note of what is being done."""
        now_s = self.clock()
        if not words or self._told_s is None or now_s - self._told_s >= self.every_s:
            self._told_s = now_s if words else None
            self.teller(words)


@dataclass(slots=True)
class BeginningPatience:
    """For how long nobody could decide."""

    begun: bool = False
    """Whether somebody ever could."""
    _words: str = ""
    _since_s: float = 0.0

    def note(self, words: str, now_s: float) -> None:
        """Take note of what a decision waits for at a monotonic time; empty words: for nothing."""
        if words and not self._words:
            self._since_s = now_s
        self._words, self.begun = words, self.begun or not words

    def trouble(self, now_s: float) -> str | None:
        """Why the bridge must hold no jobs."""
        if not self._words or (self.begun and now_s - self._since_s < KEPT_S):
            return None
        return f"nothing can be decided yet: {self._words}"


def waited(beginning: Beginning, pace: Pace, beat: Callable[[], None]) -> bool:
    """Wait for the beginning, `KEPT_S` seconds at most, with signs of life; False if the loop is to end."""
    until_s = pace.monotonic_s() + KEPT_S
    while beginning.waits_for() is not None and pace.monotonic_s() < until_s:
        beat()
        if not pace.wait(LOOK_S):
            return False
    if not beginning.steps:
        beginning.tell("")
    return not pace.stopped
