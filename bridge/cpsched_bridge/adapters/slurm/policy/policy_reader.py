"""Decide when to read a site's policy, and which data to keep if no answer arrives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched.errors import CpschedError, exception_message
from cpsched_bridge.adapters.slurm.policy.policy_commands import NEEDED, SitePolicyOutput, SitePolicyQuery
from cpsched_bridge.adapters.slurm.policy.policy_parsing import SitePolicySnapshot, parse_site_policy

LONGEST_PERIOD_S = 300.0
"""Maximum interval between readings in seconds: Slurm's default of PriorityCalcPeriod."""
RETRY_S = 30.0
"""Seconds after which a failed reading is repeated."""


@dataclass(slots=True)
class SitePolicyReader:
    """A cache of the last snapshot of a site's policy, which is renewed every `PriorityCalcPeriod`.

    A failed reading keeps the last snapshot. Each failure and each recovery is reported once.
    """

    asking: SitePolicyQuery
    clock: Callable[[], float]
    """Returns a monotonic time in seconds."""
    picture: SitePolicySnapshot | None = None
    version: int = 0
    """Number that increases with every new snapshot."""
    failures: dict[str, str] = field(default_factory=dict)
    """By the name of an answer, why the last reading lacked it."""
    _due_s: float | None = None
    _asked: bool = False
    _texts: dict[str, str] = field(default_factory=dict)

    def start_reading(self) -> None:
        """Start the first reading early, so that the first `poll` waits less."""
        if self._due_s is None and not self._asked:
            self.asking.start()
            self._asked = True

    def poll(self) -> list[str]:
        """Start a reading if it is due, collect available answers, and return messages to log.

        The first call waits for the answers until their deadline. Later calls never wait.
        """
        first = self._due_s is None
        if not self._asked and (self._due_s is None or self.clock() >= self._due_s):
            self.asking.start()
            self._asked = True
        if not self._asked:
            return []
        found = self.asking.collect_output(wait=first)
        if found is None:
            return []
        self._asked = False
        return self._take(found)

    def _take(self, found: SitePolicyOutput) -> list[str]:
        """Create a new snapshot, using the previous answer for a missing one; return messages to log."""
        failures = dict(found.failures)
        texts = self._texts | dict(found.texts)
        try:
            if missing := [name for name in NEEDED if name not in texts]:
                raise CpschedError(f"no {' and no '.join(missing)}")
            picture = parse_site_policy(texts)
        except Exception as error:  # an unforeseen answer must not stop the bridge
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
        """Stop a running reading."""
        self.asking.close()


def _changes(before: dict[str, str], now: dict[str, str], known: bool) -> list[str]:
    """Return messages about new failures and about recoveries."""
    stands_in = "the last known stands in" if known else "jobs go by arrival until there is one"
    lost = [f"site policy: no {name}: {why}; {stands_in}" for name, why in now.items() if name not in before]
    back = [f"site policy: {name} is read again" for name in before if name not in now]
    return [*lost, *back]
