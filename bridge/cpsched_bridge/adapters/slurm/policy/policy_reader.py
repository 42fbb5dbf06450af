"""When a site's policy is read, and what is kept when no answer comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched.errors import CpschedError, exception_message
from cpsched_bridge.adapters.slurm.policy.policy_commands import NEEDED, PolicyOutput, PolicyQuery
from cpsched_bridge.adapters.slurm.policy.policy_parsing import SitePolicySnapshot, parse_site_policy

LONGEST_PERIOD_S = 300.0
"""Slurm's default of PriorityCalcPeriod; a site with a longer one is read as often as this."""
RETRY_S = 30.0
"""Seconds until a reading that failed is tried again."""


@dataclass(slots=True)
class PolicyReader:
    """The last picture of a site's policy, renewed at the pace of `PriorityCalcPeriod`.

    A reading that fails leaves the last picture as it is. Each change from answers to none, and back, is told once.
    """

    asking: PolicyQuery
    clock: Callable[[], float]
    """Seconds of a clock that never goes back."""
    picture: SitePolicySnapshot | None = None
    version: int = 0
    """Grows with every new picture."""
    failures: dict[str, str] = field(default_factory=dict)
    """By the name of an answer, why the last reading had none."""
    _due_s: float | None = None
    _asked: bool = False
    _texts: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Ask for the first picture, unless that has been done: the first `look` then waits for less."""
        if self._due_s is None and not self._asked:
            self.asking.start()
            self._asked = True

    def look(self) -> list[str]:
        """Ask if it is time to, take what has come; returns what is to be told, a line each.

        The first call waits for the answers, as long as they may take; later ones never wait.
        """
        first = self._due_s is None
        if not self._asked and (self._due_s is None or self.clock() >= self._due_s):
            self.asking.start()
            self._asked = True
        if not self._asked:
            return []
        found = self.asking.answer(wait=first)
        if found is None:
            return []
        self._asked = False
        return self._take(found)

    def _take(self, found: PolicyOutput) -> list[str]:
        """Draw a new picture; an answer that is missing is replaced by the one before."""
        failures = dict(found.failures)
        texts = self._texts | dict(found.texts)
        try:
            if missing := [name for name in NEEDED if name not in texts]:
                raise CpschedError(f"no {' and no '.join(missing)}")
            picture = parse_site_policy(texts)
        except Exception as error:  # an answer of a form that nobody foresaw must not end the bridge
            failures["picture"] = exception_message(error)
        else:
            self._texts = texts
            if picture != self.picture:
                self.picture, self.version = picture, self.version + 1
        period_s = min(self.picture.period_s if self.picture else LONGEST_PERIOD_S, LONGEST_PERIOD_S)
        self._due_s = self.clock() + (min(RETRY_S, period_s) if failures else period_s)
        told = _changes(self.failures, failures, self.picture is not None)
        self.failures = failures
        return told

    def close(self) -> None:
        """End what is on its way."""
        self.asking.close()


def _changes(before: dict[str, str], now: dict[str, str], known: bool) -> list[str]:
    """What is new about failures, in words."""
    stands_in = "the last known stands in" if known else "jobs go by arrival until there is one"
    lost = [f"site policy: no {name}: {why}; {stands_in}" for name, why in now.items() if name not in before]
    back = [f"site policy: {name} is read again" for name in before if name not in now]
    return [*lost, *back]
