"""Summarize pending reasons by kind."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.telemetry.reason_kinds import KIND_TEXTS, OTHER, format_reason, redact_reason
from cpsched_bridge.views.job_view import JobState, JobView
from cpsched_bridge.views.status_view import PendingReasonCount

_MAX_REASONS = 3
_FIGURES = re.compile(r"\b\d[\d.,]*\b")


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
