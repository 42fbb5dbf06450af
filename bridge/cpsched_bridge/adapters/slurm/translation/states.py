"""Slurm's states and reasons, as far as a scheduler beside it must tell them apart."""

from __future__ import annotations

from cpsched_bridge.adapters.slurm.records import Record
from cpsched_bridge.ports import Hold

WAIT = "bridge:wait"
"""The submit plugin writes it into admin_comment of new jobs, or into comment of older ones that the bridge holds."""
USER_HELD = "bridge:user-held"
ADMIN_HELD = "bridge:admin-held"
"""Words that the plugin adds to a job's comment: somebody else holds it too."""

PINNED = "bridge:pinned("
"""The plugin's mark of a node list that the bridge has set; in brackets the list that the owner had asked for."""

HELD_BY_USER = "JobHeldUser"

PENDING = "PENDING"
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


def hold_by(priority: int | None, reason: str | None, admin_comment: str | None, comment: str | None) -> Hold:
    """Who holds a pending job.

    Priority 0 says that it is held, the plugin's marks by whom. Without marks the reason tells an owner's hold from
    the others; where it speaks of something else (a dependency) the hold counts as an administrator's: there the
    ledger knows. A hold that the plugin saw another administrator make is as little to be touched as an owner's.
    """
    if priority != 0:
        return Hold.NONE
    words = (comment or "").split()
    if USER_HELD in words or ADMIN_HELD in words:
        return Hold.USER
    if admin_comment == WAIT or WAIT in words:
        return Hold.PLUGIN
    return Hold.USER if reason == HELD_BY_USER else Hold.ADMIN


def hold_of(record: Record) -> Hold:
    """Who holds the pending job of a record."""
    return hold_by(record["priority"], record["state_reason"], record["admin_comment"], record["comment"])


def pinned_by_bridge(comment: str | None) -> bool:
    """Whether the plugin saw the bridge set this job's node list."""
    return any(word.startswith(PINNED) for word in (comment or "").split())


def node_takes_jobs(state: str) -> bool:
    """Whether a node in this state ("MIXED+DRAIN", "IDLE+PLANNED") may be given a job."""
    base, *flags = state.upper().split("+")
    return base in USABLE_NODE_STATES and HARMLESS_NODE_FLAGS.issuperset(flags)
