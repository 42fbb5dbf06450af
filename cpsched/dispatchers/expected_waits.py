"""Compute expected waits by queue for priority rules (mod17 section 4, cp19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cpsched.errors import require
from cpsched.model import EndedJob


class ExpectedQueueWaits:
    """Expected waits in seconds by queue, either given or averaged over ended jobs.

    An unknown queue gets the mean over all queues. The minimum is one second, which also applies before any job has
    ended. The job that has waited longest is then the most urgent.
    """

    def __init__(self, given_s: Mapping[str, float] | None = None) -> None:
        """Store `given_s`, seconds by queue. Raise `InvalidValue` for invalid values."""
        is_valid = given_s is None or isinstance(given_s, Mapping)
        require(is_valid, "expected waits", given_s, "must map queue names to seconds")
        for queue, seconds in (given_s or {}).items():
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            require(number and seconds > 0, queue, seconds, "must be a positive number of seconds")
        self.given_s = given_s
        self._sums: dict[str, tuple[int, int]] = {}
        self._total = (0, 0)

    @property
    def learns(self) -> bool:
        """Whether `learn` has an effect."""
        return self.given_s is None

    def expected_wait_s(self, queue: str) -> float:
        """Return a queue's expected wait in seconds, at least 1."""
        if self.given_s is not None and queue in self.given_s:
            return max(1.0, self.given_s[queue])
        waited, jobs = self._sums.get(queue, self._total)
        return max(1.0, waited / jobs) if jobs else 1.0

    def learn(self, ended: EndedJob) -> None:
        """Add an ended job's wait to the mean of its queue."""
        if self.given_s is not None:
            return
        waited, jobs = self._sums.get(ended.job.queue, (0, 0))
        self._sums[ended.job.queue] = (waited + ended.wait_s, jobs + 1)
        self._total = (self._total[0] + ended.wait_s, self._total[1] + 1)

    def memory(self) -> dict[str, list[int]]:
        """Return the state as JSON: [seconds waited, number of jobs] by queue."""
        return {queue: list(sums) for queue, sums in self._sums.items()}

    def recall(self, memory: Mapping[str, Sequence[int]]) -> None:
        """Replace the state with an earlier `memory`."""
        self._sums = {queue: (waited, jobs) for queue, (waited, jobs) in memory.items()}
        self._total = (sum(waited for waited, _ in self._sums.values()), sum(jobs for _, jobs in self._sums.values()))
