"""Compare the ledger with an observation to find jobs' states and next commands.

This module is pure: it receives ledger entries and an observation, and returns transitions. The same function runs in
every cycle, including the first one after a crash. Some transitions are intents (hold, roll back, release). The bridge
repeats the command of an intent until the cluster shows its effect.

Example: the ledger records job 7 as `starting`, but the observation shows the job as pending and held. The start has
failed, so the transition is to `rolling-back`, with one more failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from cpsched.model import EndedJob, Job, RunningJob
from cpsched_bridge.backoff_groups import make_request_fingerprint
from cpsched_bridge.ports import CANNOT_BE_RELEASED, UNKNOWN_NODES, Hold, Holder, Observation, PendingJob, UnmanagedJob
from cpsched_bridge.store.ledger import (
    MANAGED_STATES,
    LedgerState,
    LedgerTransition,
    ManagedJobEntry,
    TransitionEvent,
    make_transition,
)
from cpsched_bridge.telemetry.reason_kinds import format_reason


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """Options that determine which commands the bridge may plan and when it gives up."""

    controlling: bool = True
    """Whether to hold and start jobs. If False, all jobs are released."""
    adopt: bool = True
    """Whether to hold pending jobs that are not held."""
    start_timeout_s: int = 15
    """Maximum number of seconds from the release of a job until it runs."""
    max_failures: int = 5
    """Number of consecutive failed starts or holds after which a job is left to the cluster."""
    other_in_control: bool = False
    """Whether another bridge is in control and therefore owns the submit plugin's holds."""
    releases_apart: bool = False
    """Whether pin and release are two commands, so that a crash in between leaves a job held and pinned."""
    after_dead_man: bool = False
    """Whether the dead-man timer may have released jobs, so that released jobs may be adopted again."""


def reconcile(
    known: Mapping[int, ManagedJobEntry], open_ids: Set[int], seen: Observation, options: ReconcileOptions
) -> list[LedgerTransition]:
    """Return at most one transition per job, to match the ledger to an observation.

    `known` contains the ledger's entries by job id, and `open_ids` the ids of jobs that have not ended or left. An open
    job that is in no list of `seen` has left the cluster.
    """
    now_s = seen.now_s
    found: dict[int, LedgerTransition | None] = {}
    for ended in seen.ended:
        found[ended.job.id] = _reconcile_ended(known.get(ended.job.id), ended, now_s)
    for left in seen.unmanaged:
        found[left.job_id] = _reconcile_unmanaged(known.get(left.job_id), left, now_s, options)
    for pending in seen.pending:
        found[pending.job.id] = _reconcile_pending(known.get(pending.job.id), pending, now_s, options)
    for running in seen.running:
        found[running.job.id] = _reconcile_running(known.get(running.job.id), running, seen)
    for job_id in open_ids - found.keys():
        found[job_id] = _reconcile_absent(known[job_id], now_s)
    return [transition for transition in found.values() if transition is not None]


def make_transition_after_failure(
    entry: ManagedJobEntry, job: Job, transition: LedgerTransition, max_failures: int
) -> LedgerTransition:
    """Return `transition` of `entry` with one more failed start or hold.

    After too many failures, return a release instead, which lasts while `job` has this request.
    """
    failures, after = entry.failures + 1, transition.entry
    if failures < max_failures:
        return replace(transition, entry=replace(after, failures=failures), failed=True)
    reason = f"{failures} consecutive attempts failed; last failure: {after.why}"
    release = make_transition_until_request_changes(
        entry, job, LedgerState.RELEASING, after.since_s, reason, failures=failures, cause=after.cause
    )
    return replace(release, failed=True)


def make_transition_until_request_changes(
    entry: ManagedJobEntry, job: Job, state: LedgerState, now_s: int, why: str, **changes: Any
) -> LedgerTransition:
    """Return a transition that leaves a job to the cluster until its request changes."""
    changes |= {"unmanaged_reason": why, "unmanaged_request": make_request_fingerprint(job)}
    return make_transition(entry, state, now_s, why, event="unmanaged", **changes)


