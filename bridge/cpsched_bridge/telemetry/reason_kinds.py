"""Why jobs wait: as one of a few kinds, and in words."""

from __future__ import annotations

import re
from collections import Counter

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import RELEASE_POINTLESS, Hold, Holder, PendingJob

OTHER = "other"
_CODES = {
    PendingCode.NEVER: ("never", "can never run here: {}"),
    PendingCode.RESOURCES: ("resources", ""),
    PendingCode.WHOLE_NODES: ("resources", ""),
    PendingCode.RESERVED: ("reserved", "would fit, but delay a job that goes first"),
    PendingCode.PRIORITY: ("priority", "others go first"),
    PendingCode.WEIGHT: ("priority", "jobs that weigh more go first"),
    PendingCode.NOT_CONSIDERED: ("priority", "comes after the jobs that the search considers"),
    PendingCode.NEXT_PASS: ("priority", "the next scheduler pass decides"),
    PendingCode.OTHER: (OTHER, "{}"),
    PendingCode.DEPENDENCY: ("ineligible", "dependency"),
    PendingCode.BEGIN_TIME: ("ineligible", "begin time"),
    PendingCode.ARRAY_LIMIT: ("ineligible", "its array runs as many {} as it may"),
    PendingCode.CLUSTER: ("ineligible", "{}: {}"),
    PendingCode.BACKED_OFF: ("ineligible", "{} ({})"),
    PendingCode.BACKED_OFF_HERE: ("ineligible", f"{{}} ({{}}); {RELEASE_POINTLESS}"),
    PendingCode.HELD: ("ineligible", "held ({})"),
    PendingCode.HELD_FOR_JOBS: ("ineligible", "held ({}) until other jobs are over"),
    PendingCode.HELD_BY: ("held_by_owner", "held by {}"),
    PendingCode.QUEUE_OPENED: ("ineligible", "its queue was opened to PBS's scheduler by hand"),
    PendingCode.IN_TRANSIT: ("ineligible", "on its way to another queue"),
    PendingCode.NO_GAP: ("ineligible", "fits nowhere before a reservation"),
    PendingCode.BEFORE_RESERVATION: ("ineligible", "{}, before {}"),
    PendingCode.BESIDE_RESERVATION: ("ineligible", "no room beside a reservation to come ({})"),
    PendingCode.UNMODELLED: ("left_to_slurm", "{1}"),
    PendingCode.UNREADABLE: ("left_to_slurm", "cannot be read: {}"),
    PendingCode.CHOSEN_NODES: ("left_to_slurm", "its owner chose its nodes"),
    PendingCode.SLEEPING_NODES: ("left_to_slurm", "fits only with nodes that sleep: Slurm wakes them"),
    PendingCode.MAGNETIC_RESERVATION: ("left_to_slurm", "a magnetic reservation may take it ({})"),
}
"""Kind and text of each code; what is lacking has its words in `_lacks`."""
_IN_GENERAL = {
    PendingCode.CLUSTER: "{}",
    PendingCode.BACKED_OFF: "{}",
    PendingCode.BACKED_OFF_HERE: "{}",
    PendingCode.HELD: "held",
    PendingCode.HELD_FOR_JOBS: "held",
    PendingCode.BEFORE_RESERVATION: "{}, before a reservation is over",
    PendingCode.BESIDE_RESERVATION: "no room beside a reservation to come",
    PendingCode.UNMODELLED: "{}",
    PendingCode.UNREADABLE: "cannot be read",
    PendingCode.SLEEPING_NODES: "fits only with nodes that sleep",
    PendingCode.MAGNETIC_RESERVATION: "a magnetic reservation may take it",
}
"""Text without what may name other users, where the text of `_CODES` does."""
_PARTICULARS = re.compile(r"[:(;].*", re.DOTALL)
"""Where a plug-in's sentence may begin to name somebody."""
NOT_OURS = PendingReason(PendingCode.OTHER, ("on its way, or not the bridge's to decide on",))
"""Of a job that nobody decides on at the moment, for no reason of its own."""
UNKNOWN = PendingReason(PendingCode.OTHER, ("its dispatcher does not say",))
"""Of a job that neither starts nor has a reason."""
IN_WORDS = {
    "never": "can never run on this cluster",
    "resources": "wait for room",
    "reserved": "would fit, but delay others that go first",
    "priority": "others go first",
    "ineligible": "may not start yet",
    "held_by_owner": "held by their owners",
    "set_aside": "on their way, or not the bridge's",
    "left_to_slurm": "left to the cluster",
    OTHER: "other reasons",
}
"""Every kind as people read it:

- `never`: not even the empty cluster could hold the job. `resources`: too little is free. `reserved`: what is free is
  promised to others. `priority`: others go first. `other`: what a plug-in says in its own words.
- `ineligible`: a dependency, a begin time, a limit. `held_by_owner`. `unscheduled_kind`: not the bridge's, or on its
  way.
- `left_to_slurm`: not modelled.
"""
KINDS = (*IN_WORDS,)


def kind_of(reason: PendingReason) -> str:
    """The kind of a dispatcher's reason."""
    return _CODES[reason.code][0]


def general(reason: PendingReason) -> PendingReason:
    """Return a reason without what may name other users: whose limit it is, say, or how full."""
    if reason.code is PendingCode.OTHER:
        text = _PARTICULARS.sub("", str(reason.arguments[0])).strip()
    elif reason.code in _IN_GENERAL:
        text = _IN_GENERAL[reason.code].format(*reason.arguments)
    else:
        return reason
    return PendingReason(PendingCode.OTHER, (text,))


def text_of(reason: PendingReason, distinct: bool = False) -> str:
    """The reason in words for people. `distinct`: each unit of the job is on a node of its own."""
    kind, text = _CODES[reason.code]
    if kind == "resources":
        fit, units = map(int, reason.arguments)
        return _lacks(fit, units, reason.code is PendingCode.WHOLE_NODES, distinct)
    return text.format(*reason.arguments)


def _lacks(fit: int, units: int, whole: bool, distinct: bool) -> str:
    if units == 1:
        return "no node is wholly free for it" if whole else "no node has enough free for it"
    places = "nodes" if distinct else "parts"
    one = fit == 1
    have = ("is" if one else "are") + " wholly free" if whole and distinct else ("has" if one else "have") + " room now"
    return f"{fit:,} of its {units:,} {places} {have}" if fit else f"none of its {units:,} {places} {have}"


def jobs_by_reason(report: CycleReport) -> dict[str, int] | None:
    """How many jobs wait for each kind of reason, every kind named; None where the cluster was not read."""
    seen = report.observation
    if seen is None:
        return None
    found = Counter[str](dict.fromkeys(KINDS, 0))
    found["left_to_slurm"] += len(seen.left)
    if report.decision is not None:
        for reason, jobs in Counter(wait.reason for wait in report.decision.waits.values()).items():
            found[kind_of(reason)] += jobs
    decided_on = {job.id for job in report.waiting}
    for pending in seen.pending:
        if pending.job.id not in decided_on:
            found[unscheduled_kind(pending)] += 1
    return dict(found)


def unscheduled_kind(pending: PendingJob) -> str:
    """The kind of a pending job that was not decided on."""
    if pending.hold is Hold.USER and pending.holder is Holder.OWNER:
        return "held_by_owner"
    if pending.hold is Hold.USER and pending.holder is Holder.ADMINISTRATOR:
        return "set_aside"
    return "ineligible" if pending.job.ineligible is not None else "set_aside"
