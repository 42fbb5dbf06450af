"""Convert pending reasons to kinds and to text."""

from __future__ import annotations

import re
from collections import Counter

from cpsched.formatting import format_cluster_time, format_count
from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.ports import CANNOT_BE_RELEASED, Hold, Holder, PendingJob

OTHER = "other"
UNMANAGED = "unmanaged"
"""Kind of the jobs that only the cluster's own scheduler manages."""
_KIND_AND_TEXT_BY_CODE = {
    PendingCode.NEVER: ("never", "can never run here: {}"),
    PendingCode.RESOURCES: ("resources", ""),
    PendingCode.WHOLE_NODES: ("resources", ""),
    PendingCode.BLOCKS: ("resources", "the free nodes do not fill blocks: requests {} nodes together"),
    PendingCode.RESERVED: ("reserved", "would fit, but would delay a job ahead of it"),
    PendingCode.PRIORITY: ("priority", "other jobs go first"),
    PendingCode.WEIGHT: ("priority", "jobs with more weight go first"),
    PendingCode.NOT_CONSIDERED: ("priority", "comes after the jobs that the search considers"),
    PendingCode.NEXT_PASS: ("priority", "the next scheduler pass decides"),
    PendingCode.OTHER: (OTHER, "{}"),
    PendingCode.DEPENDENCY: ("ineligible", "its dependencies are not satisfied"),
    PendingCode.DEPENDS_ON: ("ineligible", "depends on job {}"),
    PendingCode.BEGIN_TIME: ("ineligible", "its begin time has not been reached"),
    PendingCode.BEGINS_AT: ("ineligible", "its begin time is {}"),
    PendingCode.ARRAY_LIMIT: ("ineligible", "its array has reached its limit on running {}"),
    PendingCode.CLUSTER: ("ineligible", "{}: {}"),
    PendingCode.BACKED_OFF: ("ineligible", "{} ({})"),
    PendingCode.BACKED_OFF_HERE: ("ineligible", f"{{}} ({{}}); {CANNOT_BE_RELEASED}"),
    PendingCode.HELD: ("ineligible", "held ({})"),
    PendingCode.HELD_FOR_JOBS: ("ineligible", "held ({}) until other jobs end"),
    PendingCode.HELD_BY: ("held_by_owner", "held by {}"),
    PendingCode.QUEUE_OPENED: ("ineligible", "its queue was opened to PBS's scheduler by another actor"),
    PendingCode.IN_TRANSIT: ("ineligible", "is being moved to another queue"),
    PendingCode.NO_GAP: ("ineligible", "does not fit before a reservation"),
    PendingCode.BEFORE_RESERVATION: ("ineligible", "{}, before {}"),
    PendingCode.BESIDE_RESERVATION: ("ineligible", "a future reservation leaves too little capacity ({})"),
    PendingCode.UNMODELLED: (UNMANAGED, "{1}"),
    PendingCode.UNREADABLE: (UNMANAGED, "cannot be read: {}"),
    PendingCode.CHOSEN_NODES: (UNMANAGED, "its owner chose its nodes"),
    PendingCode.MAGNETIC_RESERVATION: (UNMANAGED, "may run in a magnetic reservation ({})"),
    PendingCode.PREEMPTION: (UNMANAGED, "may start by preempting jobs in {}"),
}
"""Kind and text for each code. `_format_missing_nodes` returns the empty texts."""
_REDACTED_TEXTS = {
    PendingCode.DEPENDS_ON: "its dependencies are not satisfied",
    PendingCode.CLUSTER: "{}",
    PendingCode.BACKED_OFF: "{}",
    PendingCode.BACKED_OFF_HERE: "{}",
    PendingCode.HELD: "held",
    PendingCode.HELD_FOR_JOBS: "held",
    PendingCode.BEFORE_RESERVATION: "{}, before a reservation ends",
    PendingCode.BESIDE_RESERVATION: "a future reservation leaves too little capacity",
    PendingCode.UNMODELLED: "{}",
    PendingCode.UNREADABLE: "cannot be read",
    PendingCode.MAGNETIC_RESERVATION: "may run in a magnetic reservation",
    PendingCode.PREEMPTION: "may start by preemption",
}
"""Text without other users' names, for codes whose text in `_KIND_AND_TEXT_BY_CODE` may contain such names."""
_DETAILS = re.compile(r"[:(;].*", re.DOTALL)
"""Pattern for the part of a plug-in's text that may name a user."""
NO_REASON_GIVEN = PendingReason(PendingCode.OTHER, ("the dispatcher gives no reason",))
"""Reason for a pending job for which the dispatcher gives no reason."""
KIND_TEXTS = {
    "never": "can never run on this cluster",
    "resources": "wait for resources",
    "reserved": "would fit, but would delay jobs ahead of them",
    "priority": "other jobs go first",
    "ineligible": "may not start yet",
    "held_by_owner": "held by their owners",
    "in_transition": "in transition, or not managed by the bridge",
    UNMANAGED: "managed only by the cluster's scheduler",
    OTHER: "other reasons",
}
"""Text for each kind:

- `never`: the job does not fit even on an empty cluster. `resources`: too few resources are free. `reserved`: the free
  capacity is reserved for other jobs. `priority`: other jobs are ahead. `other`: a plug-in's own text.
- `ineligible`: a dependency, a begin time or a limit. `held_by_owner`: the owner holds the job.
- `in_transition`: an administrator or the cluster holds the job, or it is in transition.
- `unmanaged`: the bridge cannot model the job.
"""
REASON_KINDS = (*KIND_TEXTS,)


