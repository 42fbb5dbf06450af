"""Train the policy with each ended job once, and report the jobs that have started since the last observation."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cpsched.formatting import format_count
from cpsched.model import EndedJob, Job
from cpsched.policy import Policy
from cpsched_bridge.cycle.cycle_failure_names import describe_failure
from cpsched_bridge.cycle.decision_deadline import call_policy
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import PolicyFailure
from cpsched_bridge.ports import Observation

_MAX_STORED_ENDS = 100_000
"""Maximum number of job ends stored to detect repeats: an observation may repeat an end after a reconnect."""


@dataclass(slots=True)
class PolicyTrainer:
    """A trainer of `policy`; each call takes at most `limit_s` seconds."""

    policy: Policy
    limit_s: float
    _known: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)
    """Known ends, oldest first. A plain `dict` finds its oldest entry more slowly after each deletion."""
    _unlearned: deque[EndedJob] = field(default_factory=deque)
    _running: frozenset[int] | None = None

    def add_ended_jobs(self, ended: Iterable[EndedJob]) -> list[EndedJob]:
        """Return the ends that are new, and store them for the next call of `train`."""
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

    def record_reading(self, seen: Observation, past: Iterable[EndedJob], report: CycleReport) -> None:
        """Fill a report with the jobs that its observation shows as ended or newly started."""
        report.past = self.add_ended_jobs(past)
        report.ended = self.add_ended_jobs(seen.ended)
        report.started = self.find_started_jobs(seen, report.ended)

    def train(self) -> None:
        """Train the policy with the recorded ends.

        Raise `PolicyFailure` if the policy failed for a job or ran out of time. The failed job is not retried. Jobs for
        which there was no time are used later.
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

    def find_started_jobs(self, seen: Observation, ended: Iterable[EndedJob]) -> list[tuple[Job, int]]:
        """Return (job, start second) for each running or ended job that was not running in the previous observation.

        The result is empty at the first observation, which cannot distinguish new from old jobs.
        """
        before, self._running = self._running, frozenset(r.job.id for r in seen.running)
        if before is None:
            return []
        found = [(r.job, r.start_s) for r in seen.running if r.job.id not in before]
        return found + [(e.job, e.start_s) for e in ended if e.job.id not in before]
