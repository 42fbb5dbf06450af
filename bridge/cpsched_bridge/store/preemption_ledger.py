"""Record on disk which jobs the bridge stops to enable which start.

Preemptions are recorded before any job is stopped, so a crash is harmless. A preemption is `open` until its job runs or
the bridge gives it up. Closed preemptions are kept to enforce the limits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from cpsched_bridge.ports import PreemptionUnderWay, Victim
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.store.state_file import StateFile
from cpsched_bridge.store.state_table import EntryFormat, StateTable

PreemptionState = Literal["open", "started", "ineffective", "dropped"]
"""`ineffective`: the job did not run in time. `dropped`: the preemption became impossible or unnecessary."""


@dataclass(frozen=True, slots=True)
class PreemptionEntry:
    """One preemption. `user` owns the job that will start.

    `end_s` is the cluster time at which the preemption was closed, or 0 while it is open.
    """

    number: int
    user: str
    since_s: int
    what: PreemptionUnderWay
    state: PreemptionState = "open"
    end_s: int = 0


class PreemptionLedger:
    """The preemption ledger in the state file's table of preemptions.

    Raise `sqlite3.Error` or `CorruptFileContent` if the table cannot be read.
    """

    def __init__(self, file: StateFile) -> None:
        self._table = StateTable(file, _FORMAT)
        self._open = {each.what.job_id: each for each in self.entries if each.state == "open"}

    @property
    def entries(self) -> tuple[PreemptionEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._table.entries.values())

    @property
    def open_by_job_id(self) -> Mapping[int, PreemptionEntry]:
        """The open preemptions by job id."""
        return dict(self._open)

    def count_by_user_since(self, from_s: int) -> Counter[str]:
        """Return the number of preemptions decided since `from_s`, by user."""
        return Counter(each.user for each in self.entries if each.since_s >= from_s)

    def count_victim_choices_by_job(self) -> Counter[int]:
        """Return how often each job was chosen as a victim, by job id."""
        return Counter(victim.job_id for each in self.entries for victim in each.what.victims)

    def find_last_end_s_by_job(self, *states: PreemptionState) -> dict[int, int]:
        """Return when a preemption for each job last ended in one of `states`, by job id."""
        found = dict[int, int]()
        for each in self.entries:
            if each.state in states:
                found[each.what.job_id] = max(each.end_s, found.get(each.what.job_id, each.end_s))
        return found

    def record_intended(self, wanted: Sequence[tuple[PreemptionUnderWay, str]], now_s: int) -> None:
        """Record preemptions and their users atomically, before any victim is stopped.

        If this raises `sqlite3.Error`, no victim may be stopped.
        """
        first = max(self._table.entries, default=0) + 1
        self._write([PreemptionEntry(first + at, user, now_s, what) for at, (what, user) in enumerate(wanted)])

    def close_entry(self, entry: PreemptionEntry, state: PreemptionState, now_s: int) -> None:
        """Record the end of an open preemption."""
        self._write([replace(entry, state=state, end_s=now_s)])

    def prune(self, before_s: int) -> None:
        """Delete the closed preemptions that ended before `before_s`."""
        self._table.delete([each.number for each in self.entries if each.state != "open" and each.end_s < before_s])

    def _write(self, entries: Iterable[PreemptionEntry]) -> None:
        written = {each.number: each for each in entries}
        self._table.write(written)
        for each in written.values():
            if each.state == "open":
                self._open[each.what.job_id] = each
            else:
                self._open.pop(each.what.job_id, None)


def _preemption_to_columns(each: PreemptionEntry) -> tuple[Any, ...]:
    victims = [(victim.job_id, victim.start_s, victim.mode) for victim in each.what.victims]
    return (
        each.what.job_id, json.dumps(each.user), each.since_s, each.state, each.end_s,
        json.dumps(each.what.nodes), json.dumps(victims),
    )  # fmt: skip


def _preemption_from_row(
    number: int, job_id: int, user: str, since_s: int, state: PreemptionState, end_s: int, nodes: str, victims: str
) -> PreemptionEntry:
    if state not in get_args(PreemptionState):
        raise CorruptFileContent(f"unknown state {state!r:.20}")
    what = PreemptionUnderWay(
        job_id,
        tuple((str(name), int(units)) for name, units in json.loads(nodes)),
        tuple(Victim(int(id), int(start_s), mode) for id, start_s, mode in json.loads(victims)),
    )
    return PreemptionEntry(number, str(json.loads(user)), since_s, what, state, end_s)


_FORMAT = EntryFormat("preemptions", _preemption_to_columns, _preemption_from_row)
