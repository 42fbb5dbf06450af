"""Translate running jobs: their vnodes and amounts."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cpsched.feasibility import amounts_by_node
from cpsched.model import BoolArray, Job, Placement, Request, RunningJob
from cpsched_bridge.adapters.pbs.pbs_objects import PbsJob, parse_resource_amount
from cpsched_bridge.adapters.pbs.translation import pbs_job_ids
from cpsched_bridge.adapters.pbs.translation.pbs_chunk_requests import parse_place_text
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import PbsJobTranslationContext, build_job, get_walltime_s
from cpsched_bridge.adapters.pbs.translation.vnodes import ConfiguredVnodeTable
from cpsched_bridge.adapters.shared.allocation import Amounts, describe_allocation, request_from_allocation
from cpsched_bridge.adapters.shared.job_not_modelled import UNREADABLE_FIELD_ERRORS, JobNotModelled
from cpsched_bridge.ports import UNLIMITED_WALLTIME_S

RUNNING_STATES = frozenset("REU")
"""States of jobs that occupy vnodes: running, exiting, or suspended by keyboard activity.

A job that is suspended for another reason has released its vnodes.
"""
_EXEC_VNODE_PART = re.compile(r"([^()+:=\s]+)((?::[A-Za-z][A-Za-z0-9_-]*=[^()+:=\s]*)+)")


def translate_running_jobs(
    jobs: Mapping[str, PbsJob],
    numbers: Mapping[str, int],
    context: PbsJobTranslationContext,
    usable: BoolArray,
    begins: Collection[int],
) -> tuple[list[RunningJob], dict[int, str]]:
    """Return the running jobs, and descriptions of unexpected allocations.

    An allocation is unexpected if it differs from the request. Descriptions are by job number. Jobs in `begins` count
    as waiting. `context.known` contains jobs from earlier readings. If a job's allocation equals the request stored
    there, that job is returned. Otherwise, the job is built from its allocation. All returned jobs are stored there.
    """
    machine, known, now_s = context.machine, context.known, context.now_s
    found, otherwise = [], {}
    for name, job in jobs.items():
        state, number = job.state, numbers[name]
        if number in begins or pbs_job_ids.is_array_job_name(name) or (state not in RUNNING_STATES and state != "S"):
            continue
        before = known.get(number)
        try:
            each = _translate_running_job(job, number, machine, before, now_s)
            if before is not None and each.job.request != before.request and state != "S":
                amounts = parse_exec_vnode(job.exec_vnode, machine)
                otherwise[number] = describe_allocation(amounts, machine)
        except (*UNREADABLE_FIELD_ERRORS, JobNotModelled):
            each = RunningJob(_make_job_with_unknown_amounts(job, number, machine), now_s, ())
        known[number] = each.job if state != "S" or before is None else before
        kept = tuple((node, units) for node, units in each.placement if usable[node])
        found.append(replace(each, placement=() if state == "S" else kept))
    return found, otherwise


def _translate_running_job(
    job: PbsJob, number: int, machine: ConfiguredVnodeTable, before: Job | None, now_s: int
) -> RunningJob:
    job.require_readable("stime", "exec_vnode", "Resource_List")
    start_s = now_s if job.start_s is None else min(job.start_s, now_s)
    amounts = parse_exec_vnode(job.exec_vnode, machine)
    if not amounts:
        raise ValueError("exec_vnode contains no known vnode")
    exclusive = parse_place_text(job.requested.get("place", "")).sharing in ("excl", "exclhost")
    if before is not None:
        placement = match_allocation_to_request(before.request, amounts, machine)
        if placement is not None:
            walltime_s = get_walltime_s(job)  # a manager may have changed it
            same = before.walltime_s == walltime_s
            return RunningJob(before if same else replace(before, walltime_s=walltime_s), start_s, placement)
        exclusive = exclusive or before.request.exclusive
    request, placement = request_from_allocation(amounts, exclusive)
    return RunningJob(build_job(job, number, request, get_walltime_s(job)), start_s, placement)


def parse_exec_vnode(exec_vnode: str, machine: ConfiguredVnodeTable) -> Amounts:
    """Return a job's amounts by vnode row, without unknown vnodes.

    Raise `ValueError` for malformed amounts. Example: `(vm[0]:ncpus=2:mem=1gb)+(vm[1]:ncpus=2)`.
    """
    found: dict[int, list[int]] = {}
    for name, words in _EXEC_VNODE_PART.findall(exec_vnode):
        row = machine.index.get(name)
        if row is None:
            continue
        there = found.setdefault(row, [0] * len(machine.resources))
        for word in words[1:].split(":"):
            resource, _, value = word.partition("=")
            if resource in machine.resources:
                column = machine.resources.index(resource)
                there[column] += math.ceil(parse_resource_amount(value, resource in machine.sizes))
    return {row: tuple(amounts) for row, amounts in sorted(found.items())}


def match_allocation_to_request(request: Request, amounts: Amounts, machine: ConfiguredVnodeTable) -> Placement | None:
    """Return a job's placement if its amounts equal its request, otherwise None.

    A resource that PBS does not print, such as memory, counts as allocated in the requested amount. For a job with
    exclusive vnodes, only the amounts of its units are compared.
    """
    column = next(at for at, amount in enumerate(request.per_unit) if amount)
    placement = tuple((node, there[column] // request.per_unit[column]) for node, there in sorted(amounts.items()))
    if sum(units for _, units in placement) != request.units or any(units == 0 for _, units in placement):
        return None
    if request.distinct and any(units > 1 for _, units in placement):
        return None
    plain = replace(request, exclusive=False)
    for node, taken in amounts_by_node(plain, placement, machine.capacity).items():
        there = np.array(amounts[node])
        is_known = there > 0
        if (there[is_known] != taken[is_known]).any() or there[column] != taken[column]:
            return None
    return placement


def _make_job_with_unknown_amounts(job: PbsJob, number: int, machine: ConfiguredVnodeTable) -> Job:
    """Return a job whose amounts are unknown."""
    request = Request(1, (1,) * len(machine.resources))
    with contextlib.suppress(*UNREADABLE_FIELD_ERRORS):  # the user's name may be invalid
        return Job(number, 0, UNLIMITED_WALLTIME_S, request, user=job.owner)
    return Job(number, 0, UNLIMITED_WALLTIME_S, request)
