"""Release all held jobs to the cluster when the bridge stops or has died."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from cpsched.jit.compile_progress import CompilationCancelled
from cpsched_bridge.cycle.cycle_recorder import describe_failure
from cpsched_bridge.cycle.reconcile import ReconcileOptions, make_unpinned_transition, reconcile
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Backend, Observation, Outcome, QueueGate, UndoOrder
from cpsched_bridge.store.ledger import (
    MANAGED_STATES,
    Ledger,
    LedgerState,
    LedgerTransition,
    ManagedJobEntry,
    make_transition,
)


def assume_no_other_leader(seen: Observation) -> bool:
    """Return False, which means that no other bridge is in control."""
    return False


def are_only_disk_problems(problems: Sequence[str]) -> bool:
    """Return whether there are problems and all of them are harmless disk problems."""
    return bool(problems) and all(isinstance(problem, HarmlessDiskProblem) for problem in problems)


class HarmlessDiskProblem(str):
    """A disk problem that did not leave any job held."""

    __slots__ = ()


MAX_FAILED_ATTEMPTS = 3
"""Maximum number of attempts to release all jobs that end without progress."""
BATCH_SIZE = 500
"""Maximum number of jobs released between two keep-alive calls."""


def release_all_jobs(
    backend: Backend,
    ledger: Ledger,
    why: str,
    other_in_control: Callable[[Observation], bool] = assume_no_other_leader,
    on_keep_alive: Callable[[], None] = lambda: None,
) -> list[str]:
    """Release all jobs that the bridge may have held or pinned. Return any problems.

    Jobs held by other actors lose the bridge's pins but stay held. If `other_in_control` returns True for an
    observation, another bridge is in control, and jobs held by the submit plugin are left to it.

    The cluster is read first: the submit plugin may hold jobs that are missing from the ledger, and running jobs must
    not be touched. If the cluster cannot be read, the jobs in the ledger are released. If the ledger cannot be written,
    the intents are kept in memory and the release continues.

    After `MAX_FAILED_ATTEMPTS` attempts without progress, the remaining jobs are not retried. Jobs are released in
    batches of `BATCH_SIZE`, and `on_keep_alive` is called before each batch.
    """
    problems: list[str] = []
    least, attempts = math.inf, MAX_FAILED_ATTEMPTS
    while attempts > 0:
        on_keep_alive()
        unread, others = _record_release_intents(backend, ledger, why, other_in_control)
        problems = [
            *unread,
            *([] if others else reopen_queues(backend)),
            *_release_held_jobs(backend, ledger, on_keep_alive),
        ]
        problems += _remove_orphaned_pins(backend, ledger)
        if not problems or are_only_disk_problems(problems):
            break
        left = len(ledger.list_managed_job_ids())
        attempts -= left >= least or math.isinf(least)
        least = min(least, left)
    return problems


def reopen_queues(backend: Backend) -> list[str]:
    """Open closed queues to the cluster's own scheduler. Return one line per problem."""
    if not isinstance(backend, QueueGate):
        return []
    try:
        return list(backend.reopen_queues())
    except BackendError as error:
        return [f"queues may still be closed to new jobs: {error}"]


def _record_release_intents(
    backend: Backend, ledger: Ledger, why: str, other_in_control: Callable[[Observation], bool]
) -> tuple[list[str], bool]:
    """Record a release intent for each job that must be released.

    Return one line per problem, and whether another bridge is in control.
    """
    try:
        seen = backend.observe(ledger.list_pinned_job_ids())
        apart = not backend.starts_in_one_change
        others = other_in_control(seen)
        options = ReconcileOptions(controlling=False, other_in_control=others, releases_apart=apart)
        transitions = reconcile(ledger.by_id, ledger.list_open_job_ids(), seen, options)
    except (Exception, CompilationCancelled) as error:  # the jobs in the ledger are released anyway
        text = str(error) if isinstance(error, BackendError) else describe_failure(error)
        kept = ledger.list_entries(*(MANAGED_STATES - {LedgerState.RELEASING}))
        intents = [make_transition(entry, LedgerState.RELEASING, entry.since_s, why) for entry in kept]
        unread = [f"the cluster cannot be read, so the submit plugin may hold more jobs: {text}"]
        if isinstance(error, CompilationCancelled):  # from a simulated cluster before its start
            unread = []
        return [*unread, *_record_transitions(ledger, intents)], False
    return _record_transitions(ledger, transitions), others


def _release_held_jobs(backend: Backend, ledger: Ledger, on_keep_alive: Callable[[], None]) -> list[str]:
    problems: list[str] = []
    kept = ledger.list_entries(*MANAGED_STATES)
    for at in range(0, len(kept), BATCH_SIZE):
        on_keep_alive()
        problems += _release_batch(backend, ledger, kept[at : at + BATCH_SIZE])
    return problems


def _release_batch(backend: Backend, ledger: Ledger, wanted: Sequence[ManagedJobEntry]) -> list[str]:
    outcomes = _send_command(backend.release, wanted)
    done = [entry for o in outcomes if o.result == "done" and (entry := ledger.get(o.job_id)) is not None]
    unwritten = _record_transitions(
        ledger,
        [
            make_transition(entry, LedgerState.FREE, entry.since_s, "released to the cluster", pinned=False)
            for entry in done
        ],
    )
    held = [(ledger.get_job_name(o.job_id), o.detail) for o in outcomes if o.result != "done"]
    return unwritten + [f"job {name} may still be held: {detail}" for name, detail in held]


def _remove_orphaned_pins(backend: Backend, ledger: Ledger) -> list[str]:
    """Remove the bridge's pins from jobs that others hold. Return a line per problem."""
    outcomes = _send_command(backend.unpin, ledger.list_orphaned_pins())
    done = [entry for o in outcomes if o.result == "done" and (entry := ledger.get(o.job_id)) is not None]
    unwritten = _record_transitions(ledger, [make_unpinned_transition(entry, entry.since_s) for entry in done])
    left = [(ledger.get_job_name(o.job_id), o.detail) for o in outcomes if not o.is_answered]
    return unwritten + [f"job {name} may still have the bridge's node list: {detail}" for name, detail in left]


def _send_command(
    command: Callable[[Sequence[UndoOrder]], Sequence[Outcome]], entries: Sequence[ManagedJobEntry]
) -> Sequence[Outcome]:
    if not entries:
        return []
    try:
        return command([entry.make_undo_order() for entry in entries])
    except BackendError as error:
        return [Outcome(entry.job_id, "unknown", str(error)) for entry in entries]


def _record_transitions(ledger: Ledger, transitions: Iterable[LedgerTransition]) -> list[str]:
    try:
        ledger.record(transitions, unwritten=True)  # order of updates: memory, cluster, disk
    except sqlite3.Error as error:
        return [HarmlessDiskProblem(f"the ledger cannot be written: {error}")]
    return []
