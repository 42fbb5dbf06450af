"""How long jobs of a queue are expected to wait: the yardstick of the priority rules (mod17 section 4, cp19)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cpsched.errors import InvalidValue, require
from cpsched.model import EndedJob


class ExpectedWaits:
    """Seconds by queue: given once and for all, or the mean wait of the queue's ended jobs so far.

    Of a queue that nothing is known of: the mean over all queues; before any job has ended, and as the least value,
    one second (then the longest waiting job is the most urgent).
    """

    def __init__(self, given_s: Mapping[str, float] | None = None) -> None:
        self.given_s = given_s
        self._sums: dict[str, tuple[int, int]] = {}
        self._total = (0, 0)

    @classmethod
    def from_file(cls, path: str) -> ExpectedWaits:
        """From a JSON object of queue name -> seconds. Raises `InvalidValue` naming file, queue and rule."""
        try:
            given = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidValue("ewt_file", path, f"cannot be read as JSON: {error}") from error
        require(isinstance(given, dict), "ewt_file", path, "must hold an object of queue name -> seconds")
        for queue, seconds in given.items():
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            require(number and seconds > 0, f"{path}: {queue}", seconds, "must be a positive number of seconds")
        return cls(given)

    @property
    def learns(self) -> bool:
        """Whether `learn` changes anything."""
        return self.given_s is None

    def of(self, queue: str) -> float:
        """Expected wait in seconds, at least 1."""
        if self.given_s is not None and queue in self.given_s:
            return max(1.0, self.given_s[queue])
        waited, jobs = self._sums.get(queue, self._total)
        return max(1.0, waited / jobs) if jobs else 1.0

    def learn(self, ended: EndedJob) -> None:
        """Take note of how long a job waited."""
        if self.given_s is not None:
            return
        waited, jobs = self._sums.get(ended.job.queue, (0, 0))
        self._sums[ended.job.queue] = (waited + ended.wait_s, jobs + 1)
        self._total = (self._total[0] + ended.wait_s, self._total[1] + 1)

    def memory(self) -> dict[str, list[int]]:
        """What was learned, as JSON: queue -> [seconds waited, jobs]."""
        return {queue: list(sums) for queue, sums in self._sums.items()}

    def recall(self, memory: Mapping[str, Sequence[int]]) -> None:
        """Know what `memory` says, and nothing else."""
        self._sums = {queue: (waited, jobs) for queue, (waited, jobs) in memory.items()}
        self._total = (sum(waited for waited, _ in self._sums.values()), sum(jobs for _, jobs in self._sums.values()))
