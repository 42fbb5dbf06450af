"""Sends a cycle's commands: what the ledger intends, then the starts, within one allowance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.cycle.backoff import CommandRetries
from cpsched_bridge.cycle.command_sender import UNSETTLED, Allowance, CommandSender
from cpsched_bridge.cycle.cycle_timing import CycleTiming
from cpsched_bridge.cycle.leader_election import LeaderElection
from cpsched_bridge.cycle.observation_reader import ObservationReader
from cpsched_bridge.cycle.real_clock import record_duration
from cpsched_bridge.cycle.reconcile import ReconcileOptions, reconcile
from cpsched_bridge.cycle.release_jobs import open_queues
from cpsched_bridge.cycle.start_outcomes import StartOutcomes, StartTracker
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import Entry, Ledger, Transition

FORGET_EVERY = 1000
"""Cycles between two clean-ups of the ledger."""
OUTDATED = "the reading is so old that another bridge may have taken over: nothing is sent"


@dataclass(slots=True)
class CycleCommands:
    """Sends to the cluster what follows from its last reading. Shadow mode sends nothing."""

    backend: Backend
    ledger: Ledger
    claims: LeaderElection
    settings: Settings
    timing: CycleTiming
    _starts: StartTracker = field(default_factory=StartTracker, init=False)
    _retries: CommandRetries = field(default_factory=CommandRetries, init=False)
    _glance_s: float = field(default=float("-inf"), init=False)
    """When to look again for pins that a former run has left."""

    def _conduct(self, report: CycleReport) -> ReconcileOptions:
        """How the ledger's jobs are to be treated in this cycle."""
        start = self.settings.start
        beside = report.rival is not None
        apart = not self.backend.starts_in_one_change
        control = report.mode == "control"
        was_away = self.timing.was_away
        return ReconcileOptions(control, start.adopt, start.timeout_s, start.max_failures, beside, apart, was_away)

    def reconcile(self, seen: Observation, report: CycleReport) -> StartOutcomes:
        """Bring the ledger up to what was seen. Return what came of starts."""
        transitions = reconcile(self.ledger.by_id, self.ledger.open_ids(), seen, self._conduct(report))
        self.record(transitions, report)
        if report.number % FORGET_EVERY == 0:
            self.ledger.forget(seen.now_s - int(self.settings.journal.keep_jobs_days * 86400))
        return self._starts.outcomes(transitions, seen)

    @property
    def stuck(self) -> int:
        """Jobs for which a command has been repeated without effect for too long."""
        return len(self._retries.stuck)

    def record(self, transitions: Sequence[Transition], report: CycleReport) -> None:
        """Write transitions into the ledger, and report them."""
        self.ledger.record(transitions, report.number)
        self._starts.note(transitions, self._now_s, report)

    def take_off_left_pins(self, reader: ObservationReader, report: CycleReport) -> None:
        """Undo, while the bridge still starts, the pins of a former run that are due, once per interval.

        A startup may take a minute. A job that waits with a pin must not wait for that: where its node leaves the
        cluster's configuration meanwhile, the cluster gives the job up. All else is left to the first cycle.
        """
        now_s = self._now_s
        if now_s < self._glance_s or not self.ledger.pinned():
            return
        self._glance_s = now_s + self.settings.cycle.interval_s
        seen = reader.glance()
        if self.claims.rival_of(seen.claim, now_s) is None:
            found = reconcile(self.ledger.by_id, self.ledger.open_ids(), seen, self._conduct(report))
            undone = [each for each in found if each.entry.pinned and each.entry.state in UNSETTLED]
            self.ledger.record(undone, report.number)
            self._commands(report).send_intents(
                seen, Allowance(self.settings.cycle.max_commands), report, pins_only=True
            )

    def take_off_pins(self, seen: Observation, report: CycleReport) -> Mapping[int, Entry]:
        """Undo pins of starts that did not happen, and of jobs requeued or held since.

        This comes before the decision, which may take long: a waiting job with a pin is lost if its node leaves the
        cluster. Return the ledger as it was before: such a job is decided on when a reading shows it without a pin.
        """
        entries = self.ledger.by_id
        unsettled = [*self.ledger.entries(*UNSETTLED), *self.ledger.left_pinned()]
        if report.mode != "shadow" and any(entry.pinned for entry in unsettled):
            entries = dict(entries)
            with record_duration(report, "apply", self.timing.pace):
                self._send_intents(seen, report, Allowance(self.settings.cycle.max_commands // 2), pins_only=True)
        return entries

    def apply(self, seen: Observation, report: CycleReport) -> None:
        """Send what the ledger intends, then the starts, within one cycle's allowance.

        Jobs left to the cluster since this reading are released after the starts. Where that fails, the next cycle
        releases them before its starts.
        """
        if report.mode == "shadow":
            return
        self._stand_aside(report)
        most = self.settings.cycle.max_commands
        starts = report.starts if report.mode == "control" else {}
        kept_for_starts = min(len(starts), most // 2)
        allowance = Allowance(most - len(report.outcomes) - kept_for_starts)
        if not self._send_intents(seen, report, allowance, starts_follow=bool(starts)) or not starts:
            return
        allowance.left += kept_for_starts
        jobs = {job.id: job for job in report.waiting}
        wanted = [(jobs[id], placement) for id, placement in starts.items()]
        chosen = allowance.take(wanted, lambda start: start[0].user)
        self._starts.decided((job.id for job, _ in chosen), self._now_s)
        self._starts.refused = self._commands(report).start(chosen, seen.cluster, seen.now_s, report)
        if not self.claims.outdated(self._now_s):
            self._commands(report).send_intents(seen, allowance, report)

    def _stand_aside(self, report: CycleReport) -> None:
        """Where no bridge is in control, let the cluster's own scheduler start what comes."""
        if report.mode != "control" and report.rival is None:
            for problem in open_queues(self.backend):
                report.tell("still_held", problem)

    def _send_intents(
        self,
        seen: Observation,
        report: CycleReport,
        allowance: Allowance,
        pins_only: bool = False,
        starts_follow: bool = False,
    ) -> bool:
        """Send what the ledger intends. Return False, and send nothing, where the reading is too old for that."""
        if self.claims.outdated(self._now_s):
            report.fail("outdated", OUTDATED)
            return False
        self._commands(report).send_intents(seen, allowance, report, pins_only, starts_follow)
        return True

    def _commands(self, report: CycleReport) -> CommandSender:
        return CommandSender(self.backend, self.ledger, self._conduct(report), self._retries)

    @property
    def _now_s(self) -> float:
        return self.timing.pace.monotonic_s()
