"""Reads the cluster; the first reading also looks back at what ended while no bridge was running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cpsched.model import EndedJob
from cpsched_bridge.ports import Backend, Observation
from cpsched_bridge.store.ledger import Ledger


@dataclass(slots=True)
class Reader:
    """Reads the cluster for one bridge, from its start to its end."""

    backend: Backend
    ledger: Ledger
    _looked_back: bool = False

    def read(self) -> tuple[Observation, Sequence[EndedJob]]:
        """The cluster now, and jobs that ended before the bridge began: given by the first reading, empty later.

        The first observation also lists, among the ended, those of them that the ledger takes for still alive.
        """
        if self._looked_back:
            return self.backend.observe(self.ledger.pinned()), ()
        past = tuple(self.backend.history())
        seen = self.backend.observe(self.ledger.pinned())
        self._looked_back = True
        alive = self.ledger.open_ids()
        missed = (ended for ended in past if ended.job.id in alive)
        return replace(seen, ended=(*missed, *seen.ended)), past
