"""Slurm's states and reasons, as far as a scheduler beside it must tell them apart."""

from __future__ import annotations

from bridge.adapters.slurm.records import Record
from bridge.ports import Hold

PLUGIN_MARK = "bridge:wait"
"""The submit plugin writes it into admin_comment of the jobs that it holds for the bridge."""

HELD_BY_USER = "JobHeldUser"
HELD_BY_ADMIN = "JobHeldAdmin"

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


def marked(admin_comment: str | None) -> bool:
    """Whether the submit plugin held this job for the bridge."""
    return bool(admin_comment) and str(admin_comment).split()[0].rstrip(";,") == PLUGIN_MARK


def node_takes_jobs(state: str) -> bool:
    """Whether a node in this state ("MIXED+DRAIN", "IDLE+PLANNED") may be given a job."""
    base, *flags = state.upper().split("+")
    return base in USABLE_NODE_STATES and HARMLESS_NODE_FLAGS.issuperset(flags)


def hold_of(record: Record) -> Hold:
    """Who holds a pending job.

    Priority 0 says that it is held, the plugin's mark that it is ours. The reason only tells an owner's hold from the
    others; where it speaks of something else (a dependency), the hold counts as an administrator's: the ledger knows.
    """
    if record["priority"] != 0:
        return Hold.NONE
    if marked(record["admin_comment"]):
        return Hold.PLUGIN
    return Hold.USER if record["state_reason"] == HELD_BY_USER else Hold.ADMIN
