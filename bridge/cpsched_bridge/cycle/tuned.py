"""The loop's side of the tuner: takes its news, and changes the policy between two cycles.

The new dispatcher begins in a process of its own while the one in force goes on deciding; it takes over once it can be
asked. Whatever goes wrong with that is told, and the policy stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cpsched.errors import RAISED, what_happened
from cpsched.policy import Policy
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.cycle.apart import Apart
from cpsched_bridge.in_force import InForce
from cpsched_bridge.report import CycleReport, Happening, Tuning


class Tuner(Protocol):
    """What the loop knows of the tuner. None of these waits for anything."""

    @property
    def told(self) -> Tuning:
        """What it has found and changed so far."""
        ...

    def news(self) -> Sequence[Happening]:
        """What is to be told, once."""
        ...

    def wanted(self) -> PolicySpec:
        """The policy that is to be in force."""
        ...


Made = tuple[Policy, InForce]
"""A policy that may decide, and what is in force with it."""


@dataclass(slots=True)
class Changing:
    """Changes the policy to what the tuner wants; `make` makes it, and begins its dispatcher's process."""

    tuner: Tuner
    make: Callable[[PolicySpec], Made]
    _coming: tuple[PolicySpec, Made] | None = field(default=None, init=False)
    _refused: PolicySpec | None = field(default=None, init=False)
    """What could not be made; it is not tried again before something else is wanted."""

    def look(self, policy: Policy, now: InForce, report: CycleReport) -> InForce:
        """What is in force from now on; `policy` becomes what it says."""
        report.happenings += self.tuner.news()
        report.tuning = self.tuner.told
        wanted = self.tuner.wanted()
        if self._coming is not None and self._coming[0] != wanted:
            self.close()
        if wanted in (now.policy, self._refused):
            return now
        try:
            self._coming = self._coming or (wanted, self.make(wanted))
            _, (coming, told) = self._coming
            if isinstance(coming.dispatcher, Apart) and coming.dispatcher.waits_for() is not None:
                return now
        except RAISED as error:
            self._refused = wanted
            self.close()
            report.tell("tuning_failed", f"{wanted} cannot be made: {what_happened(error)}")
            return now
        before, self._coming = policy.dispatcher, None
        policy.become(coming)
        if isinstance(before, Apart):
            before.close()
        report.tell("in_force", told.in_words())
        report.in_force = told.deciding
        return told

    def close(self) -> None:
        """End what was begun and did not come into force."""
        if self._coming is not None and isinstance(self._coming[1][0].dispatcher, Apart):
            self._coming[1][0].dispatcher.close()
        self._coming = None
