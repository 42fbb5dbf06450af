"""Reads the cluster; the first reading also looks back at what ended while no bridge was running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cpsched.model import EndedJob
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.store.ledger import Ledger

LOOK_BACK_EVERY_S = 60
"""Seconds of the cluster between two attempts to read a past that could not be read at the start."""


@dataclass(slots=True)
class ObservationReader:
    """Reads the cluster for one bridge, from its start to its end."""

    backend: Backend
    ledger: Ledger
    _looked_back: bool = False
    _again_s: int = 0
    """When to look back once more, if a part of the past could not be had."""
    _ended_before: list[EndedJob] = field(default_factory=list)
    """What the glances told."""

    def glance(self) -> Observation:
        """The cluster now, before the first reading. What has ended by now is told by that one."""
        seen = self.backend.observe(self.ledger.pinned())
        self._ended_before += seen.ended
        return seen

    def read(self) -> tuple[Observation, Sequence[EndedJob]]:
        """The cluster now, and jobs that ended before the bridge began: given by the first reading.

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
        """What a backend could not tell at first, asked for again now and then; what is known already is told twice."""
        if not self.backend.history_missing or now_s < self._again_s:
            return ()
        self._again_s = now_s + LOOK_BACK_EVERY_S
        return tuple(self.backend.history())
