"""Decide when to read a site's policy, and which data to keep on failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched.errors import CpschedError, exception_message
from cpsched.slurm_text.site_policy import SitePolicyReading, parse_site_policy
from cpsched_bridge.adapters.slurm.policy.site_policy_commands import (
    REQUIRED_OUTPUTS,
    BackgroundCommandOutput,
    BackgroundCommandQuery,
)

MAX_READ_INTERVAL_S = 300.0
"""Maximum interval between readings in seconds, which is Slurm's default of PriorityCalcPeriod."""
RETRY_S = 30.0
"""Maximum time in seconds after which a failed reading is repeated."""


@dataclass(slots=True)
class PeriodicSitePolicyReader:
    """A cache of the last reading of the policy, which is kept if the next one fails.

    It is renewed every `PriorityCalcPeriod`, at least every `MAX_READ_INTERVAL_S`. `poll` reports failures and
    recoveries.
    """

    asking: BackgroundCommandQuery
    clock: Callable[[], float]
    """A function that returns a monotonic time in seconds."""
    reading: SitePolicyReading | None = None
    version: int = 0
    """A number that increases with each changed reading."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons why the last reading lacked answers, by answer name."""
    _due_s: float | None = None
    _asked: bool = False
    _texts: dict[str, str] = field(default_factory=dict)

    def start_reading(self) -> None:
        """Start the first reading early, so that the first `poll` waits less."""
        if self._due_s is None and not self._asked:
            self.asking.start()
            self._asked = True

    def poll(self) -> list[str]:
        """Start a reading if due, collect available answers, and return messages to log.

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
        return self._update_reading(found)

    def _update_reading(self, found: BackgroundCommandOutput) -> list[str]:
        """Parse the answers, using previous answers for missing ones.

        Return messages to log.
        """
        failures = dict(found.failures)
        texts = self._texts | dict(found.texts)
        try:
            if missing := [name for name in REQUIRED_OUTPUTS if name not in texts]:
                raise CpschedError(f"missing data: {', '.join(missing)}")
            reading = parse_site_policy(texts)
        except Exception as error:  # an unexpected answer must not stop the bridge
            failures["snapshot"] = exception_message(error)
        else:
            self._texts = texts
            if reading != self.reading:
                self.reading, self.version = reading, self.version + 1
        period_s = MAX_READ_INTERVAL_S
        if self.reading is not None:
            period_s = min(period_s, self.reading.policy.priority.period_s)
        self._due_s = self.clock() + (min(RETRY_S, period_s) if failures else period_s)
        changes = _describe_failure_changes(self.failures, failures, self.reading is not None)
        self.failures = failures
        return changes

    def close(self) -> None:
        """Stop any running reading."""
        self.asking.close()


def _describe_failure_changes(before: dict[str, str], now: dict[str, str], known: bool) -> list[str]:
    """Return messages about new failures and about recoveries."""
    stands_in = "the previous data is used" if known else "jobs are ordered by arrival until it is available"
    lost = [
        f"site policy: {name} is not available: {why}; {stands_in}" for name, why in now.items() if name not in before
    ]
    back = [f"site policy: {name} is available again" for name in before if name not in now]
    return [*lost, *back]
