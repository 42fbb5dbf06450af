"""Slurm's states and reasons, as far as a scheduler beside it must tell them apart."""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.slurm_records import Record
from cpsched_bridge.ports import Hold, Holder

OURS = "bridge:"
"""What every word of the plugin begins with."""
WAIT = "bridge:wait"
"""The submit plugin writes it into admin_comment of new jobs, and into comment of those that the bridge holds."""
USER_HELD = "bridge:user-held"
ADMIN_HELD = "bridge:admin-held"
"""Words that the plugin adds to a job's comment: somebody else holds it too."""

PINNED = "bridge:pinned("
"""The plugin's mark of a node list that the bridge has set; in brackets the list that the owner had asked for."""

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
"""What Slurm says of a job that it holds since a node could not begin it: its prolog failed, or it still runs."""
OWN_HOLDS = LAUNCH_FAILED | frozenset(
    {
        "BadConstraints",
        "BurstBufferOperation",
        "JobHoldMaxRequeue",
        "ReservationDeleted",
        "ReservationInvalid",
    }
)
"""Reasons with which Slurm itself holds a job (priority 0), until somebody lifts that or changes what the job asks."""
LASTING_HOLDS = OWN_HOLDS - {"BadConstraints"}
"""Those of them that are for an administrator to lift. Of the others a release makes Slurm look again."""

PENDING = "PENDING"
SPECIAL_EXIT = "SPECIAL_EXIT"
"""Requeued and held, by `scontrol requeuehold` or a site's rule for exit codes, until an administrator releases it."""
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
"""Nodes are, or may still be, in use. A requeued job passes through COMPLETING or REQUEUED before it is pending."""
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
"""Flags beside which a node still takes jobs. Any other (DRAIN, NOT_RESPONDING, MAINTENANCE, ...) keeps it out."""
POWER_FLAGS = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"})
"""Flags of nodes that Slurm has switched off, or switches on or off."""
RESERVED = "RESERVED"
"""The flag of a node of which an active reservation holds all or a part."""


def hold_by(
    priority: int | None,
    reason: str | None,
    admin_comment: str | None,
    comment: str | None,
    restarts: int | None,
    guarded: bool,
) -> Hold:
    """Who holds a pending job; `docs/safety.md` states the rule, and the dead-man timer goes by the same.

    Priority 0 says that it is held. `guarded` tells that the submit plugin is loaded, which alone keeps users from
    writing its words into a comment. What permits something counts only where it stands between plain spaces; what
    forbids something also between other blanks.

    - A hold that the plugin saw the owner or another administrator make is not to be touched.
    - Where Slurm's reason is one of `OWN_HOLDS`, Slurm holds the job itself.
    - The plugin's hold is proved by its admin comment, which users and operators cannot write. An administrator may
      have added a hold of which the plugin was not told: so its word must be in the comment too, or the job must never
      have been requeued and its reason must not be an administrator's hold.
    - Of every other hold the reason tells an owner's from the rest, and for the rest the ledger alone counts.
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


def hold_of(record: Record, guarded: bool) -> Hold:
    """Who holds the pending job of a record; see `hold_by`."""
    return hold_by(
        record["priority"],
        record["state_reason"],
        record["admin_comment"],
        record["comment"],
        record["requeue_count"],
        guarded,
    )


def holder_of(record: Record) -> Holder:
    """Who holds the pending job of a record, where `hold_of` says `Hold.USER`."""
    return Holder.ADMINISTRATOR if ADMIN_HELD in (record["comment"] or "").split() else Holder.OWNER


def pinned_by_bridge(record: Record, guarded: bool) -> bool:
    """Whether the plugin saw the bridge set this job's node list; a user can write the word where no plugin is."""
    if not guarded and record["admin_comment"] != WAIT:
        return False
    comment = record["comment"] or ""
    words = comment.split(" ") if PINNED in comment else ()  # a user's comment may be a thousand blanks
    return any(word.startswith(PINNED) and word.endswith(")") for word in words)


def unreserved(state: str) -> str:
    """A node's state but for the mark of a reservation."""
    return "+".join(part for part in state.split("+") if part.upper() != RESERVED)


def node_sleeps(state: str) -> bool:
    """Whether a node in this state ("IDLE+CLOUD+POWERED_DOWN") is off, and wakes for a job that Slurm starts there."""
    base, *flags = state.upper().split("+")
    rest = set(flags) - POWER_FLAGS
    return base in USABLE_NODE_STATES and len(rest) < len(flags) and rest <= HARMLESS_NODE_FLAGS | {"NOT_RESPONDING"}


def node_takes_jobs(state: str) -> bool:
    """Whether a node in this state ("MIXED+DRAIN", "IDLE+PLANNED") may be given a job."""
    base, *flags = state.upper().split("+")
    return base in USABLE_NODE_STATES and HARMLESS_NODE_FLAGS.issuperset(flags)
