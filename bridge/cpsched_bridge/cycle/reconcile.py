"""Compare the ledger with an observation to find the new state of each job and the next commands.

This module is pure: its input are ledger entries and an observation, and its output are transitions. The same function
runs in every cycle and after a crash. Some transitions are intents (hold, roll back, release): commands that the
bridge sends and repeats until the cluster shows their effect.

Example: the ledger records job 7 as `starting`, but the observation shows the job as pending and held. The start has
failed, so the transition is to `rolling-back`, with one more failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from cpsched.model import EndedJob, Job, RunningJob
from cpsched_bridge.equivalence import request_fingerprint
from cpsched_bridge.ports import RELEASE_POINTLESS, UNKNOWN_NODES, Hold, Holder, Observation, PendingJob, UnmanagedJob
from cpsched_bridge.store.ledger import (
    KEPT,
    LedgerState,
    LedgerTransition,
    ManagedJobEntry,
    TransitionEvent,
    make_transition,
    unmanaged_fields,
)
from cpsched_bridge.telemetry.reason_kinds import format_reason


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """Options for reconciling jobs: which commands the bridge may intend and when it gives up."""

    controlling: bool = True
    """Whether to hold and start jobs; if False, release all of them."""
    adopt: bool = True
    """Whether to hold pending jobs that are not held."""
    start_timeout_s: int = 15
    """Maximum number of seconds from the release of a job until it runs."""
    max_failures: int = 5
    """Number of consecutive failed starts or holds after which a job is left to the cluster's own scheduler."""
    beside: bool = False
    """Whether another bridge is in control and owns the submit plugin's holds. Implies that this bridge is not."""
    releases_apart: bool = False
    """Whether pin and release are two commands. A bridge that dies in between leaves a job both held and pinned."""
    after_dead_man: bool = False
    """Whether the dead-man timer may have released jobs, so that released jobs may be adopted again."""


def reconcile(
    known: Mapping[int, ManagedJobEntry], open_ids: Set[int], seen: Observation, conduct: ReconcileOptions
) -> list[LedgerTransition]:
    """Return the transitions, at most one per job, that bring the entries `known` in line with the observation `seen`.

    `known` is indexed by job id. `open_ids` are the jobs of `known` that are not over. Open jobs in no list of `seen`
    have left the cluster.
    """
    now_s = seen.now_s
    found: dict[int, LedgerTransition | None] = {}
    for ended in seen.ended:
        found[ended.job.id] = _ended(known.get(ended.job.id), ended, now_s)
    for left in seen.left:
        found[left.job_id] = _left(known.get(left.job_id), left, now_s, conduct)
    for pending in seen.pending:
        found[pending.job.id] = _pending(known.get(pending.job.id), pending, now_s, conduct)
    for running in seen.running:
        found[running.job.id] = _running(known.get(running.job.id), running, seen)
    for job_id in open_ids - found.keys():
        found[job_id] = _absent(known[job_id], now_s)
    return [transition for transition in found.values() if transition is not None]


def make_failed_transition(
    entry: ManagedJobEntry, state: LedgerState, now_s: int, why: str, conduct: ReconcileOptions, **changes: Any
) -> LedgerTransition:
    """Return a transition of `entry` with one more failure: to `state`, or released for good after too many."""
    failures = entry.failures + 1
    if failures < conduct.max_failures:
        return replace(make_transition(entry, state, now_s, why, failures=failures, **changes), failed=True)
    leave = f"{failures} attempts in a row failed, the last one: {why}"
    left = make_transition(entry, LedgerState.HANDING_BACK, now_s, leave, event="left", failures=failures, leave=leave)
    return replace(left, failed=True)


