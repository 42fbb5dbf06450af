"""For what pending jobs wait: every kind of reason, and what is in it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from cpsched_bridge.watch.reasons import IN_WORDS, OTHER
from cpsched_bridge.watch.schema import AsideJob, Cause, QueuedJob

_MOST_NAMED = 3
_FIGURES = re.compile(r"[:;(].*|\b\d[\d.,]*\b")


def causes(counts: Mapping[str, int], jobs: Iterable[QueuedJob | AsideJob]) -> list[Cause]:
    """The kinds that some job waits for, the commonest first. `counts`: jobs by kind."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for job in jobs:
        if isinstance(job, AsideJob) or job.kind == OTHER:
            found[job.kind][job.reason if isinstance(job, AsideJob) else job.why] += 1
    return [
        Cause(kind=kind, words=IN_WORDS.get(kind, kind), jobs=number, most=_commonest(found[kind]))
        for kind, number in sorted(counts.items(), key=lambda each: -each[1])
        if number
    ]


def _commonest(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    alike: Counter[str] = Counter()
    for reason, jobs in reasons.items():
        alike[" ".join(_FIGURES.sub(" ", reason).split()) or reason] += jobs
    return alike.most_common(_MOST_NAMED)
