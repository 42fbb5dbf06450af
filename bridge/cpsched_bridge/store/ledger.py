"""Record each held or starting job on disk.

No crash can lose a job or start it twice. An intent is written before its command is sent, and the outcome afterwards.
After a crash at any time, the next bridge process reads the intents, observes the cluster, and treats the cluster's
state as authoritative.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.ports import ClusterReason, UndoOrder
from cpsched_bridge.store.corruption_checks import convert_content_errors, rows_to_dataclasses
from cpsched_bridge.store.sqlite_files import read_rows, replace_surrogates
from cpsched_bridge.store.state_file import StateFile, insert_rows, require_seal, seal_row


class LedgerState(StrEnum):
    """The state of a job from the bridge's point of view."""

    HOLDING = "holding"
    """A hold was sent or is about to be sent."""
    HELD = "held"
    """The job is held by the bridge, or by the submit plugin for the bridge, and may be started."""
    STARTING = "starting"
    """A start (pin and release) was sent or is about to be sent. The job is not running yet."""
    ROLLING_BACK = "rolling-back"
    """The start failed. The job must be held again, and its pin must be cleared."""
    RELEASING = "releasing"
    """The job must be released to the cluster's own scheduler, without a pin."""
    FREE = "free"
    """The job is pending and is managed only by the cluster's own scheduler."""
    RUNNING = "running"
    """The job was observed running."""
    ENDED = "ended"
    """The job ran and ended, or left the cluster while it was unmanaged."""
    GONE = "gone"
    """The job left the cluster without running while it was managed, for example because it was cancelled."""


OLDER_RELEASING = "handing-back"
"""Name of `LedgerState.RELEASING` in the ledgers and journals of older builds."""

MANAGED_STATES = frozenset(
    {LedgerState.HOLDING, LedgerState.HELD, LedgerState.STARTING, LedgerState.ROLLING_BACK, LedgerState.RELEASING}
)
"""States in which a job may have the bridge's hold or pin. `release-all` releases these jobs."""

CLOSED_STATES = frozenset({LedgerState.ENDED, LedgerState.GONE})

_OBSERVED_STATES = frozenset({LedgerState.RUNNING, LedgerState.ENDED, LedgerState.GONE})
"""States that a job may enter from any other state, because the cluster decides."""

PERMITTED_TRANSITIONS: dict[LedgerState | None, frozenset[LedgerState]] = {
    None: frozenset({LedgerState.HOLDING, LedgerState.HELD, LedgerState.RELEASING}),
    LedgerState.HOLDING: _OBSERVED_STATES | {LedgerState.HELD, LedgerState.FREE, LedgerState.RELEASING},
    LedgerState.HELD: _OBSERVED_STATES | {LedgerState.STARTING, LedgerState.RELEASING, LedgerState.FREE},
    LedgerState.STARTING: _OBSERVED_STATES
    | {LedgerState.HELD, LedgerState.ROLLING_BACK, LedgerState.RELEASING, LedgerState.FREE},
    LedgerState.ROLLING_BACK: _OBSERVED_STATES | {LedgerState.HELD, LedgerState.RELEASING, LedgerState.FREE},
    LedgerState.RELEASING: _OBSERVED_STATES | {LedgerState.FREE, LedgerState.HELD, LedgerState.HOLDING},
    LedgerState.FREE: _OBSERVED_STATES | {LedgerState.HOLDING, LedgerState.HELD, LedgerState.RELEASING},
    LedgerState.RUNNING: _OBSERVED_STATES - {LedgerState.RUNNING}
    | {LedgerState.HOLDING, LedgerState.FREE, LedgerState.RELEASING},
    LedgerState.ENDED: frozenset(
        {LedgerState.HOLDING, LedgerState.HELD, LedgerState.RELEASING, LedgerState.RUNNING, LedgerState.FREE}
    ),
    LedgerState.GONE: frozenset(
        {
            LedgerState.HOLDING,
            LedgerState.HELD,
            LedgerState.RELEASING,
            LedgerState.RUNNING,
            LedgerState.ENDED,
            LedgerState.FREE,
        }
    ),
}
"""Permitted transitions. A closed job may return after a requeue, or if the controller had lost it."""


