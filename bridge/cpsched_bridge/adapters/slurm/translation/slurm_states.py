"""Classify Slurm's states and reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.objects import SlurmNode, SlurmObject
from cpsched_bridge.ports import Hold, Holder, ObjectKind, UnusableObject

MARK_PREFIX = "bridge:"
"""Prefix of every mark that the submit plugin writes."""
WAIT_MARK = "bridge:wait"
"""The submit plugin's mark in a job's admin_comment or comment.

It is written to admin_comment when a job is submitted, and to comment when the bridge holds the job.
"""
USER_HELD_MARK = "bridge:user-held"
ADMIN_HELD_MARK = "bridge:admin-held"
"""Marks that the plugin adds to a job's comment if a user or administrator also holds the job."""

PINNED_MARK = "bridge:pinned("
"""The plugin's mark for a node list set by the bridge. The parentheses contain the list that the owner requested."""

DELAY_MARK = "bridge:begin("
"""The plugin's mark for a job that it delays instead of holding it, so that Slurm tests the request.

The parentheses contain the begin time that the owner requested, or 0.
"""

HELD_BY_USER_REASON = "JobHeldUser"
HELD_BY_ADMIN_REASON = "JobHeldAdmin"
LAUNCH_FAILED_REASONS = frozenset(
    {
        "launch failed requeued held",
        "launch failure limit exceeded requeued held",
        "user env retrieval failed requeued held",
        "slurm_cred_create failure, holding job.",
    }
)
"""Slurm's reasons for holding a job that a node could not launch, for example because its prolog failed."""
SLURM_HOLD_REASONS = LAUNCH_FAILED_REASONS | frozenset(
    {
        "BadConstraints",
        "BurstBufferOperation",
        "JobHoldMaxRequeue",
        "ReservationDeleted",
        "ReservationInvalid",
    }
)
"""Reasons why Slurm itself holds a job (priority 0) until the cause is removed or the request is changed."""
LASTING_HOLD_REASONS = SLURM_HOLD_REASONS - {"BadConstraints"}
"""Reasons for holds that an administrator must release. After a release, Slurm itself checks `BadConstraints`."""

PENDING = "PENDING"
RUNNING = "RUNNING"
EXPEDITING = "EXPEDITING"
"""State of a job that was requeued by `--requeue=expedite` (25.11). Slurm starts it before all other jobs."""
WAITING_FOR_SLURM: Mapping[str, str] = {
    "SPECIAL_EXIT": "requeued and held until an administrator releases it",
    "REQUEUE_HOLD": "requeued and held until its owner or an administrator releases it",
    "RESV_DEL_HOLD": "its reservation ended; held until its owner or an administrator releases it",
    EXPEDITING: "requeued after a failure; Slurm starts it before all other jobs",
    "REQUEUE_FED": "being requeued by the federation",
    "REVOKED": "another cluster of the federation has it",
}
"""Meanings of states that Slurm prints instead of PENDING (`job_state_string` in common/slurm_protocol_defs.c).

The bridge neither holds nor starts these jobs.
"""
COMPLETED = "COMPLETED"
CONFIGURING = "CONFIGURING"
"""State of a job that has nodes but is not running yet, for example because they are powering up."""
SUSPENDED = "SUSPENDED"
UNKNOWN = "UNKNOWN"
"""State of a record that `mark_unknown_states` returned. The job's `unknown_state` holds the printed state."""
OCCUPYING_STATES = frozenset(
    {
        "RUNNING",
        CONFIGURING,
        "COMPLETING",
        SUSPENDED,
        "STOPPED",
        "SIGNALING",
        "RESIZING",
        "STAGE_OUT",
        "REQUEUED",
        UNKNOWN,
    }
)
"""States in which nodes are or may be in use. A requeued job is COMPLETING or REQUEUED before it is pending."""
ENDED_STATES = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    }
)
LISTED_STATES = OCCUPYING_STATES | ENDED_STATES | WAITING_FOR_SLURM.keys() | {PENDING}

