"""Record the bridge's boosts on disk before sending them, so a crash is harmless.

The bridge may change only recorded boosts, because any other boost belongs to another actor. Removals are not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_table import EntryFormat, StateTable

MAX_STORED_BOOSTS = 8
"""Number of boosts stored per job, because a cluster may return to an earlier boost after a crash."""


@dataclass(frozen=True, slots=True)
class BoostedJob:
    """One job's entry in the boost ledger."""

    points: tuple[int, ...]
    """Boosts that were sent or are about to be sent, newest last."""
    since_s: int
    """Cluster time of the newest boost."""


class BoostLedger:
    """The boost ledger in the state file's table of boosts.

    Raise `sqlite3.Error` or `CorruptFileContent` if the table cannot be read.
    """

    def __init__(self, file: StateFile) -> None:
        self._table = StateTable(file, _FORMAT)

    @property
    def by_id(self) -> Mapping[int, BoostedJob]:
        """All entries by id, as a live view of the boost ledger."""
        return self._table.entries

    def list_possible_boosts(self, *ids: int) -> tuple[int, ...]:
        """Return the boosts that the bridge may have set on these ids.

        The newest boost of the first id is last.
        """
        known = [self.by_id[id].points for id in reversed(ids) if id in self.by_id]
        return tuple(value for points in known for value in points)

    def record_intended(self, points: Mapping[int, int], now_s: int) -> None:
        """Record boosts atomically. On `sqlite3.Error`, the boosts must not be sent."""
        entries = {}
        for id, value in points.items():
            before = self.by_id[id].points if id in self.by_id else ()
            values = (*(each for each in before if each != value), value)
            entries[id] = BoostedJob(values[-MAX_STORED_BOOSTS:], now_s)
        self._table.write(entries)

    def prune(self, alive: Iterable[int], before_s: int) -> None:
        """Delete the entries from before `before_s` whose ids are not in `alive`."""
        alive = set(alive)
        self._table.delete([id for id, each in self.by_id.items() if id not in alive and each.since_s < before_s])


def _boosted_job_to_columns(each: BoostedJob) -> tuple[Any, ...]:
    return json.dumps(each.points), each.since_s


def _boosted_job_from_row(_: int, points: str, since_s: int) -> BoostedJob:
    return BoostedJob(tuple(map(int, json.loads(points))), int(since_s))


_FORMAT = EntryFormat("boosts", _boosted_job_to_columns, _boosted_job_from_row)
