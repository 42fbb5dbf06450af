"""Takes off the pins that a former run has left, while the bridge still begins.

A beginning may take a minute. A job that waits with a pin must not wait for that: where its node leaves the cluster's
configuration meanwhile, the cluster gives the job up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from cpsched_bridge.cycle.commands import Commands
from cpsched_bridge.cycle.failures import described
from cpsched_bridge.cycle.guard import Allowance
from cpsched_bridge.cycle.reading import ObservationReader
from cpsched_bridge.cycle.reconcile import Conduct, reconcile
from cpsched_bridge.cycle.retries import Retries
from cpsched_bridge.cycle.stuck import UNSETTLED
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.report import CycleReport
from cpsched_bridge.store.ledger import Ledger


@dataclass(slots=True)
class LeftPins:
    """Reads the cluster every `every_s` seconds, as long as the ledger knows of pins, and undoes what is due.

    What else a reading shows is left to the first cycle, and so is whatever fails here.
    """

    backend: Backend
    ledger: Ledger
    reader: ObservationReader
    retries: Retries
    beside: Callable[[Observation], bool]
    """Whether another bridge is in control by a reading: its pins are its own."""
    every_s: float
    _next_s: float = float("-inf")

    def look(self, now_s: float, conduct: Conduct, most: int, report: CycleReport) -> None:
        """Take off at most `most` pins at a monotonic time; `report` is told what is odd about that."""
        if now_s < self._next_s or not self.ledger.pinned():
            return
        self._next_s = now_s + self.every_s
        try:
            seen = self.reader.glance()
            if not self.beside(seen):
                self._take_off(seen, conduct, most, report)
        except (BackendError, sqlite3.Error) as error:
            structlog.get_logger("bridge").warning("old_pins", detail=f"not taken off yet: {described(error)}")

    def _take_off(self, seen: Observation, conduct: Conduct, most: int, report: CycleReport) -> None:
        found = reconcile(self.ledger.by_id, self.ledger.open_ids(), seen, conduct)
        undone = [each for each in found if each.entry.pinned and each.entry.state in UNSETTLED]
        self.ledger.record(undone, report.number)
        users = {each.job_id: each.user for each in seen.left} | {each.job.id: each.job.user for each in seen.pending}
        commands = Commands(self.backend, self.ledger, conduct, self.retries)
        commands.send_intents(users, Allowance(most), seen.now_s, report, pins_only=True)
