"""Recover held jobs from the journal if the ledger was damaged or deleted.

The journal's last round records which jobs the bridge held, with or without the bridge's marks. Otherwise, jobs held by
the bridge itself would appear to be held by an administrator.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from cpsched.formatting import format_count
from cpsched_bridge.cycle_report import CycleEvent
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.store.corruption_checks import CorruptFileContent
from cpsched_bridge.store.journal import Journal
from cpsched_bridge.store.ledger import (
    MANAGED_STATES,
    OLDER_RELEASING,
    Ledger,
    LedgerState,
    ManagedJobEntry,
    parse_state,
)

_REASON = "held according to the journal's last round"


def recover_from_journal(ledger: Ledger, journal_path: Path, keeps: bool) -> None:
    """Add the journal's held jobs to an incomplete ledger, ignoring file errors.

    `keeps`: whether jobs stay held when a bridge stops. If False, a bridge that stopped cleanly holds no jobs.
    """
    if ledger.whole:
        return
    found = [entry for entry in find_held_jobs_in_journal(journal_path, keeps) if ledger.get(entry.job_id) is None]
    if found:
        ledger.insert_or_replace_entries(found)
        ledger.unreported_events.append(
            CycleEvent(
                "ledger_recovered",
                f"{format_count(len(found), 'held job was', 'held jobs were')} recovered from the journal",
            )
        )


def find_held_jobs_in_journal(path: Path, keeps: bool) -> list[ManagedJobEntry]:
    """Return entries for the jobs held in the last round, or none if unreadable."""
    with (
        suppress(sqlite3.Error, OSError, BridgeError, CorruptFileContent),
        closing(Journal(path, read_only=True)) as journal,
    ):
        sign = journal.find_last_activity()
        if sign is not None and (keeps or not sign.is_clean_stop):
            return _find_jobs_held_in_last_round(journal)
    return []


def _find_jobs_held_in_last_round(journal: Journal) -> list[ManagedJobEntry]:
    record = journal.read_round(journal.last_round)
    managed_kinds = {*MANAGED_STATES, OLDER_RELEASING}
    states = {job.job_id: parse_state(job.kind) for job in journal.list_unscheduled_jobs() if job.kind in managed_kinds}
    if record.mode == "control":
        states |= {job.id: LedgerState.HELD for job in record.queue}
    # A job for which a start was sent may be pinned.
    attempted = {outcome.job_id for kind, outcome in record.outcomes if kind == "start" and outcome.result != "refused"}
    states |= dict.fromkeys(attempted & states.keys(), LedgerState.STARTING)
    return [
        ManagedJobEntry(
            id, state, record.now_s, state is LedgerState.STARTING, label=record.labels.get(id, ""), why=_REASON
        )
        for id, state in sorted(states.items())
    ]
