"""Train the policy once on each ended job, and find newly started jobs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cpsched.formatting import format_count
from cpsched.model import EndedJob, Job
from cpsched.policy import Policy
from cpsched_bridge.cycle.cycle_failures import describe_failure
from cpsched_bridge.cycle.cycle_values import ClusterReading
from cpsched_bridge.cycle.decision_deadline import call_policy
from cpsched_bridge.cycle_report import JobChanges
from cpsched_bridge.errors import PolicyFailure
from cpsched_bridge.ports import Observation

_MAX_STORED_ENDS = 100_000
"""Maximum number of job ends stored to detect repeats, which may occur after a reconnect."""


@dataclass(slots=True)
class PolicyTrainer:
    """A trainer for `policy`, which trains for at most `limit_s` seconds per call."""

    policy: Policy
    limit_s: float
    _known: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)
    """Known ends, oldest first. In a plain `dict`, each deletion makes the oldest entry slower to find."""
    _unlearned: deque[EndedJob] = field(default_factory=deque)
    _running: frozenset[int] | None = None

    def add_ended_jobs(self, ended: Iterable[EndedJob]) -> list[EndedJob]:
        """Return the ends that are new, and store them for the next call to `train`."""
        fresh = []
        for each in ended:
            key = (each.job.id, each.end_s)
            if key not in self._known:
                self._known[key] = None
                fresh.append(each)
        self._unlearned.extend(fresh)
        while len(self._known) > _MAX_STORED_ENDS:
            self._known.popitem(last=False)
        return fresh

    def record_reading(self, reading: ClusterReading) -> JobChanges:
        """Return the jobs that have newly started or ended."""
        past = self.add_ended_jobs(reading.past)
        ended = self.add_ended_jobs(reading.ended)
        return JobChanges(self.find_newly_started_jobs(reading.observation, ended), ended, past)

    def train(self) -> None:
        """Train the policy on the stored ends.

        Raise `PolicyFailure` if the policy fails for a job or runs out of time. A job for which it fails is not
        retried. Jobs that remain when time runs out are used in the next call.
        """
        if self._unlearned:
            call_policy(self.limit_s, self._train_with_stored_jobs, "learning_failed")

    def _train_with_stored_jobs(self) -> None:
        failures: list[str] = []
        while self._unlearned:
            ended = self._unlearned.popleft()
            try:
                self.policy.learn(ended)
            except Exception as error:
                failures.append(f"job {ended.job.id}: {describe_failure(error)}")
        if failures:
            raise PolicyFailure(
                "learning_failed",
                f"learning from {format_count(len(failures), 'ended job')} failed; first error: {failures[0]}",
            )

    def find_newly_started_jobs(self, seen: Observation, ended: Iterable[EndedJob]) -> list[tuple[Job, int]]:
        """Return (job, start in seconds) for jobs started since the last observation.

        The result is empty for the first observation, because it cannot show which jobs are new.
        """
        before, self._running = self._running, frozenset(r.job.id for r in seen.running)
        if before is None:
            return []
        found = [(r.job, r.start_s) for r in seen.running if r.job.id not in before]
        return found + [(e.job, e.start_s) for e in ended if e.job.id not in before]