Cause = Literal["", "released", "held_by_administrator", "refused"]
"""Cause of the last transition, or "" if it does not affect the next transition.

- `released`: the cluster executed a start whose pin and release are separate commands, or answered it later than the
  second of the decision.
- `held_by_administrator`: the hold was refused because an administrator held the job.
- `refused`: the cluster refused the start.
"""
_TEXT_BY_CAUSE: Mapping[Cause, str] = {
    "released": "released",
    "held_by_administrator": "hold refused: is held by an administrator",
}
"""Text of each cause in `ManagedJobEntry.why`."""
_OLDER_RESTORE_UNITS = 0
"""Number of units that marks a pair in an older ledger's `nodes` as `ManagedJobEntry.restore`, not a node."""


class IllegalLedgerTransition(BridgeError):
    """An error for a forbidden transition, which indicates a bug in the bridge."""


@dataclass(frozen=True, slots=True)
class ManagedJobEntry:
    """One job's entry in the ledger."""

    job_id: int
    state: LedgerState
    since_s: int
    """Cluster time of the last transition."""
    pinned: bool = False
    """Whether the job may have a node list set by the bridge."""
    failures: int = 0
    """Number of consecutive failed starts and holds."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Nodes of the last start, as (node name, units) pairs."""
    unmanaged_reason: str = ""
    """Why the job must not be adopted again, or "" if it may be adopted."""
    label: str = ""
    """Label shown to users, such as "19_3"."""
    why: str = ""
    """Human-readable reason for the last transition."""
    cause: Cause = ""
    unmanaged_request: str = ""
    """Request to which this reason applies, as a `make_request_fingerprint`, or "" if it applies to any request."""
    restore: str = ""
    """The last start's `StartSettings.restore`."""

    @property
    def unmanaged_text(self) -> str:
        """Why the job must not be adopted again, with the request to which this applies."""
        reason, request = self.unmanaged_reason, self.unmanaged_request
        return f"{reason}, while it requests {request}" if reason and request else reason

    def make_undo_order(self) -> UndoOrder:
        """Return the order that holds, releases or unpins the job and undoes its last start."""
        return UndoOrder(self.job_id, self.pinned, self.restore)


TransitionEvent = Literal["", "as_decided", "still_managed", "unmanaged"]
"""Additional meaning of a transition:

- `as_decided`: the job was started on the nodes of the decision.
- `still_managed`: the job stays held and is retried, because the cluster's own scheduler could not start it either.
- `unmanaged`: the job becomes unmanaged, for the reason in `ManagedJobEntry.unmanaged_reason`.
"""


@dataclass(frozen=True, slots=True)
class LedgerTransition:
    """A new entry and the job's previous state, which is None for a new job."""

    before: LedgerState | None
    entry: ManagedJobEntry
    cluster_reason: ClusterReason | None = None
    """Why a start failed, if the reason concerns the job or its group instead of the bridge."""
    failed: bool = False
    """Whether a start or a hold failed without a known reason."""
    event: TransitionEvent = ""

    def __post_init__(self) -> None:
        if self.entry.state not in PERMITTED_TRANSITIONS[self.before] and self.entry.state != self.before:
            raise IllegalLedgerTransition(f"job {self.entry.job_id}: {self.before} cannot become {self.entry.state}")


def make_transition(
    entry: ManagedJobEntry | None,
    state: LedgerState,
    now_s: int,
    why: str,
    event: TransitionEvent = "",
    **changes: Any,
) -> LedgerTransition:
    """Return a transition of `entry` to `state`, with `changes` to its fields.

    If `entry` is None, the transition creates an entry, and `changes` must contain `job_id`. `cause` applies only to
    this transition, and `unmanaged_request` only to an `unmanaged_reason` that is set in the same transition.
    """
    if entry is None:
        return LedgerTransition(None, ManagedJobEntry(state=state, since_s=now_s, why=why, **changes), event=event)
    changes = {"cause": "", **changes}
    if "unmanaged_reason" in changes:
        changes = {"unmanaged_request": "", **changes}
    return LedgerTransition(entry.state, replace(entry, state=state, since_s=now_s, why=why, **changes), event=event)


def make_caused_transition(entry: ManagedJobEntry, state: LedgerState, now_s: int, cause: Cause) -> LedgerTransition:
    """Return a transition of `entry` to a new state, with `cause` and its text."""
    return make_transition(entry, state, now_s, _TEXT_BY_CAUSE[cause], cause=cause)


_OLDER_FIELD_COUNT = 9


