"""Compute PBS's ranks of waiting jobs, and read the jobs' points.

PBS sorts by queue priority, then by `job_sort_formula` (largest first), then by age. All waiting subjobs of an array
share the array's points.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cpsched_bridge.adapters.pbs.pbs_objects import BOOST_RESOURCE, PbsJob, PbsQueue, PbsScheduler, PbsServer
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.job_sort_formula import (
    FormulaNotComputable,
    JobSortFormula,
    compute_formula_terms,
)
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import STARTED_ARRAY_STATE, WAITING_STATES
from cpsched_bridge.ports import QueueRank


def find_sort_formula(server: PbsServer, schedulers: Mapping[str, PbsScheduler]) -> str:
    """Return the formula set on the server or its schedulers, or "" if there is none.

    Raise `FormulaNotComputable` if the formulas differ or one is unreadable.
    """
    formulas = {server.formula, *(each.formula for each in schedulers.values())} - {""}
    if len(formulas) > 1:
        raise FormulaNotComputable("differs between schedulers")
    formula = formulas.pop() if formulas else ""
    if formula is None:
        raise FormulaNotComputable("is not a single text value")
    return formula


def can_be_boosted(job: PbsJob) -> bool:
    """Return whether this is a waiting job, or an array with waiting subjobs."""
    return job.state in WAITING_STATES | {STARTED_ARRAY_STATE}


def rank_jobs(
    jobs: Mapping[str, PbsJob], queues: Mapping[str, PbsQueue], managed: Collection[str], formula: JobSortFormula
) -> list[QueueRank]:
    """Return the ranks of waiting jobs in managed queues or with points.

    PBS's values are rounded down and shifted by a common amount that makes each at least 1.
    """
    numbers = pbs_job_ids.assign_job_numbers(jobs)
    subjobs = _group_subjobs_by_array(jobs, numbers)
    found = []
    for name, job in jobs.items():
        if not can_be_boosted(job) or pbs_job_ids.find_parent_array_name(name) is not None or job.boost is None:
            continue
        if job.queue not in managed and not job.boost:
            continue
        queue = queues.get(job.queue, PbsQueue(job.queue))
        terms = compute_formula_terms(formula, job, queue) | {BOOST_RESOURCE: 0.0}
        stands_for = tuple(subjobs.get(name, ())) if pbs_job_ids.is_array_job_name(name) else (numbers[name],)
        own = math.floor(formula.evaluate(terms))
        label = pbs_job_ids.strip_server_name(name)
        found.append(QueueRank(numbers[name], stands_for, own, job.boost, queue.priority, label))
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