def _reconcile_absent(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    state = LedgerState.GONE if entry.state in MANAGED_STATES else LedgerState.ENDED
    return make_transition(entry, state, now_s, "no longer known to the cluster")


def _reconcile_ended(entry: ManagedJobEntry | None, ended: EndedJob, now_s: int) -> LedgerTransition | None:
    if entry is None or entry.state is LedgerState.ENDED:
        return None
    if _is_end_of_earlier_run(entry, ended):
        return _reconcile_absent(entry, now_s)
    return make_transition(entry, LedgerState.ENDED, now_s, "ended", pinned=False)


def _is_end_of_earlier_run(entry: ManagedJobEntry, ended: EndedJob) -> bool:
    """Return whether a job ran and was requeued before its present state, in which the bridge may still hold it."""
    if entry.state in (LedgerState.HOLDING, LedgerState.RELEASING):
        return ended.start_s <= entry.since_s
    if entry.state is LedgerState.ROLLING_BACK:
        return ended.start_s < entry.since_s  # the job may start in the second in which it was seen pending
    if entry.state is LedgerState.STARTING:
        # The answer to a start may be later than the run's beginning, and ends the bridge's hold.
        return entry.cause != "released" and ended.end_s < entry.since_s
    return entry.state is LedgerState.HELD  # whatever the times are, because a clock may have been set


def _reconcile_running(
    entry: ManagedJobEntry | None, running: RunningJob, seen: Observation
) -> LedgerTransition | None:
    if entry is None or entry.state is LedgerState.RUNNING:
        return None
    otherwise = _describe_start_deviation(entry, running, seen)
    event: TransitionEvent = "" if otherwise else "as_decided"
    return make_transition(
        entry, LedgerState.RUNNING, seen.now_s, otherwise or "started on the planned nodes", event=event, failures=0
    )


def _describe_start_deviation(entry: ManagedJobEntry, running: RunningJob, seen: Observation) -> str:
    """Return how a start differs from the decision, or "" if it does not differ."""
    if entry.state not in (LedgerState.STARTING, LedgerState.ROLLING_BACK):
        return "started by another actor"
    if not running.placement:
        return f"started on {UNKNOWN_NODES}"
    ordered, names = dict(entry.nodes), seen.cluster.node_names
    elsewhere = [names[node] for node, _ in running.placement if names[node] not in ordered]
    if elsewhere:
        return f"started on different nodes: {','.join(elsewhere)}"
    if running.job.id in seen.otherwise:
        return f"started with a different allocation: {seen.otherwise[running.job.id]}"
    there = {names[node]: units for node, units in running.placement}
    if sum(there.values()) == sum(ordered.values()) and there != ordered:
        return f"started with a different distribution: {', '.join(f'{name} {units}' for name, units in there.items())}"
    return ""


def _reconcile_unmanaged(
    entry: ManagedJobEntry | None, left: UnmanagedJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    known_pin = entry is not None and entry.pinned
    if options.other_in_control and (left.held_for_bridge or (left.pinned and not known_pin)):
        return _leave_to_other_bridge(entry, now_s)
    ours = left.held_for_bridge or left.pinned or (entry is not None and entry.state in MANAGED_STATES)
    reason = format_reason(left.reason)
    if not ours and entry is not None and entry.state is LedgerState.RUNNING:
        return make_transition(entry, LedgerState.FREE, now_s, f"requeued and left to the cluster: {reason}")
    if not ours or (entry is not None and entry.state is LedgerState.RELEASING):
        return None
    why, pinned = f"left to the cluster: {reason}", left.pinned or known_pin
    facts = {"unmanaged_reason": reason, "label": left.label, "pinned": pinned}
    return make_transition(
        entry, LedgerState.RELEASING, now_s, why, job_id=left.job_id, event="unmanaged" if reason else "", **facts
    )


def _reconcile_pending(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    if options.other_in_control:
        return _reconcile_under_other_bridge(entry, pending, now_s, options)
    if not options.controlling:
        return _release_to_cluster(entry, pending, now_s, options)
    if entry is None:
        return _reconcile_unadopted(None, pending, now_s, options)
    if pending.hold is Hold.USER and entry.state in MANAGED_STATES:
        return _leave_to_holder(entry, pending, now_s)
    if pending.hold is Hold.CLUSTER and entry.state not in _STATES_WITH_CLUSTER_HOLD_RULE:
        return _leave_to_cluster(entry, pending, now_s)
    found = RULES_BY_STATE[entry.state](entry, pending, now_s, options)
    return (
        _keep_held_instead_of_release(entry, found, now_s)
        if pending.release_is_pointless and pending.hold is Hold.PLUGIN
        else found
    )


def _keep_held_instead_of_release(
    entry: ManagedJobEntry, found: LedgerTransition | None, now_s: int
) -> LedgerTransition | None:
    """Return a transition that keeps a job held if only the bridge can start it."""
    then = entry if found is None else found.entry
    if then.state is not LedgerState.RELEASING:
        return found
    state = LedgerState.ROLLING_BACK if entry.state is LedgerState.STARTING else LedgerState.HOLDING
    why = f"{CANNOT_BE_RELEASED}: {then.why}"
    kept = replace(then, state=state, since_s=now_s, unmanaged_reason="", unmanaged_request="", why=why, cause="")
    return LedgerTransition(entry.state, kept, failed=found is not None and found.failed, event="still_managed")


def _reconcile_under_other_bridge(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    """Release a job that only this ledger records. The other bridge keeps all others."""
    theirs = pending.hold is Hold.PLUGIN or (pending.hold is Hold.NONE and entry is not None and not entry.pinned)
    if entry is None or theirs:
        return _leave_to_other_bridge(entry, now_s)
    return _release_to_cluster(entry, pending, now_s, options)


def _leave_to_other_bridge(entry: ManagedJobEntry | None, now_s: int) -> LedgerTransition | None:
    if entry is None or entry.state not in MANAGED_STATES:
        return None
    return make_transition(entry, LedgerState.FREE, now_s, "left to the bridge that is in control", pinned=False)


def _release_to_cluster(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    if entry is not None and entry.state in MANAGED_STATES and pending.hold is Hold.USER:
        return _leave_to_holder(entry, pending, now_s)
    if entry is not None and entry.state is LedgerState.RELEASING:
        return _reconcile_releasing(entry, pending, now_s)
    if entry is not None and entry.state is LedgerState.STARTING and _was_held_after_start(entry, pending, options):
        return _leave_to_administrator(entry, now_s)
    if entry is not None and _was_hold_refused_as_already_held(entry, pending):
        return _leave_to_administrator(entry, now_s)
    pinned = pending.pinned or (entry is not None and entry.pinned)
    lost = (
        entry is not None and entry.state is LedgerState.GONE and pending.hold is Hold.ADMIN
    )  # the hold is the bridge's own; see `_reconcile_reappeared`
    kept = lost or (entry is not None and entry.state in MANAGED_STATES) or (pinned and pending.hold is Hold.NONE)
    if pending.hold is Hold.CLUSTER:
        ours = entry if kept else None
        return (
            _leave_to_cluster(ours, pending, now_s) if ours is not None else _unpin_unmanaged_job(entry, pending, now_s)
        )
    if pending.hold is Hold.USER or not (kept or pending.waits_for_bridge):
        return None
    return make_transition(
        entry,
        LedgerState.RELEASING,
        now_s,
        "not in control",
        job_id=pending.job.id,
        label=pending.label,
        pinned=pinned,
    )


def _reconcile_unadopted(
    entry: ManagedJobEntry | None, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    """Manage a job that the submit plugin holds, or adopt a job that is not held."""
    id, label = pending.job.id, pending.label
    unmanaged_reason = entry.unmanaged_reason if entry is not None and not _has_new_request(entry, pending.job) else ""
    taken: dict[str, Any] = {"unmanaged_reason": ""}
    if entry is not None and entry.unmanaged_reason:
        taken["failures"] = 0
    if pending.hold is Hold.PLUGIN:
        if unmanaged_reason:
            return make_transition(entry, LedgerState.RELEASING, now_s, unmanaged_reason, event="unmanaged")
        return make_transition(entry, LedgerState.HELD, now_s, "held for the bridge", job_id=id, label=label, **taken)
    may_be_held = pending.awaits_hold or (options.adopt and not pending.may_preempt)
    if pending.hold is Hold.NONE and may_be_held and not unmanaged_reason:
        return make_transition(
            entry, LedgerState.HOLDING, now_s, "adopted", job_id=id, label=label, pinned=pending.pinned, **taken
        )
    if pending.hold is Hold.NONE and (pending.pinned or pending.awaits_hold):
        why = (
            "released, but still pinned by the bridge"
            if pending.pinned
            else unmanaged_reason or "delayed by the submit plugin"
        )
        pinned = pending.pinned
        return make_transition(entry, LedgerState.RELEASING, now_s, why, job_id=id, label=label, pinned=pinned)
    return _unpin_unmanaged_job(entry, pending, now_s)


def _unpin_unmanaged_job(entry: ManagedJobEntry | None, pending: PendingJob, now_s: int) -> LedgerTransition | None:
    """Unpin an unmanaged job held by the cluster, so that it never runs with a pin."""
    if not (pending.hold is Hold.CLUSTER and pending.pinned):
        return None
    why = "held by the cluster, but still pinned by the bridge"
    return make_transition(
        entry, LedgerState.RELEASING, now_s, why, job_id=pending.job.id, label=pending.label, pinned=True
    )


def _leave_to_cluster(entry: ManagedJobEntry, pending: PendingJob, now_s: int) -> LedgerTransition:
    """Stop managing a job held by the cluster until its request changes. Unpin it."""
    reason = pending.cluster_reason.reason if pending.cluster_reason else "no reason given"
    why, pinned = f"the cluster holds it: {reason}", entry.pinned and pending.pinned
    state = LedgerState.RELEASING if pending.pinned else LedgerState.FREE
    return make_transition_until_request_changes(entry, pending.job, state, now_s, why, pinned=pinned)


def _has_new_request(entry: ManagedJobEntry, job: Job) -> bool:
    """Return whether a job left to the cluster because of its request has a new one."""
    return bool(entry.unmanaged_request) and entry.unmanaged_request != make_request_fingerprint(job)


def _reconcile_holding(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    """Process an intended hold. Return None if the hold must be sent again."""
    if _was_hold_refused_as_already_held(entry, pending):
        return _leave_to_administrator(entry, now_s)
    if pending.hold is Hold.NONE or pending.pinned:
        return None
    return make_transition(entry, LedgerState.HELD, now_s, "held", pinned=False)


def _reconcile_held(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    if pending.hold is Hold.NONE and options.after_dead_man:
        return make_transition(entry, LedgerState.FREE, now_s, "released while no cycle was successful")
    if pending.hold is Hold.NONE:
        why = "released by another actor"
        return make_transition(entry, LedgerState.FREE, now_s, why, event="unmanaged", unmanaged_reason=why)
    return None


def _reconcile_starting(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    """Process the start of a job that is still pending.

    The start has failed if the job is held or late, or if the cluster refuses the nodes. A reason of the cluster that
    concerns the job or its group also ends the start, but does not count as a failure of the job.
    """
    if pending.hold is Hold.CLUSTER:
        return replace(_leave_to_cluster(entry, pending, now_s), cluster_reason=pending.cluster_reason)
    if _was_held_after_start(entry, pending, options):
        return _leave_to_administrator(entry, now_s)
    if pending.hold is not Hold.NONE:
        return _roll_back_failed_start(entry, pending, now_s, "held again instead of started", options)
    if pending.refused:
        return _roll_back_failed_start(entry, pending, now_s, f"rejected by the cluster: {pending.refused}", options)

    waited_s = now_s - entry.since_s
    is_late = waited_s > options.start_timeout_s
    reason = pending.cluster_reason
    if reason is not None and (is_late or not reason.transient):
        why = f"not started: {reason.reason} ({reason.scope})"
        return replace(make_transition(entry, LedgerState.ROLLING_BACK, now_s, why), cluster_reason=reason)
    if is_late:
        return _roll_back_failed_start(entry, pending, now_s, f"not running after {waited_s} s", options)
    return None


def _roll_back_failed_start(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, why: str, options: ReconcileOptions
) -> LedgerTransition:
    held_again = make_transition(entry, LedgerState.ROLLING_BACK, now_s, why)
    return make_transition_after_failure(entry, pending.job, held_again, options.max_failures)


def _reconcile_releasing(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, options: ReconcileOptions | None = None
) -> LedgerTransition | None:
    if pending.hold is Hold.CLUSTER and not pending.pinned:
        return _leave_to_cluster(entry, pending, now_s)
    if pending.hold is Hold.NONE and not pending.pinned and not pending.awaits_hold:
        return make_transition(entry, LedgerState.FREE, now_s, "released to the cluster", pinned=False)
    return None


def _reconcile_requeued(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    """Process a requeued job, which may have an old pin. Keep an administrator's hold.

    A restored older ledger may lack the pin.
    """
    if pending.hold in (Hold.ADMIN, Hold.USER):
        holder = pending.holder if pending.hold is Hold.USER else Holder.ADMINISTRATOR
        pinned = entry.pinned or pending.pinned
        return make_transition(entry, LedgerState.FREE, now_s, f"requeued and held by {holder}", pinned=pinned)
    if entry.unmanaged_reason or pending.may_preempt or not (options.adopt or pending.hold is Hold.PLUGIN):
        return make_transition(entry, LedgerState.RELEASING, now_s, "requeued")
    return make_transition(entry, LedgerState.HOLDING, now_s, "requeued", nodes=())


def _reconcile_reappeared(
    entry: ManagedJobEntry, pending: PendingJob, now_s: int, options: ReconcileOptions
) -> LedgerTransition | None:
    """Process a job that has reappeared.

    Treat an apparent administrator's hold as the bridge's own hold.
    """
    if pending.hold is Hold.ADMIN:
        return make_transition(entry, LedgerState.HOLDING, now_s, "reappeared")
    return _reconcile_unadopted(entry, pending, now_s, options)


def _was_held_after_start(entry: ManagedJobEntry, pending: PendingJob, options: ReconcileOptions) -> bool:
    """Return whether another actor held a job after the bridge had released it.

    If pin and release are two commands, the ledger records the answer to the release. Without that answer, the hold
    counts as the bridge's own hold from before the start.
    """
    released = not options.releases_apart or entry.cause == "released"
    return pending.hold is Hold.ADMIN and pending.pinned and released


def _was_hold_refused_as_already_held(entry: ManagedJobEntry, pending: PendingJob) -> bool:
    """Return whether the bridge's hold failed because another actor held the job."""
    adopting = entry.state is LedgerState.HOLDING and not entry.pinned
    return adopting and pending.hold is Hold.ADMIN and entry.cause == "held_by_administrator"


def _leave_to_administrator(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    """Stop managing a job held by an administrator: remove its pin and keep the hold."""
    return make_transition(entry, LedgerState.FREE, now_s, "held by an administrator")


def _leave_to_holder(entry: ManagedJobEntry, pending: PendingJob, now_s: int) -> LedgerTransition:
    """Stop managing a job held by another actor: remove its pin and keep the hold.

    A restored older ledger may lack the pin.
    """
    pinned = entry.pinned or pending.pinned
    return make_transition(entry, LedgerState.FREE, now_s, format_reason(pending.holder_reason), pinned=pinned)


def make_unrecorded_release_transition(entry: ManagedJobEntry, now_s: int, pinned: bool) -> LedgerTransition:
    """Return a transition to `free` for a job whose release was not recorded. It is `pinned` if it ran meanwhile."""
    why = "released by a bridge that could not record it"
    return make_transition(entry, LedgerState.FREE, now_s, why, pinned=pinned)


def make_unpinned_transition(entry: ManagedJobEntry, now_s: int) -> LedgerTransition:
    """Return a transition that records that a job held by another actor is unpinned."""
    return make_transition(entry, LedgerState.FREE, now_s, entry.why, pinned=False)


_STATES_WITH_CLUSTER_HOLD_RULE = frozenset({LedgerState.STARTING, LedgerState.RELEASING, LedgerState.FREE})
"""States whose rules process a job that the cluster holds. In all other states, such a job is left to the cluster."""

RULES_BY_STATE: dict[
    LedgerState, Callable[[ManagedJobEntry, PendingJob, int, ReconcileOptions], LedgerTransition | None]
] = {
    LedgerState.HOLDING: _reconcile_holding,
    LedgerState.HELD: _reconcile_held,
    LedgerState.STARTING: _reconcile_starting,
    LedgerState.ROLLING_BACK: _reconcile_holding,
    LedgerState.RELEASING: _reconcile_releasing,
    LedgerState.FREE: _reconcile_unadopted,
    LedgerState.RUNNING: _reconcile_requeued,
    LedgerState.ENDED: _reconcile_requeued,
    LedgerState.GONE: _reconcile_reappeared,
}
"""Rules for pending jobs by state. `_reconcile_pending` first processes the holds of other actors."""