class Ledger:
    """The ledger, in the tables of jobs and transitions of a state file.

    At start-up, the cluster shows which jobs without a valid row have the bridge's marks.
    """

    def __init__(self, path: Path | str, durable: bool = True, read_only: bool = False) -> None:
        self.file = StateFile(path, durable, read_only)
        try:
            self.reload()
        except BaseException:
            self.file.close()
            raise

    @property
    def unreported_events(self) -> list[CycleEvent]:
        """Events about the file that have not been reported yet."""
        return self.file.unreported_events

    @property
    def whole(self) -> bool:
        """Whether the ledger is complete, because the file was neither damaged nor missing."""
        return self.file.whole

    @classmethod
    def load_in_memory_copy(cls, path: Path) -> Ledger:
        """Return an in-memory copy of a ledger and its boosts, which may be those of an older build.

        Raise `sqlite3.Error` or `CorruptFileContent`.
        """
        copy = cls(":memory:", durable=False)
        with convert_content_errors():
            entries = [_parse_entry_row_of_any_format(row) for row in read_rows(path, "select * from jobs")]
        copy.insert_or_replace_entries(entries)
        copy.file.whole = True
        copy.file.copy_boosts(path)
        return copy

    def insert_or_replace_entries(self, entries: Iterable[ManagedJobEntry]) -> None:
        """Write `entries` unchanged, replacing existing entries of the same jobs."""
        with self.file.db:
            insert_rows(self.file.db, "jobs", map(_make_entry_row, entries))
        self.reload()

    def reload(self) -> None:
        """Read all entries again. Raise `sqlite3.Error` or `CorruptFileContent`."""
        rows = self.file.take_rows("jobs", lambda: map(_make_entry_row, self._entries.values()))
        self._entries: dict[int, ManagedJobEntry] = {}
        self._in_state: dict[LedgerState | None, set[int]] = {state: set() for state in (None, *LedgerState)}
        for row in rows:
            self._set_entry_in_memory(None, _parse_entry_row(row))

    def _set_entry_in_memory(self, before: LedgerState | None, entry: ManagedJobEntry) -> None:
        self._in_state[before].discard(entry.job_id)
        self._in_state[entry.state].add(entry.job_id)
        self._entries[entry.job_id] = entry

    @property
    def by_id(self) -> Mapping[int, ManagedJobEntry]:
        """All entries by job id, as a live view of the ledger."""
        return self._entries

    def get(self, job_id: int) -> ManagedJobEntry | None:
        """Return a job's entry, or None if there is none."""
        return self._entries.get(job_id)

    def get_job_name(self, job_id: int) -> str:
        """Return the job's label as shown to users, or its id if the ledger has no label."""
        entry = self._entries.get(job_id)
        return (entry.label if entry is not None else "") or str(job_id)

    def list_entries(self, *states: LedgerState) -> list[ManagedJobEntry]:
        """Return the entries in any of `states`, sorted by job id.

        Without `states`, return all entries.
        """
        return [self._entries[id] for id in sorted(set().union(*(self._in_state[s] for s in states or LedgerState)))]

    def list_open_job_ids(self) -> frozenset[int]:
        """Return the ids of jobs that have neither ended nor left the cluster."""
        return frozenset().union(*(self._in_state[state] for state in LedgerState if state not in CLOSED_STATES))

    def list_managed_job_ids(self) -> list[int]:
        """Return the ids of jobs that the bridge may have held or pinned."""
        return [entry.job_id for entry in self.list_entries(*MANAGED_STATES)]

    def list_pinned_job_ids(self) -> frozenset[int]:
        """Return the ids of jobs that may have the bridge's node list."""
        return frozenset(id for id in self.list_open_job_ids() if self._entries[id].pinned)

    def list_orphaned_pins(self) -> list[ManagedJobEntry]:
        """Return unmanaged pending jobs that still have the bridge's pin.

        Another actor held these jobs after the bridge pinned them. Once that actor removes the hold, `reconcile`
        manages the job again in order to release it.
        """
        return [entry for entry in self.list_entries(LedgerState.FREE) if entry.pinned]

    def record(self, transitions: Iterable[LedgerTransition], round_number: int = 0, unwritten: bool = False) -> None:
        """Write transitions atomically before returning.

        Raise `IllegalLedgerTransition` if a job's state in the ledger differs from the transition's previous state.

        `unwritten`: if writing fails, keep the transitions in memory, then raise the error.
        """
        batch = list(transitions)
        if not batch:
            return
        for transition in batch:
            known = self._entries.get(transition.entry.job_id)
            if (known.state if known else None) != transition.before:
                raise IllegalLedgerTransition(f"job {transition.entry.job_id}: its state is not {transition.before}")
        written = False
        try:
            self._write_transitions(batch, round_number)
            written = True
        finally:
            if written or unwritten:
                for t in batch:
                    self._set_entry_in_memory(t.before, t.entry)

    def _write_transitions(self, batch: Sequence[LedgerTransition], round_number: int) -> None:
        def execute_statements(db: sqlite3.Connection) -> None:
            insert_rows(db, "jobs", (_make_entry_row(transition.entry) for transition in batch))
            db.executemany(
                "insert into transitions (at_s, round, job_id, before, after, why) values (?,?,?,?,?,?)",
                [_make_transition_row(transition, round_number) for transition in batch],
            )

        self.file.write_in_transaction(execute_statements)

    def read_transitions(self, job_id: int) -> list[tuple[int, int, str | None, str, str]]:
        """Return a job's transitions, oldest first.

        Each is (cluster time, round, state before, state after, why).
        """
        query = "select at_s, round, before, after, why from transitions where job_id = ? order by seq"
        with convert_content_errors():
            rows = rows_to_dataclasses(_TransitionRow, self.file.db.execute(query, (job_id,)))
        return [(row.at_s, row.round, row.before, row.after, row.why) for row in rows]

    def find_last_transition_round(self) -> int:
        """Return the newest round with a recorded transition, or 0 if there is none."""
        return self.file.find_last_transition_round()

    def count_jobs_by_state(self) -> dict[LedgerState, int]:
        """Return the number of jobs in each state."""
        return {state: len(self._in_state[state]) for state in LedgerState}

    def prune(self, before_s: int) -> None:
        """Delete the jobs that were closed before `before_s`, with their transitions."""
        old = [e.job_id for e in self.list_entries(*CLOSED_STATES) if e.since_s < before_s]

        def execute_statements(db: sqlite3.Connection) -> None:
            db.executemany("delete from jobs where id = ?", [(id,) for id in old])
            db.executemany("delete from transitions where job_id = ?", [(id,) for id in old])

        self.file.write_in_transaction(execute_statements)
        for id in old:
            self._in_state[self._entries.pop(id).state].discard(id)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


