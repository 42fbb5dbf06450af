"""Compute PBS's ranks of waiting jobs, and read the jobs' points.

PBS sorts by queue priority, then by `job_sort_formula` (largest first), then by age. All waiting subjobs of an array
share the array's points.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cpsched_bridge.adapters.pbs.pbs_records import Record, get_attribute_part_texts, get_text_attribute
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.job_sort_formula import (
    BOOST_RESOURCE,
    FormulaNotComputable,
    JobSortFormula,
    compute_formula_terms,
)
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import WAITING_STATES
from cpsched_bridge.adapters.shared.job_not_modelled import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.ports import QueueRank

FORMULA_ATTRIBUTE, THRESHOLD_ATTRIBUTE = "job_sort_formula", "job_sort_formula_threshold"
STARTED_ARRAY_STATE = "B"
"""State of an array with a started subjob."""


def find_sort_formula(server: Record, schedulers: Mapping[str, Record]) -> str:
    """Return the formula set on the server or its schedulers, or "" if there is none.

    Raise `FormulaNotComputable` if the formulas differ.
    """
    found = {get_text_attribute(server, FORMULA_ATTRIBUTE).strip()} | {
        get_text_attribute(each, FORMULA_ATTRIBUTE).strip() for each in schedulers.values()
    }
    found -= {""}
    if len(found) > 1:
        raise FormulaNotComputable("differs between schedulers")
    return found.pop() if found else ""


def get_boost(record: Record) -> int:
    """Return a job's points, or 0. Raise `ValueError` if they are not a number."""
    return int(get_attribute_part_texts(record, "Resource_List").get(BOOST_RESOURCE, "0"))


def can_be_boosted(record: Record) -> bool:
    """Return whether a record is a waiting job, or an array with waiting subjobs."""
    return str(record.get("job_state")) in WAITING_STATES | {STARTED_ARRAY_STATE}


def rank_jobs(
    jobs: Mapping[str, Record], queues: Mapping[str, Record], managed: Collection[str], formula: JobSortFormula
) -> list[QueueRank]:
    """Return the ranks of waiting jobs in managed queues or with points.

    PBS's values are rounded down and shifted by a common amount that makes each at least 1.
    """
    numbers = pbs_job_ids.assign_job_numbers(jobs)
    subjobs = _group_subjobs_by_array(jobs, numbers)
    found = []
    for name, record in jobs.items():
        if not can_be_boosted(record) or pbs_job_ids.find_parent_array_name(name) is not None:
            continue
        try:
            points = get_boost(record)
        except UNREADABLE_FIELD_ERRORS:
            continue
        queue = str(record.get("queue", ""))
        if queue not in managed and not points:
            continue
        terms = compute_formula_terms(formula, record, queues.get(queue, {})) | {BOOST_RESOURCE: 0.0}
        stands_for = tuple(subjobs.get(name, ())) if pbs_job_ids.is_array_job_name(name) else (numbers[name],)
        own = math.floor(formula.evaluate(terms))
        tier = _get_queue_priority(queues.get(queue, {}))
        found.append(QueueRank(numbers[name], stands_for, own, points, tier, pbs_job_ids.strip_server_name(name)))
    lowest = min((each.own for each in found), default=1)
    shift = 1 - min(lowest, 1)
    return [replace(each, own=each.own + shift) for each in found]


def _group_subjobs_by_array(jobs: Iterable[str], numbers: Mapping[str, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in jobs:
        array = pbs_job_ids.find_parent_array_name(name)
        if array is not None:
            found.setdefault(array, []).append(numbers[name])
    return found


def _get_queue_priority(queue: Record) -> int:
    try:
        return int(get_text_attribute(queue, "Priority", "0"))
    except UNREADABLE_FIELD_ERRORS:
        return 0
