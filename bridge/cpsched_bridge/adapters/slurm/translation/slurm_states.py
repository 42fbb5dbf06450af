"""Classify Slurm's states and reasons."""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.ports import Hold, Holder

OURS = "bridge:"
"""Prefix of every mark that the submit plugin writes."""
WAIT = "bridge:wait"
"""The submit plugin's mark in a job's admin_comment or comment.

It is written to admin_comment when a job is submitted, and to comment when the bridge holds the job.
"""
USER_HELD = "bridge:user-held"
ADMIN_HELD = "bridge:admin-held"
"""Marks that the plugin adds to a job's comment if a user or administrator also holds the job."""

PINNED = "bridge:pinned("
"""The plugin's mark for a node list set by the bridge; the parentheses contain the list that the owner requested."""

HELD_BY_USER = "JobHeldUser"
HELD_BY_ADMIN = "JobHeldAdmin"
LAUNCH_FAILED = frozenset(
    {
        "launch failed requeued held",
        "launch failure limit exceeded requeued held",
        "user env retrieval failed requeued held",
        "slurm_cred_create failure, holding job.",
    }
)
"""Slurm's reasons for holding a job that a node could not launch: its prolog failed, or it is still running."""
OWN_HOLDS = LAUNCH_FAILED | frozenset(
    {
        "BadConstraints",
        "BurstBufferOperation",
        "JobHoldMaxRequeue",
        "ReservationDeleted",
        "ReservationInvalid",
    }
)
"""Reasons why Slurm itself holds a job (priority 0) until the cause is removed or the request is changed."""
LASTING_HOLDS = OWN_HOLDS - {"BadConstraints"}
"""Holds that an administrator must lift; after a release of the other jobs, Slurm checks again."""

PENDING = "PENDING"
SPECIAL_EXIT = "SPECIAL_EXIT"
"""State of a job requeued and held by `scontrol requeuehold` or a site's exit code rule;

an administrator releases it.
"""
COMPLETED = "COMPLETED"
OCCUPYING = frozenset(
    {
        "RUNNING",
        "CONFIGURING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "SIGNALING",
        "RESIZING",
        "STAGE_OUT",
        "REQUEUED",
    }
)
"""States in which nodes are or may be in use. A requeued job is COMPLETING or REQUEUED before it is pending."""
ENDED = frozenset(
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

USABLE_NODE_STATES = frozenset({"IDLE", "MIXED", "ALLOCATED"})
HARMLESS_NODE_FLAGS = frozenset({"PLANNED", "COMPLETING", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Flags of nodes that accept jobs. Any other flag (DRAIN, NOT_RESPONDING, MAINTENANCE) excludes the node."""
POWER_FLAGS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"})
"""Flags of nodes that Slurm has powered down, or is powering down or up."""
RESERVED = "RESERVED"
"""Flag of a node that an active reservation holds wholly or partly."""


def classify_hold(
    priority: int | None,
    reason: str | None,
    admin_comment: str | None,
    comment: str | None,
    restarts: int | None,
    guarded: bool,
) -> Hold:
    """Return the kind of hold on a pending job, by the rule in `docs/safety.md`.

    The dead-man timer applies the same rule. Priority 0 means that the job is held. `guarded` means that the submit
    plugin is loaded; without it, users can write its marks into a comment. A mark that permits a release counts only
    between single spaces, and a mark that forbids it between any blanks.

    - A hold that the plugin saw the owner or another administrator set must stay.
    - If Slurm's reason is one of `OWN_HOLDS`, Slurm itself holds the job.
    - The admin comment, which users and operators cannot write, proves the plugin's hold. An administrator may have
      added a hold that the plugin did not see. Therefore, either the comment must also contain the plugin's mark, or
      the job must never have been requeued and its reason must not be an administrator's hold.
    - For any other hold, the reason identifies an owner's hold. For the remaining holds, only the ledger counts.
    """
    if priority != 0:
        return Hold.NONE
    marked = admin_comment == WAIT
    words = comment if comment and OURS in comment else ""
    if (guarded or marked) and not {USER_HELD, ADMIN_HELD}.isdisjoint(words.split()):
        return Hold.USER
    if reason in OWN_HOLDS:
        return Hold.CLUSTER
    by_word = guarded and WAIT in words.split(" ")
    if marked and (by_word or (not restarts and reason != HELD_BY_ADMIN)):
        return Hold.PLUGIN
    return Hold.USER if reason == HELD_BY_USER else Hold.ADMIN


def hold_from_record(record: Record, guarded: bool) -> Hold:
    """Return the kind of hold on a record's pending job; see `classify_hold`."""
    return classify_hold(
        record["priority"],
        record["state_reason"],
        record["admin_comment"],
        record["comment"],
        record["requeue_count"],
        guarded,
    )


def find_holder(record: Record) -> Holder:
    """Return who holds the pending job of a record with `Hold.USER`."""
    return Holder.ADMINISTRATOR if ADMIN_HELD in (record["comment"] or "").split() else Holder.OWNER


def is_pinned_by_bridge(record: Record, guarded: bool) -> bool:
    """Return whether the plugin recorded that the bridge pinned this job.

    Without the plugin, a user can write the mark.
    """
    if not guarded and record["admin_comment"] != WAIT:
        return False
    comment = record["comment"] or ""
    words = comment.split(" ") if PINNED in comment else ()  # a user's comment may consist of a thousand blanks
    return any(word.startswith(PINNED) and word.endswith(")") for word in words)


def strip_reserved_state(state: str) -> str:
    """Return a node's state without the reservation flag."""
    return "+".join(part for part in state.split("+") if part.upper() != RESERVED)


def is_node_sleeping(state: str) -> bool:
    """Return whether a node in this state, such as "IDLE+CLOUD+POWERED_DOWN", is off.

    It wakes for a job that Slurm starts on it.
    """
    base, *flags = state.upper().split("+")
    rest = set(flags) - POWER_FLAGS
    return base in USABLE_NODE_STATES and len(rest) < len(flags) and rest <= HARMLESS_NODE_FLAGS | {"NOT_RESPONDING"}


def node_takes_jobs(state: str) -> bool:
    """Return whether a node in this state accepts jobs, such as "IDLE+PLANNED"."""
    base, *flags = state.upper().split("+")
    return base in USABLE_NODE_STATES and HARMLESS_NODE_FLAGS.issuperset(flags)