@dataclass(frozen=True, slots=True)
class _TransitionRow:
    """A row of the transitions table."""

    at_s: int
    round: int
    before: str | None
    after: str
    why: str


def _make_transition_row(transition: LedgerTransition, round_number: int) -> tuple[Any, ...]:
    entry = transition.entry
    return entry.since_s, round_number, entry.job_id, transition.before, entry.state, replace_surrogates(entry.why)


def parse_state(state: str) -> LedgerState:
    """Return a stored state, which an older build may have named otherwise."""
    return LedgerState.RELEASING if state == OLDER_RELEASING else LedgerState(state)


def _parse_entry_row(row: tuple[Any, ...]) -> ManagedJobEntry:
    """Return the entry stored in a row with a valid seal. Raise `CorruptFileContent`."""
    with convert_content_errors(f"job {row[0]!r:.20}"):
        id, state, since_s, pinned, failures, nodes, *texts, _ = row
        places = tuple((name, units) for name, units in json.loads(nodes))
        return ManagedJobEntry(int(id), parse_state(state), int(since_s), bool(pinned), int(failures), places, *texts)


def _parse_entry_row_of_any_format(row: tuple[Any, ...]) -> ManagedJobEntry:
    """Return the entry stored in a row of this or an older build's ledger. Raise `CorruptFileContent`."""
    if len(row) == len(fields(ManagedJobEntry)) + 1:
        return _parse_entry_row(require_seal("jobs", row))
    with convert_content_errors(f"job {row[0]!r:.20}"):
        id, state, since_s, pinned, failures, nodes, leave, label, why = row[:_OLDER_FIELD_COUNT]
        pairs = [(name, units) for name, units in json.loads(nodes)]
        places = tuple((name, units) for name, units in pairs if units != _OLDER_RESTORE_UNITS)
        restore = next((str(name) for name, units in pairs if units == _OLDER_RESTORE_UNITS), "")
        return ManagedJobEntry(
            int(id), parse_state(state), int(since_s), bool(pinned), int(failures), places, leave, label, why,
            restore=restore,
        )  # fmt: skip


def _make_entry_row(entry: ManagedJobEntry) -> tuple[Any, ...]:
    texts = map(
        replace_surrogates,
        (entry.unmanaged_reason, entry.label, entry.why, entry.cause, entry.unmanaged_request, entry.restore),
    )
    numbers = (entry.job_id, entry.state.value, entry.since_s, int(entry.pinned), entry.failures)
    return seal_row(*numbers, json.dumps(entry.nodes), *texts)
