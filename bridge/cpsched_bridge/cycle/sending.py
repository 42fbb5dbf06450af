"""Sends a cycle's commands: what the ledger intends, then the starts, within one allowance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched_bridge.cycle.away import Away
from cpsched_bridge.cycle.claims import Claims
from cpsched_bridge.cycle.commands import Commands
from cpsched_bridge.cycle.guard import Allowance
from cpsched_bridge.cycle.hand_back import standing_aside
from cpsched_bridge.cycle.pace import timed
from cpsched_bridge.cycle.progress import CycleProgress
from cpsched_bridge.cycle.reconcile import Conduct
from cpsched_bridge.cycle.retries import Retries
from cpsched_bridge.cycle.stuck import UNSETTLED
from cpsched_bridge.ports import Backend, Observation, Pace
from cpsched_bridge.report import CycleReport
from cpsched_bridge.settings import Settings
from cpsched_bridge.store.ledger import Entry, Ledger

OUTDATED = "the reading is so old that another bridge may have taken over: nothing is sent"


@dataclass(slots=True)
class Sending:
    """Sends to the cluster what follows from its last reading. Shadow mode sends nothing."""

    backend: Backend
    ledger: Ledger
    claims: Claims
    retries: Retries
    progress: CycleProgress
    """Is told which jobs are being started."""
    pace: Pace
    settings: Settings
    away: Away
    refused: list[int] = field(default_factory=list, init=False)
    """Jobs whose starts the cluster refused in the last cycle that started any."""

    def conduct(self, report: CycleReport) -> Conduct:
        """How the ledger's jobs are to be treated in this cycle."""
        start = self.settings.start
        beside = report.rival is not None
        apart = not self.backend.starts_in_one_change
        was_away = self.away.was(self.pace.monotonic_s())
        control = report.mode == "control"
        return Conduct(control, start.adopt, start.timeout_s, start.max_failures, beside, apart, was_away)

    def take_off_pins(self, seen: Observation, report: CycleReport) -> Mapping[int, Entry]:
        """Undo pins of starts that did not happen, and of jobs requeued or held since, before a decision.

        A decision may take long.

        A job that waits with a pin is lost if its node leaves the cluster. Returns the ledger as it was before: such
        a job is decided on when a reading shows it without.
        """
        entries = self.ledger.by_id
        unsettled = [*self.ledger.entries(*UNSETTLED), *self.ledger.left_pinned()]
        if report.mode != "shadow" and any(entry.pinned for entry in unsettled):
            entries = dict(entries)
            with timed(report, "apply", self.pace):
                self._send_intents(seen, report, Allowance(self.settings.cycle.max_commands // 2), pins_only=True)
        return entries

    def apply(self, seen: Observation, report: CycleReport) -> None:
        """Send what the ledger intends, then the starts, within one cycle's allowance."""
        if report.mode == "shadow":
            return
        self._stand_aside(report)
        most = self.settings.cycle.max_commands
        kept_for_starts = min(len(report.starts), most // 2) if report.mode == "control" else 0
        allowance = Allowance(most - len(report.outcomes) - kept_for_starts)
        commands = self._send_intents(seen, report, allowance)
        if commands is None:
            return
        allowance.left += kept_for_starts
        if report.mode == "control" and report.starts:
            jobs = {job.id: job for job in report.waiting}
            wanted = [(jobs[id], placement) for id, placement in report.starts.items()]
            chosen = allowance.take(wanted, lambda start: start[0].user)
            self.progress.decided((job.id for job, _ in chosen), self.pace.monotonic_s())
            self.refused = commands.start(chosen, seen.cluster, seen.now_s, report)

    def _stand_aside(self, report: CycleReport) -> None:
        """Where no bridge is in control, let the cluster's own scheduler start what comes."""
        if report.mode != "control" and report.rival is None:
            for problem in standing_aside(self.backend):
                report.tell("still_held", problem)

    def _send_intents(
        self, seen: Observation, report: CycleReport, allowance: Allowance, pins_only: bool = False
    ) -> Commands | None:
        """Send what the ledger intends; None, and nothing sent, where the reading is too old for that."""
        if self.claims.outdated(self.pace.monotonic_s()):
            report.fail("outdated", OUTDATED)
            return None
        commands = Commands(self.backend, self.ledger, self.conduct(report), self.retries)
        users = {each.job_id: each.user for each in seen.left} | {each.job.id: each.job.user for each in seen.pending}
        commands.send_intents(users, allowance, seen.now_s, report, pins_only)
        return commands
