"""Jobs for which a command is repeated without effect: told once, and counted as long as it lasts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cpsched_bridge.report import CycleReport
from cpsched_bridge.store.ledger import Entry, State

UNSETTLED = frozenset({State.HOLDING, State.ROLLING_BACK, State.HANDING_BACK})
"""States that a job leaves within a cycle or two, if the cluster does what it is asked."""
STUCK_S = 120.0
"""Seconds in `UNSETTLED` from which on a job is stuck: commands have been repeated several times by then."""


@dataclass(slots=True)
class Stuck:
    """Knows since when each job has been in `UNSETTLED`; after `STUCK_S` seconds without a break it is stuck.

    The time is the bridge's own and not the ledger's: there every further attempt counts as a new beginning.
    """

    _since_s: dict[int, float] = field(default_factory=dict, init=False)
    _told: set[int] = field(default_factory=set, init=False)

    def note(self, unsettled: Iterable[Entry], now_s: float, report: CycleReport) -> None:
        """Take note of the entries in `UNSETTLED` at a monotonic time, and tell those that are newly stuck."""
        entries = {entry.job_id: entry for entry in unsettled}
        self._since_s = {id: self._since_s.get(id, now_s) for id in entries}
        stuck = {id for id, since_s in self._since_s.items() if now_s - since_s > STUCK_S}
        for id in sorted(stuck - self._told):
            entry = entries[id]
            report.tell("stuck", f"{entry.state} for {now_s - self._since_s[id]:.0f} s: {entry.why}", id)
        self._told = stuck
        report.stuck = len(stuck)