def classify_reason(reason: PendingReason) -> str:
    """Return the kind of a dispatcher's reason."""
    return _KIND_AND_TEXT_BY_CODE[reason.code][0]


def redact_reason(reason: PendingReason) -> PendingReason:
    """Return a reason without details that may name other users.

    For example, omit a limit's owner and usage.
    """
    if reason.code is PendingCode.OTHER:
        text = _DETAILS.sub("", str(reason.arguments[0])).strip()
    elif reason.code in _REDACTED_TEXTS:
        text = _REDACTED_TEXTS[reason.code].format(*reason.arguments)
    else:
        return reason
    return PendingReason(PendingCode.OTHER, (text,))


def format_reason(reason: PendingReason, distinct: bool = False) -> str:
    """Return a reason as text. `distinct`: each unit of the job needs its own node."""
    text = _KIND_AND_TEXT_BY_CODE[reason.code][1]
    if not text:
        fit, units = map(int, reason.arguments)
        return _format_missing_nodes(fit, units, reason.code is PendingCode.WHOLE_NODES, distinct)
    if reason.code is PendingCode.BEGINS_AT:
        return text.format(format_cluster_time(int(reason.arguments[0])))
    return text.format(*reason.arguments)


def _format_missing_nodes(fit: int, units: int, whole: bool, distinct: bool) -> str:
    if distinct or units == 1:
        lack = "too few nodes are completely free" if whole else "too few nodes have enough free resources"
        return f"{lack}: {fit:,} of {units:,}"
    return f"too few resources are free: enough for {fit:,} of {format_count(units, 'task')}"


def count_jobs_by_reason(report: CycleReport) -> dict[str, int] | None:
    """Return the number of jobs by kind of reason, or None without an observation."""
    seen = report.observation
    if seen is None:
        return None
    found = Counter[str](dict.fromkeys(REASON_KINDS, 0))
    found[UNMANAGED] += len(seen.unmanaged)
    if report.decided.decision is not None:
        for reason, jobs in Counter(wait.reason for wait in report.decided.decision.waits.values()).items():
            found[classify_reason(reason)] += jobs
    decided_on = {job.id for job in report.decided.waiting}
    for pending in seen.pending:
        if pending.job.id not in decided_on:
            found[classify_unscheduled_job(pending, report.excludes(pending.job.id))] += 1
    return dict(found)


def classify_unscheduled_job(pending: PendingJob, is_excluded: bool) -> str:
    """Return the kind of reason why the bridge does not schedule a pending job.

    `is_excluded`: a site limit or a backoff excluded the job from the decision.
    """
    if pending.hold is Hold.USER and pending.holder is Holder.OWNER:
        return "held_by_owner"
    if pending.hold is Hold.USER and pending.holder is Holder.ADMINISTRATOR:
        return "in_transition"
    return "ineligible" if pending.job.ineligible is not None or is_excluded else "in_transition"
