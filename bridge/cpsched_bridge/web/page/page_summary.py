"""Summarize the state for operators: one-line alerts, and pending jobs by reason.

The page and the wall display show the alerts first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cpsched.errors import join_abbreviated
from cpsched.formatting import format_count
from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.cycle_report import OK_RESULT, CycleReport
from cpsched_bridge.ports import Observation, ReadinessCheck, UnusableObject
from cpsched_bridge.telemetry.reason_kinds import KIND_TEXTS, OTHER, format_reason, redact_reason
from cpsched_bridge.views.job_view import JobState, JobView
from cpsched_bridge.views.status_view import PageAlert, PendingReasonCount

_MAX_LISTED = 5
_KINDS_NAMING_USERS = frozenset({"reservation", "association"})
"""Kinds of objects whose names may contain user names."""
_MAX_REASONS = 3
_FIGURES = re.compile(r"\b\d[\d.,]*\b")


def list_alerts(
    last: CycleReport, paused: str, checks: Sequence[ReadinessCheck], seen: Observation, hidden: bool = False
) -> list[PageAlert]:
    """Return the alerts for the last cycle, urgent alerts first.

    `checks` are the latest check results. With `hidden`, reservations and associations are not named, because their
    names may contain user names.
    """
    found = [
        *_list_bridge_alerts(last, paused),
        *_list_cluster_alerts(checks, seen),
        *_list_unusable_object_alerts(seen.unusable, hidden),
    ]
    return sorted(found, key=lambda each: not each.urgent)


def make_stalled_alert(reasons: Sequence[str]) -> PageAlert:
    """Return the alert for a loop that appears to hang."""
    return PageAlert(urgent=True, text="The bridge hangs. This page is out of date.", details=list(reasons))


def _list_bridge_alerts(last: CycleReport, paused: str) -> Iterator[PageAlert]:
    if paused:
        yield PageAlert(urgent=True, text="The bridge starts no jobs.", details=[paused])
    if last.result != OK_RESULT:
        listed = [each.detail for each in last.bridge_events if each.kind == last.result][:_MAX_LISTED]
        text = f"The last cycle failed: {last.result.replace('_', ' ')}. This page shows an older state of the cluster."
        yield PageAlert(urgent=True, text=text, details=listed)
    if last.decided.fallback:
        yield PageAlert(urgent=False, text="The fallback decides instead of the dispatcher.", details=[])
    if last.slowed:
        text = f"The cluster is busy: one cycle per {last.pause_s:.3g} s."
        yield PageAlert(urgent=False, text=text, details=[last.observation.busy] if last.observation else [])
    if last.overdue:
        text = f"Repeated commands have no effect on {format_count(last.overdue, 'job')}."
        yield PageAlert(urgent=False, text=text, details=[])


def _list_unusable_object_alerts(unusable: Sequence[UnusableObject], hidden: bool) -> Iterator[PageAlert]:
    if unusable:
        text = f"{format_count(len(unusable), 'cluster object', 'cluster objects')} ignored: a field is unusable."
        named = [each for each in unusable if not hidden or each.kind not in _KINDS_NAMING_USERS]
        yield PageAlert(urgent=False, text=text, details=[join_abbreviated(named, _MAX_LISTED, "; ")] if named else [])


def _list_cluster_alerts(checks: Sequence[ReadinessCheck], seen: Observation) -> Iterator[PageAlert]:
    for check in checks:
        if not check.ok:
            fix = [check.fix] if check.fix else []
            yield PageAlert(urgent=False, text=f"Check {check.name} fails: {check.detail}", details=fix)
    down = sorted({node for each in seen.outages if each.kind == "down" for node in each.nodes})
    if down:
        listed = join_abbreviated(down, _MAX_LISTED, text=seen.cluster.node_names.__getitem__)
        yield PageAlert(urgent=False, text=f"{format_count(len(down), 'node is', 'nodes are')} down.", details=[listed])


def summarize_reasons(counts: Mapping[str, int], pending: Iterable[JobView]) -> list[PendingReasonCount]:
    """Return the kinds that have jobs, most frequent first.

    `counts` are job counts by kind.
    """
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for job in pending:
        if job.reason is not None and (job.state is JobState.UNSCHEDULED or job.kind == OTHER):
            found[job.kind][_get_common_reason_text(job.reason)] += 1
    return [
        PendingReasonCount(
            kind=kind,
            text=KIND_TEXTS.get(kind, kind),
            jobs=number,
            common_reasons=found[kind].most_common(_MAX_REASONS),
        )
        for kind, number in sorted(counts.items(), key=lambda each: -each[1])
        if number
    ]


def _get_common_reason_text(reason: PendingReason) -> str:
    """Return the common part of similar reasons, without names.

    Numbers are removed from a plug-in's text.
    """
    text = format_reason(redact_reason(reason))
    if reason.code is not PendingCode.OTHER:
        return text
    return " ".join(_FIGURES.sub(" ", text).split()) or format_reason(reason)
