"""Teaches the policy what became of jobs, each end once, and notices the jobs that began since the last reading."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cpsched.model import EndedJob, Job
from cpsched.policy import Policy
from cpsched_bridge.cycle.cycle_failures import describe_failure
from cpsched_bridge.cycle.decision_deadline import ask
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import PolicyFailure
from cpsched_bridge.ports import Observation

_REMEMBERED = 100_000
"""Ends that are known to have been taught: a reading may repeat an end after a reconnect."""


@dataclass(slots=True)
class PolicyTrainer:
    """What has been taught to `policy`, and what is still to be; `limit_s` bounds the time of each lesson."""

    policy: Policy
    limit_s: float
    _known: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)
    """Oldest first; the oldest of a plain dictionary is found behind the traces of all that were before it."""
    _untaught: deque[EndedJob] = field(default_factory=deque)
    _running: frozenset[int] | None = None

    def note(self, ended: Iterable[EndedJob]) -> list[EndedJob]:
        """The ends not known before; they are taught by the next `train`."""
        fresh = []
        for each in ended:
            key = (each.job.id, each.end_s)
            if key not in self._known:
                self._known[key] = None
                fresh.append(each)
        self._untaught.extend(fresh)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return fresh

    def note_reading(self, seen: Observation, past: Iterable[EndedJob], report: CycleReport) -> None:
        """Fill a report with the jobs that ended or began by its reading."""
        report.past = self.note(past)
        report.ended = self.note(seen.ended)
        report.started = self.begun(seen, report.ended)

    def train(self) -> None:
        """Teach what is to be taught.

        Raises `PolicyFailure` if the policy failed at a job or ran out of time. That job is not taught again; those
        that there was no time for are taught next time.
        """
        if self._untaught:
            ask(self.limit_s, self._teach, "learning_failed")

    def _teach(self) -> None:
        failures: list[str] = []
        while self._untaught:
            ended = self._untaught.popleft()
            try:
                self.policy.learn(ended)
            except Exception as error:
                failures.append(f"job {ended.job.id}: {describe_failure(error)}")
        if failures:
            raise PolicyFailure("learning_failed", f"{len(failures)} of the ended jobs, the first is {failures[0]}")

    def begun(self, seen: Observation, ended: Iterable[EndedJob]) -> list[tuple[Job, int]]:
        """Jobs, with their start second, that run or have ended and were not running at the reading before.

        Empty at the first reading, which cannot tell new from old.
        """
        before, self._running = self._running, frozenset(r.job.id for r in seen.running)
        if before is None:
            return []
        found = [(r.job, r.start_s) for r in seen.running if r.job.id not in before]
        return found + [(e.job, e.start_s) for e in ended if e.job.id not in before]
