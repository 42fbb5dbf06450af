"""Gives every held job back to the cluster's own scheduler: when the bridge stops, and when it is dead."""

from __future__ import annotations

from bridge.errors import BackendError
from bridge.ledger import KEPT, Ledger, State, move
from bridge.ports import Backend, Observation, Outcome
from bridge.reconcile import Rules, reconcile


def give_all_back(backend: Backend, ledger: Ledger, why: str, attempts: int = 3) -> list[tuple[int, str]]:
    """Hand back every job that a hold or pin of ours may be on; the jobs for which that failed, with the reason.

    Reads the cluster first, to find jobs that the submit plugin held and to leave running ones alone; where it cannot
    be read, what the ledger says is handed back.
    """
    problems: dict[int, str] = {}
    for _ in range(attempts):
        now_s = _mark(backend, ledger, why)
        wanted = [entry.job_id for entry in ledger.entries(State.HANDING_BACK)]
        if not wanted:
            return []
        problems = _hand_back(backend, ledger, wanted, now_s)
        if not problems:
            return []
    return sorted(problems.items())


def _mark(backend: Backend, ledger: Ledger, why: str) -> int:
    """Write the intent for every kept job; cluster time, as far as it is known."""
    try:
        seen = backend.observe(ledger.pinned())
    except BackendError:
        kept = list(ledger.entries(*(KEPT - {State.HANDING_BACK})))
        ledger.record(move(entry, State.HANDING_BACK, entry.since_s, why) for entry in kept)
        return max((entry.since_s for entry in ledger.entries(*KEPT)), default=0)
    return _mark_seen(ledger, seen)


def _mark_seen(ledger: Ledger, seen: Observation) -> int:
    ledger.record(reconcile(ledger.by_id, ledger.open_ids(), seen, Rules(controlling=False)))
    return seen.now_s


def _hand_back(backend: Backend, ledger: Ledger, wanted: list[int], now_s: int) -> dict[int, str]:
    try:
        outcomes = backend.hand_back(wanted)
    except BackendError as error:
        outcomes = [Outcome(id, "unknown", str(error)) for id in wanted]
    done = [entry for o in outcomes if o.result == "done" and (entry := ledger.get(o.job_id)) is not None]
    ledger.record(move(entry, State.FREE, now_s, "handed back", pinned=False) for entry in done)
    return {o.job_id: o.detail for o in outcomes if o.result != "done"}