USABLE_NODE_STATES = frozenset({"IDLE", "MIXED", "ALLOCATED"})
HARMLESS_NODE_FLAGS = frozenset({"PLANNED", "COMPLETING", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Flags of nodes that accept jobs. Any other flag (DRAIN, NOT_RESPONDING, MAINTENANCE) excludes the node."""
LISTED_NODE_STATES = USABLE_NODE_STATES | {"DOWN", "ERROR", "FUTURE", "UNKNOWN"}
CLOSED_NODE_FLAGS = frozenset(
    {
        "BLOCKED",
        "CANCEL_REBOOT",
        "DRAIN",
        "FAIL",
        "INVALID",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "POWER_DOWN",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_UP",
        "REBOOT",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "RESUME",
    }
)
"""Flags with which Slurm itself starts no jobs on a node, or powers it up first.

These and `HARMLESS_NODE_FLAGS` are all flags of Slurm 22.05 to 26.11 (`node_state_flags` in
common/slurm_protocol_defs.c) except EXTERNAL: no slurmd runs on such a node, and only Slurm places jobs there.
"""
BOOTING = frozenset({"POWERING_UP", "POWER_UP"})
"""Flags of nodes that Slurm is powering up."""
POWERED_DOWN = "POWERED_DOWN"
"""Flag of nodes that Slurm powers up when it starts a job on them, unlike nodes that it is still powering down."""
RESERVED_NODE_FLAG = "RESERVED"
"""Flag of a node that an active reservation holds wholly or partly."""


def mark_unknown_states(jobs: Iterable[SlurmJob], now_s: int) -> list[SlurmJob]:
    """Return the records, with the state `UNKNOWN` for each job in an unlisted state that has not ended.

    Such a job occupies the nodes in its record, if any.
    """
    return [
        job
        if job.state in LISTED_STATES or has_ended(job, now_s)
        else job._replace(state=UNKNOWN, unknown_state=job.state)
        for job in jobs
    ]


def has_ended(job: SlurmJob, now_s: int) -> bool:
    """Return whether the job's end time has passed. It may still be completing."""
    return bool(job.end_time and job.end_time <= now_s)


def find_wait_for_slurm(job: SlurmJob, now_s: int) -> tuple[str, str] | None:
    """Return the state and its meaning for a job that only Slurm handles, or None for other jobs.

    The state is neither pending nor known to occupy nodes. The job may have ended in a state such as REVOKED.
    """
    state = job.state
    if state == UNKNOWN:
        return job.unknown_state, "this version has no rule for this state"
    if has_ended(job, now_s) or state == PENDING or state in ENDED_STATES:
        return None
    if state in WAITING_FOR_SLURM:
        return state, WAITING_FOR_SLURM[state]
    if state in OCCUPYING_STATES and not job.allocated_nodes:
        return state, "has no nodes; Slurm handles it"
    return None


def classify_hold(job: SlurmJob, guarded: bool) -> Hold:
    """Return the kind of hold on a pending job, by the rule in `docs/safety.md`.

    The dead-man timer applies the same rule. Priority 0 means that the job is held. `guarded` means that the submit
    plugin is loaded. Without it, users can write its marks into a comment. A mark that permits a release counts only
    if single spaces delimit it. A mark that forbids a release counts if any whitespace delimits it.

    - If the plugin saw the owner or another administrator set the hold, the hold must stay.
    - If Slurm's reason is one of `SLURM_HOLD_REASONS`, Slurm itself holds the job.
    - The admin comment, which users and operators cannot write, proves the plugin's hold. An administrator may have
      added a hold that the plugin did not see. Therefore, the comment must also contain the plugin's mark.
      Alternatively, the job must never have been requeued, and its reason must not be an administrator's hold.
    - Otherwise, Slurm's reason shows whether the owner set the hold. If it does not, only the ledger counts.
    """
    if job.priority != 0:
        return Hold.NONE
    reason = job.state_reason
    marked = job.admin_comment == WAIT_MARK
    text = job.comment if MARK_PREFIX in job.comment else ""
    if (guarded or marked) and not {USER_HELD_MARK, ADMIN_HELD_MARK}.isdisjoint(text.split()):
        return Hold.USER
    if reason in SLURM_HOLD_REASONS:
        return Hold.CLUSTER
    by_word = guarded and WAIT_MARK in text.split(" ")
    if marked and (by_word or (not job.requeue_count and reason != HELD_BY_ADMIN_REASON)):
        return Hold.PLUGIN
    return Hold.USER if reason == HELD_BY_USER_REASON else Hold.ADMIN


def find_begin_of_delayed_job(job: SlurmJob) -> int | None:
    """Return the begin time that the owner of a job that the plugin delays requested, or 0.

    Return None if the plugin does not delay the job.
    """
    comment = job.comment
    if job.priority == 0 or job.admin_comment != WAIT_MARK or DELAY_MARK not in comment:
        return None
    words = (word for word in comment.split(" ") if word.startswith(DELAY_MARK) and word.endswith(")"))
    argument = next(words, "")[len(DELAY_MARK) : -1]
    return int(argument) if argument.isdecimal() else None


def find_holder(job: SlurmJob) -> Holder:
    """Return who set the hold on a record's job with `Hold.USER`."""
    return Holder.ADMINISTRATOR if ADMIN_HELD_MARK in job.comment.split() else Holder.OWNER


def is_pinned_by_bridge(job: SlurmJob, guarded: bool) -> bool:
    """Return whether the plugin recorded that the bridge pinned this job.

    Without the plugin, a user can write the mark.
    """
    if not guarded and job.admin_comment != WAIT_MARK:
        return False
    comment = job.comment
    words = comment.split(" ") if PINNED_MARK in comment else ()  # avoid splitting a long comment
    return any(word.startswith(PINNED_MARK) and word.endswith(")") for word in words)


def strip_reserved_state(state: str) -> str:
    """Return a node's state without the reservation flag."""
    return "+".join(part for part in state.split("+") if part.upper() != RESERVED_NODE_FLAG)


def compute_wakeup_rank(state: str) -> int:
    """Return 0 if a node is up, 1 if it is powering up, and 2 if it is powered down.

    Slurm gives a job nodes of lower rank first, regardless of their weights (`_set_sched_weight` in
    slurmctld/node_scheduler.c).
    """
    flags = state.upper().split("+")
    return 2 if POWERED_DOWN in flags else int(not BOOTING.isdisjoint(flags))


def mark_unusable_node(node: SlurmNode) -> SlurmNode:
    """Return the node, with an unlisted state or flag in `unknown`, and UNKNOWN if it has an unusable field."""
    base, *flags = node.state.upper().split("+")
    if base not in LISTED_NODE_STATES or not (HARMLESS_NODE_FLAGS | CLOSED_NODE_FLAGS).issuperset(flags):
        node = dataclasses.replace(node, unknown={**(node.unknown or {}), "state": node.state})
    return dataclasses.replace(node, state=UNKNOWN) if node.has_unusable_field else node


def make_unusable_object(kind: ObjectKind, slurm_object: SlurmObject) -> UnusableObject:
    """Return a node, partition or reservation with its first unusable field.

    Raise `ValueError` if the object has no unusable field.
    """
    for name, detail in (slurm_object.unreadable or {}).items():
        return UnusableObject(kind, slurm_object.name, name, "unreadable", detail)
    for name, detail in (slurm_object.unknown or {}).items():
        return UnusableObject(kind, slurm_object.name, name, "unknown", detail)
    raise ValueError(f"{kind} {slurm_object.name} has no unusable field")


def node_takes_jobs(state: str) -> bool:
    """Return whether a node in this state, such as "IDLE+PLANNED", accepts jobs.

    A node that is not up need not respond.
    """
    base, *flags = state.upper().split("+")
    asleep = {"NOT_RESPONDING", POWERED_DOWN, *BOOTING} if compute_wakeup_rank(state) else set()
    return base in USABLE_NODE_STATES and (HARMLESS_NODE_FLAGS | asleep).issuperset(flags)
