"""Gives every held job back to the cluster's own scheduler: when the bridge stops, and when it is dead."""

from __future__ import annotations

from cpsched_bridge.cycle.reconcile import Rules, reconcile
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, Outcome
from cpsched_bridge.store.ledger import KEPT, Ledger, State, move


def give_all_back(backend: Backend, ledger: Ledger, why: str, attempts: int = 3) -> list[str]:
    """Hand back every job that a hold or pin of ours may be on; what is in the way of that, a line each.

    Reads the cluster first, to find jobs that the submit plugin held and to leave running ones alone; where it cannot
    be read, what the ledger says is handed back.
    """
    problems: list[str] = []
    for _ in range(attempts):
        problems = _unread(backend, ledger, why) + _hand_back(backend, ledger)
        if not problems:
            break
    return problems


def _unread(backend: Backend, ledger: Ledger, why: str) -> list[str]:
    """Write the intent for every kept job; why the cluster could not be read, if so."""
    try:
        seen = backend.observe(ledger.pinned())
    except BackendError as error:
        kept = ledger.entries(*(KEPT - {State.HANDING_BACK}))
        ledger.record(move(entry, State.HANDING_BACK, entry.since_s, why) for entry in kept)
        return [f"the cluster cannot be read, the submit plugin may hold more: {error}"]
    ledger.record(reconcile(ledger.by_id, ledger.open_ids(), seen, Rules(controlling=False)))
    return []


def _hand_back(backend: Backend, ledger: Ledger) -> list[str]:
    wanted = [entry.job_id for entry in ledger.entries(State.HANDING_BACK)]
    if not wanted:
        return []
    try:
        outcomes = backend.hand_back(wanted)
    except BackendError as error:
        outcomes = [Outcome(id, "unknown", str(error)) for id in wanted]
    done = [entry for o in outcomes if o.result == "done" and (entry := ledger.get(o.job_id)) is not None]
    ledger.record(move(entry, State.FREE, entry.since_s, "handed back", pinned=False) for entry in done)
    return [f"job {o.job_id} may still be held: {o.detail}" for o in outcomes if o.result != "done"]