def _absent(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    state = LedgerState.GONE if entry.state in KEPT else LedgerState.ENDED
    return make_transition(entry, state, now_s, "no longer known to the cluster")


_WAITING = frozenset({LedgerState.HOLDING, LedgerState.HELD, LedgerState.HANDING_BACK})


def _ended(entry: ManagedJobEntry | None, ended: EndedJob, now_s: int) -> LedgerTransition | None:
    if entry is None or entry.state is LedgerState.ENDED:
        return None
    if entry.state is LedgerState.HELD or (entry.state in _WAITING and ended.start_s <= entry.since_s):
        return _absent(entry, now_s)  # the end belongs to an earlier run; clocks may have stepped
    return make_transition(entry, LedgerState.ENDED, now_s, "ended", pinned=False)


def _running(entry: ManagedJobEntry | None, running: RunningJob, seen: Observation) -> LedgerTransition | None:
    if entry is None or entry.state is LedgerState.RUNNING:
        return None
    otherwise = _started_otherwise(entry, running, seen)
    event: TransitionEvent = "" if otherwise else "as_decided"
    return make_transition(
        entry, LedgerState.RUNNING, seen.now_s, otherwise or "started where decided", event=event, failures=0
    )


def _started_otherwise(entry: ManagedJobEntry, running: RunningJob, seen: Observation) -> str:
    """Return a text on how the start of a job differs from the decision; empty if it does not differ."""
    if entry.state not in (LedgerState.STARTING, LedgerState.ROLLING_BACK):
        return "started by someone else"
    if not running.placement:
        return f"started, on {UNKNOWN_NODES}"
    ordered, names = dict(entry.nodes), seen.cluster.node_names
    elsewhere = [names[node] for node, _ in running.placement if names[node] not in ordered]
    if elsewhere:
        return f"started, but on {','.join(elsewhere)}"
    if running.job.id in seen.otherwise:
        return f"started, but with {seen.otherwise[running.job.id]}"
    there = {names[node]: units for node, units in running.placement}
    if sum(there.values()) == sum(ordered.values()) and there != ordered:
        return f"started, but split as {', '.join(f'{name} {units}' for name, units in there.items())}"
    return ""


def _left(
    entry: ManagedJobEntry | None, left: UnmanagedJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    known_pin = entry is not None and entry.pinned
    if conduct.beside and (left.held_for_us or (left.pinned and not known_pin)):
        return _left_to_the_other(entry, now_s)
    ours = left.held_for_us or left.pinned or (entry is not None and entry.state in KEPT)
    if not ours or (entry is not None and entry.state is LedgerState.HANDING_BACK):
        return None
    reason = format_reason(left.reason)
    why, pinned = f"left to the cluster: {reason}", left.pinned or known_pin
    facts = {"leave": reason, "label": left.label, "pinned": pinned}
    return make_transition(
        entry, LedgerState.HANDING_BACK, now_s, why, job_id=left.job_id, event="left" if reason else "", **facts
    )


def _pending(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    if conduct.beside:
        return _make_way(entry, pending, now_s, conduct)
    if not conduct.controlling:
        return _hand_back(entry, pending, now_s, conduct)
    if entry is None:
        return _take(None, pending, now_s, conduct)
    found = BY_STATE[entry.state](entry, pending, now_s, conduct)
    return _kept_on(entry, found, now_s) if pending.release_is_pointless and pending.hold is Hold.PLUGIN else found


def _kept_on(entry: ManagedJobEntry, found: LedgerTransition | None, now_s: int) -> LedgerTransition | None:
    """Return a transition that keeps a job held, for a retry, if the cluster's own scheduler could not start it."""
    then = entry if found is None else found.entry
    if then.state is not LedgerState.HANDING_BACK:
        return found
    state = LedgerState.ROLLING_BACK if entry.state is LedgerState.STARTING else LedgerState.HOLDING
    why = f"{RELEASE_POINTLESS}: {then.why}"
    kept = replace(then, state=state, since_s=now_s, leave="", asked="", why=why, cause="")
    return LedgerTransition(entry.state, kept, failed=found is not None and found.failed, event="kept_on")


def _make_way(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    """Release the jobs that only this ledger records while another bridge, which owns all others, is in control."""
    theirs = pending.hold is Hold.PLUGIN or (pending.hold is Hold.NONE and entry is not None and not entry.pinned)
    if entry is None or theirs:
        return _left_to_the_other(entry, now_s)
    return _hand_back(entry, pending, now_s, conduct)


def _left_to_the_other(entry: ManagedJobEntry | None, now_s: int) -> LedgerTransition | None:
    if entry is None or entry.state not in KEPT:
        return None
    return make_transition(entry, LedgerState.FREE, now_s, "left to another bridge, which is in control", pinned=False)


def _hand_back(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    if entry is not None and entry.state is LedgerState.HANDING_BACK:
        return _handing_back(entry, pending, now_s)
    if entry is not None and entry.state in KEPT and pending.hold is Hold.USER:
        return _held_by_other(entry, pending, now_s)
    if entry is not None and entry.state is LedgerState.STARTING and _held_since_the_start(entry, pending, conduct):
        return _held_by_administrator(entry, now_s)
    if entry is not None and _held_instead(entry, pending):
        return _held_by_administrator(entry, now_s)
    pinned = pending.pinned or (entry is not None and entry.pinned)
    lost = entry is not None and entry.state is LedgerState.GONE and pending.hold is Hold.ADMIN  # ours, see `_was_lost`
    kept = lost or (entry is not None and entry.state in KEPT) or (pinned and pending.hold is Hold.NONE)
    if pending.hold is Hold.CLUSTER:
        ours = entry if kept else None
        return _held_by_cluster(ours, pending, now_s) if ours is not None else _unpinned(entry, pending, now_s)
    if pending.hold is Hold.USER or not (kept or pending.hold is Hold.PLUGIN):
        return None
    return make_transition(
        entry,
        LedgerState.HANDING_BACK,
        now_s,
        "not in control",
        job_id=pending.job.id,
        label=pending.label,
        pinned=pinned,
    )


def _take(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    """Take over a pending job: manage it if the submit plugin holds it; possibly adopt it if it is not held."""
    id, label = pending.job.id, pending.label
    leave = entry.leave if entry is not None and not _asks_for_else(entry, pending.job) else ""
    if pending.hold is Hold.PLUGIN:
        if leave:
            return make_transition(entry, LedgerState.HANDING_BACK, now_s, leave, event="left")
        return make_transition(
            entry, LedgerState.HELD, now_s, "held by the submit plugin", job_id=id, label=label, leave=""
        )
    if pending.hold is Hold.NONE and conduct.adopt and not leave:
        return make_transition(
            entry, LedgerState.HOLDING, now_s, "adopted", job_id=id, label=label, pinned=pending.pinned, leave=""
        )
    if pending.hold is Hold.NONE and pending.pinned:
        why = "released, with a pin of ours"
        return make_transition(entry, LedgerState.HANDING_BACK, now_s, why, job_id=id, label=label, pinned=True)
    return _unpinned(entry, pending, now_s)


def _unpinned(entry: ManagedJobEntry | None, pending: PendingJob, now_s: int) -> LedgerTransition | None:
    """Unpin a job that the bridge does not manage, so that a job held by the cluster never runs with an old pin."""
    if not (pending.hold is Hold.CLUSTER and pending.pinned):
        return None
    why = "held by the cluster itself, with a pin of ours"
    return make_transition(
        entry, LedgerState.HANDING_BACK, now_s, why, job_id=pending.job.id, label=pending.label, pinned=True
    )


def _held_by_cluster(entry: ManagedJobEntry, pending: PendingJob, now_s: int) -> LedgerTransition:
    """Leave a job that the cluster itself holds until its request changes, and remove its pin."""
    reason = pending.obstacle.reason if pending.obstacle else "no reason given"
    left = unmanaged_fields(request_fingerprint(pending.job), f"the cluster holds it: {reason}")
    if pending.pinned:
        return make_transition(entry, LedgerState.HANDING_BACK, now_s, left["leave"], event="left", **left)
    return make_transition(entry, LedgerState.FREE, now_s, left["leave"], event="left", pinned=False, **left)


def _asks_for_else(entry: ManagedJobEntry, job: Job) -> bool:
    """Return whether the job's request has changed since the job was left to the cluster because of the request."""
    return bool(entry.asked) and entry.asked != request_fingerprint(job)


def _holding(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    """Process an intended hold. If the job is not held yet, send the hold again."""
    if pending.hold is Hold.USER:
        return _held_by_other(entry, pending, now_s)
    if pending.hold is Hold.CLUSTER:
        return _held_by_cluster(entry, pending, now_s)
    if _held_instead(entry, pending):
        return _held_by_administrator(entry, now_s)
    if pending.hold is Hold.NONE or pending.pinned:
        return None
    return make_transition(entry, LedgerState.HELD, now_s, "held", pinned=False)


def _held(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    if pending.hold is Hold.USER:
        return _held_by_other(entry, pending, now_s)
    if pending.hold is Hold.CLUSTER:
        return _held_by_cluster(entry, pending, now_s)
    if pending.hold is Hold.NONE and conduct.after_dead_man:
        return make_transition(entry, LedgerState.FREE, now_s, "released while there was no good cycle")
    if pending.hold is Hold.NONE:
        why = "released by someone else"
        return make_transition(entry, LedgerState.FREE, now_s, why, event="left", leave=why)
    return None


def _starting(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    """Process the start of a job that is still pending. If the job is held, the start has failed.

    The start has also failed if the cluster refuses the nodes or reports an obstacle for the job or its group. An
    obstacle does not count as a failure.
    """
    if pending.hold is Hold.USER:
        return _held_by_other(entry, pending, now_s)
    if pending.hold is Hold.CLUSTER:
        return replace(_held_by_cluster(entry, pending, now_s), obstacle=pending.obstacle)
    if _held_since_the_start(entry, pending, conduct):
        return _held_by_administrator(entry, now_s)
    if pending.hold is not Hold.NONE:
        return make_failed_transition(entry, LedgerState.ROLLING_BACK, now_s, "held instead of started", conduct)
    if pending.refused:
        return make_failed_transition(
            entry, LedgerState.ROLLING_BACK, now_s, f"refused by the cluster: {pending.refused}", conduct
        )
    late = now_s - entry.since_s > conduct.start_timeout_s
    obstacle = pending.obstacle
    if obstacle is not None and (late or not obstacle.transient):
        why = f"not started: {obstacle.reason} ({obstacle.scope})"
        return replace(make_transition(entry, LedgerState.ROLLING_BACK, now_s, why), obstacle=obstacle)
    if late:
        return make_failed_transition(
            entry, LedgerState.ROLLING_BACK, now_s, f"not running after {now_s - entry.since_s} s", conduct
        )
    return None


def _handing_back(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, conduct: ReconcileOptions | None = None
) -> LedgerTransition | None:
    if pending.hold is Hold.USER:
        return _held_by_other(entry, pending, now_s)
    if pending.hold is Hold.CLUSTER and not pending.pinned:
        return _held_by_cluster(entry, pending, now_s)
    if pending.hold is Hold.NONE and not pending.pinned:
        return make_transition(entry, LedgerState.FREE, now_s, "handed back", pinned=False)
    return None


def _was_running(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    """Process a requeued job, which may have an old pin. Keep an administrator's hold."""
    if pending.hold is Hold.CLUSTER:
        return _held_by_cluster(entry, pending, now_s)
    if pending.hold in (Hold.ADMIN, Hold.USER):
        holder = pending.holder if pending.hold is Hold.USER else Holder.ADMINISTRATOR
        return make_transition(entry, LedgerState.FREE, now_s, f"requeued and held by {holder}")
    if entry.leave or not (conduct.adopt or pending.hold is Hold.PLUGIN):
        return make_transition(entry, LedgerState.HANDING_BACK, now_s, "requeued")
    return make_transition(entry, LedgerState.HOLDING, now_s, "requeued", nodes=())


def _was_lost(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, conduct: ReconcileOptions
) -> LedgerTransition | None:
    """Process a job that has reappeared. If an administrator appears to hold it, the hold is the bridge's own."""
    if pending.hold is Hold.CLUSTER:
        return _held_by_cluster(entry, pending, now_s)
    if pending.hold is Hold.ADMIN:
        return make_transition(entry, LedgerState.HOLDING, now_s, "seen again")
    return _take(entry, pending, now_s, conduct)


def _held_since_the_start(entry: ManagedJobEntry, pending: PendingJob, conduct: ReconcileOptions) -> bool:
    """Return whether another actor held a job after its start, when it was pinned and had been released.

    If pin and release are two commands, the ledger records the answer to the release. Without that answer, the hold
    counts as the bridge's own hold from before the start and is kept.
    """
    released = not conduct.releases_apart or entry.cause == "released"
    return pending.hold is Hold.ADMIN and pending.pinned and released


def _held_instead(entry: ManagedJobEntry, pending: PendingJob) -> bool:
    """Return whether the bridge's hold was refused because another actor had already held the job."""
    adopting = entry.state is LedgerState.HOLDING and not entry.pinned
    return adopting and pending.hold is Hold.ADMIN and entry.cause == "held_by_administrator"


def _held_by_administrator(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    """Stop managing a job held by an administrator: remove its pin and keep the hold."""
    return make_transition(entry, LedgerState.FREE, now_s, "held by an administrator")


def _held_by_other(entry: ManagedJobEntry, pending: PendingJob, now_s: int) -> LedgerTransition:
    """Stop managing a job held by another actor, as `_held_by_administrator` does for an administrator."""
    return make_transition(entry, LedgerState.FREE, now_s, format_reason(pending.holder_reason))


def make_released_transition(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    """Return a transition to `free` for a job that an earlier process released without recording that."""
    why = "handed back by a bridge that could not write it down"
    return make_transition(entry, LedgerState.FREE, now_s, why, pinned=False)


def make_unpinned_transition(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    """Return a transition that records the removal of the pin from a job held by another actor."""
    return make_transition(entry, LedgerState.FREE, now_s, entry.why, pinned=False)


BY_STATE: dict[LedgerState, Callable[[ManagedJobEntry, PendingJob, int, ReconcileOptions], LedgerTransition | None]] = {
    LedgerState.HOLDING: _holding,
    LedgerState.HELD: _held,
    LedgerState.STARTING: _starting,
    LedgerState.ROLLING_BACK: _holding,
    LedgerState.HANDING_BACK: _handing_back,
    LedgerState.FREE: _take,
    LedgerState.RUNNING: _was_running,
    LedgerState.ENDED: _was_running,
    LedgerState.GONE: _was_lost,
}
