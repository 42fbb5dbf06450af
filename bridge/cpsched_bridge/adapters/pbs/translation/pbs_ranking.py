"""How PBS's own scheduler ranks the jobs that wait, and which points of advice they have.

PBS sorts by the queue's priority, then by `job_sort_formula`, the largest first, then by age. All subjobs of an array
that wait have one number, which stands on the array.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cpsched_bridge.adapters.pbs.pbs_records import Record, text_of, texts_of
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.job_sort_formula import POINTS, Formula, NotComputable, terms_of
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import WAITING
from cpsched_bridge.adapters.shared.not_modelled import UNREADABLE
from cpsched_bridge.ports import QueueRank

FORMULA, THRESHOLD = "job_sort_formula", "job_sort_formula_threshold"
BEGUN = "B"
"""The state of an array of which a subjob has begun."""


def formula_of(server: Record, schedulers: Mapping[str, Record]) -> str:
    """The formula by which PBS sorts, as the server or its schedulers have it; empty: none.

    Raises `NotComputable` where they do not agree.
    """
    found = {text_of(server, FORMULA).strip()} | {text_of(each, FORMULA).strip() for each in schedulers.values()}
    found -= {""}
    if len(found) > 1:
        raise NotComputable("is not the same for all schedulers")
    return found.pop() if found else ""


def points_of(record: Record) -> int:
    """The points on a job; 0 where it has none. Raises `ValueError` for what is no number."""
    return int(texts_of(record, "Resource_List").get(POINTS, "0"))


def may_have_points(record: Record) -> bool:
    """Whether a record is one that waits in PBS's list: a job, or a whole array, begun or not."""
    return str(record.get("job_state")) in WAITING | {BEGUN}


def ranks_of(
    jobs: Mapping[str, Record], queues: Mapping[str, Record], managed: Collection[str], formula: Formula
) -> list[QueueRank]:
    """The waiting jobs of the managed queues, and others that have points.

    PBS's own value of a job is told as a whole number, from 1 on: an equal step for all of them.
    """
    numbers = pbs_job_ids.job_numbers(jobs)
    subjobs = _waiting_subjobs(jobs, numbers)
    found = []
    for name, record in jobs.items():
        if not may_have_points(record) or pbs_job_ids.parent_of(name) is not None:
            continue
        try:
            points = points_of(record)
        except UNREADABLE:
            continue
        queue = str(record.get("queue", ""))
        if queue not in managed and not points:
            continue
        terms = terms_of(formula, record, queues.get(queue, {})) | {POINTS: 0.0}
        stands_for = tuple(subjobs.get(name, ())) if pbs_job_ids.is_array(name) else (numbers[name],)
        own = math.floor(formula.value(terms))
        tier = _priority(queues.get(queue, {}))
        found.append(QueueRank(numbers[name], stands_for, own, points, tier, pbs_job_ids.label(name)))
    lowest = min((each.own for each in found), default=1)
    shift = 1 - min(lowest, 1)
    return [replace(each, own=each.own + shift) for each in found]


def _waiting_subjobs(jobs: Iterable[str], numbers: Mapping[str, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in jobs:
        array = pbs_job_ids.parent_of(name)
        if array is not None:
            found.setdefault(array, []).append(numbers[name])
    return found


def _priority(queue: Record) -> int:
    try:
        return int(text_of(queue, "Priority", "0"))
    except UNREADABLE:
        return 0
