"""Release every held job to the cluster's own scheduler when the bridge stops or is dead."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from cpsched.jit.compile_progress import CompilationCancelled
from cpsched_bridge.cycle.cycle_failures import describe_failure
from cpsched_bridge.cycle.reconcile import ReconcileOptions, make_unpinned_transition, reconcile
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, Observation, Outcome, QueueGate
from cpsched_bridge.store.ledger import KEPT, Ledger, LedgerState, LedgerTransition, make_transition


def has_no_other_leader(seen: Observation) -> bool:
    """Return False, which means that no other bridge is in control."""
    return False


def are_only_disk_problems(problems: Sequence[str]) -> bool:
    """Return whether every job was released and all problems are disk problems."""
    return bool(problems) and all(isinstance(problem, DiskProblem) for problem in problems)


class DiskProblem(str):
    """A disk problem that did not leave any job held."""

    __slots__ = ()


TOGETHER = 500
"""Maximum number of jobs that are released between two keep-alive calls."""


def release_all_jobs(
    backend: Backend,
    ledger: Ledger,
    why: str,
    beside: Callable[[Observation], bool] = has_no_other_leader,
    attempts: int = 3,
    goes_on: Callable[[], None] = lambda: None,
) -> list[str]:
    """Release every job that the bridge may hold or may have pinned. Return one line per problem.

    Jobs that other actors hold lose the bridge's pins but stay held. If `beside` returns True for an observation,
    another bridge is in control and keeps the submit plugin's holds.

    The cluster is read first, because the submit plugin may hold jobs that are missing from the ledger and because
    running jobs must not be touched. If the cluster cannot be read, the jobs in the ledger are released. If the ledger
    cannot be written, the intents are kept in memory and the release continues.

    After `attempts` attempts without progress, the remaining jobs are given up. Jobs are released in batches of
    `TOGETHER`, and `goes_on` is called before each batch.
    """
    problems: list[str] = []
    least = math.inf
    while attempts > 0:
        goes_on()
        unread, others = _intend(backend, ledger, why, beside)
        problems = [*unread, *([] if others else open_queues(backend)), *_hand_back(backend, ledger, goes_on)]
        problems += _take_off_pins(backend, ledger)
        if not problems or are_only_disk_problems(problems):
            break
        left = len(ledger.list_held_ids())
        attempts -= left >= least or math.isinf(least)
        least = min(least, left)
    return problems


def open_queues(backend: Backend) -> list[str]:
    """Open all closed queues to the cluster's own scheduler. Return one line per problem."""
    if not isinstance(backend, QueueGate):
        return []
    try:
        return list(backend.open_queues())
    except BackendError as error:
        return [f"future jobs may be held: {error}"]


def _intend(
    backend: Backend, ledger: Ledger, why: str, beside: Callable[[Observation], bool]
) -> tuple[list[str], bool]:
    """Record a release intent for every job to release.

    Return one line per problem, and whether another bridge is in control.
    """
    try:
        seen = backend.observe(ledger.get_pinned_ids())
        apart = not backend.starts_in_one_change
        others = beside(seen)
        conduct = ReconcileOptions(controlling=False, beside=others, releases_apart=apart)
        transitions = reconcile(ledger.by_id, ledger.open_ids(), seen, conduct)
    except (Exception, CompilationCancelled) as error:  # the ledger's jobs are released in any case
        words = str(error) if isinstance(error, BackendError) else describe_failure(error)
        kept = ledger.list_entries(*(KEPT - {LedgerState.HANDING_BACK}))
        intents = [make_transition(entry, LedgerState.HANDING_BACK, entry.since_s, why) for entry in kept]
        unread = [f"the cluster cannot be read, the submit plugin may hold more: {words}"]
        if isinstance(error, CompilationCancelled):  # from a simulated cluster in this process that has not started
            unread = []
        return [*unread, *_record(ledger, intents)], False
    return _record(ledger, transitions), others


def _hand_back(backend: Backend, ledger: Ledger, goes_on: Callable[[], None]) -> list[str]:
    problems: list[str] = []
    kept = ledger.list_held_ids()
    for at in range(0, len(kept), TOGETHER):
        goes_on()
        problems += _hand_back_part(backend, ledger, kept[at : at + TOGETHER])
    return problems


def _hand_back_part(backend: Backend, ledger: Ledger, wanted: Sequence[int]) -> list[str]:
    outcomes = _sent(backend.release, wanted)
    done = [entry for o in outcomes if o.result == "done" and (entry := ledger.get(o.job_id)) is not None]
    unwritten = _record(
        ledger, [make_transition(entry, LedgerState.FREE, entry.since_s, "handed back", pinned=False) for entry in done]
    )
    held = [(ledger.get_job_name(o.job_id), o.detail) for o in outcomes if o.result != "done"]
    return unwritten + [f"job {name} may still be held: {detail}" for name, detail in held]


def _take_off_pins(backend: Backend, ledger: Ledger) -> list[str]:
    """Remove the bridge's pins from jobs that other actors hold; the jobs stay held. Return one line per problem."""
    outcomes = _sent(backend.unpin, [entry.job_id for entry in ledger.list_orphaned_pins()])
    done = [entry for o in outcomes if o.result == "done" and (entry := ledger.get(o.job_id)) is not None]
    unwritten = _record(ledger, [make_unpinned_transition(entry, entry.since_s) for entry in done])
    left = [(ledger.get_job_name(o.job_id), o.detail) for o in outcomes if o.result == "unknown"]
    return unwritten + [f"job {name} may still have the bridge's node list: {detail}" for name, detail in left]


def _sent(command: Callable[[Sequence[int]], Sequence[Outcome]], wanted: Sequence[int]) -> Sequence[Outcome]:
    if not wanted:
        return []
    try:
        return command(wanted)
    except BackendError as error:
        return [Outcome(id, "unknown", str(error)) for id in wanted]


def _record(ledger: Ledger, transitions: Iterable[LedgerTransition]) -> list[str]:
    try:
        ledger.record(transitions, unwritten=True)  # order of updates: memory, cluster, disk
    except sqlite3.Error as error:
        return [DiskProblem(f"the ledger cannot be written: {error}")]
    return []
