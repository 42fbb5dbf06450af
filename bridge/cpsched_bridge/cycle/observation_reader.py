"""Reads the cluster, and sees by the claim there whether this bridge or another one is in control of it.

The first reading also looks back at what ended while no bridge was running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cpsched.model import EndedJob, PowerCap
from cpsched_bridge.cycle.bridge_health import ModeSwitch
from cpsched_bridge.cycle.real_clock import record_duration
from cpsched_bridge.cycle.reconcile import handed_back_before
from cpsched_bridge.cycle.verified_decision import require_resources
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import Backend, LoopClock, Observation
from cpsched_bridge.store.ledger import KEPT, Ledger

LOOK_BACK_EVERY_S = 60
"""Seconds of the cluster between two attempts to read a past that could not be read at the start."""


@dataclass(slots=True)
class ObservationReader:
    """Reads the cluster for one bridge, from its start to its end."""

    backend: Backend
    ledger: Ledger
    _looked_back: bool = field(default=False, init=False)
    _again_s: int = field(default=0, init=False)
    """When to look back once more, if a part of the past could not be had."""
    _ended_before: list[EndedJob] = field(default_factory=list, init=False)
    """What the glances showed."""
    _transport: str = field(default="", init=False)
    """By what the cluster was asked when that was last reported."""
    _is_first: bool = field(default=True, init=False)

    def glance(self) -> Observation:
        """Return the cluster now, before the first reading, which also gives what has ended by now."""
        seen = self.backend.observe(self.ledger.pinned())
        self._ended_before += seen.ended
        return seen

    def read(self) -> tuple[Observation, Sequence[EndedJob]]:
        """Return the cluster now, and jobs that ended before the bridge began: given by the first reading.

        Later that is empty, unless the backend has `history_missing`: then it is asked again now and then.

        The first observation also lists, among the ended, those of them that the ledger takes for still alive.
        """
        if self._looked_back:
            seen = self.backend.observe(self.ledger.pinned())
            return seen, self._caught_up(seen.now_s)
        past = tuple(self.backend.history())
        seen = self.backend.observe(self.ledger.pinned())
        self._looked_back, self._again_s = True, seen.now_s + LOOK_BACK_EVERY_S
        alive = self.ledger.open_ids()
        missed = (ended for ended in past if ended.job.id in alive)
        before, self._ended_before = self._ended_before, []
        return replace(seen, ended=(*missed, *before, *seen.ended)), past

    def _caught_up(self, now_s: int) -> Sequence[EndedJob]:
        """Ask again, now and then, for what the backend did not have at first; it may repeat what is known."""
        if not self.backend.history_missing or now_s < self._again_s:
            return ()
        self._again_s = now_s + LOOK_BACK_EVERY_S
        return tuple(self.backend.history())

    def read_for(
        self, report: CycleReport, mode: ModeSwitch, pace: LoopClock, power: PowerCap | None
    ) -> tuple[Observation, Sequence[EndedJob]]:
        """Read for one cycle: fill its report, and look at the claim. Raise `InvalidSetting` for a wrong cap of
        power.
        """
        with record_duration(report, "observe", pace):
            seen, past = self.read()
            if self._is_first:
                require_resources(power, seen.cluster)
            report.observation = seen
            if self.backend.transport_info != self._transport:
                self._transport = self.backend.transport_info
                report.tell("transport", self._transport)
            for note in seen.notes:
                report.tell("site_policy", note)
            if self._is_first and mode.configured != "shadow" and mode.claims.word_of(seen.claim):
                self._believe_word(seen.now_s, report)
            self._is_first = False
            mode.claims.look(seen.claim, mode.wanted, pace.monotonic_s(), report)
        return seen, past

    def _believe_word(self, now_s: int, report: CycleReport) -> None:
        """Bring the ledger up to the word of a former process that had nowhere to write, before that is overwritten."""
        old = [*self.ledger.entries(*KEPT), *self.ledger.left_pinned()]
        self.ledger.record((handed_back_before(entry, now_s) for entry in old), report.number)
        report.tell("handed_back", f"{len(old)} jobs, by the bridge before, which could not write it down")
