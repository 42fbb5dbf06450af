"""Profiles of the total free amounts, for a lower bound on a job's start.

Row `k` in a search contains the sums before the job at place `k` in the order is placed: breakpoints, and the amounts
of each resource that are free from each breakpoint. A full row ignores further jobs. It then overestimates free
amounts, and its bound is still valid.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn
from cpsched.kernels.node_class_moves import amount_taken_by_node_moves
from cpsched.kernels.order_search_state import OrderSearchState
from cpsched.kernels.pool_profile import first_index_at_least
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.model import EXCLUSIVE, NEVER


@scalar_subroutine
def are_amounts_free(free: FixedColumn, k: int, amounts: FixedColumn) -> bool:
    """Return whether all `amounts` (int64[R]) are free at breakpoint `k`."""
    n = len(amounts)
    for r in range(n):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if free[k * n + r] < amounts[r]:
            return False
    return True


@scalar_subroutine
def earliest_start_by_totals(
    times: FixedColumn, free: FixedColumn, count: int, duration_s: int, amounts: FixedColumn
) -> int:
    """Return when `amounts` (int64[R]) are first free for `duration_s`, or NEVER."""
    k = 0
    while k < count:
        if not are_amounts_free(free, k, amounts):
            k += 1
            continue
        end_s, j = times[k] + duration_s, k + 1
        while j < count and times[j] < end_s and are_amounts_free(free, j, amounts):
            j += 1
        if j == count or times[j] >= end_s:
            return int(times[k])
        k = j + 1
    return NEVER


@scalar_subroutine
def add_total_breakpoint(times: Column, free: Column, count: int, at_s: int, resources: int) -> int:
    """Insert a breakpoint at `at_s` if missing. Return the number of breakpoints."""
    at = first_index_at_least(times, count, at_s)
    if at < count and times[at] == at_s:
        return count
    for k in range(count, at, -1):
        times[k] = times[k - 1]
    for i in range((count + 1) * resources - 1, (at + 1) * resources - 1, -1):
        free[i] = free[i - resources]
    times[at] = at_s
    for r in range(resources):
        free[at * resources + r] = free[(at - 1) * resources + r]
    return count + 1


@subroutine
def init_total_profile(site: SchedulingState, search: OrderSearchState) -> None:
    """Set row 0 to the machine's profile before any job is placed."""
    jobs, groups, available, resources = site.jobs, site.trial.groups, site.trial.available, len(site.trial.available)
    rows, points = search.head + 1, site.active + 2 * search.head + 4
    if len(search.totals.asked) != resources:
        search.totals.asked, search.totals.times = np.empty(resources, np.int64), np.empty((0, 0), np.int64)
    if search.totals.times.shape[0] < rows or search.totals.times.shape[1] < points:
        rows, points = max(2 * rows, search.totals.times.shape[0]), max(2 * points, search.totals.times.shape[1])
        search.totals.times = np.empty((rows, points), np.int64)
        search.totals.free = np.empty((rows, points * resources), np.int64)
        search.totals.points = np.empty(rows, np.int64)
    times, free, n = search.totals.times[0], search.totals.free[0], 1
    times[0] = site.now_s
    for r in range(resources):
        free[r] = available[r]
    for i in range(site.active):
        if jobs.end_s[site.running[i]] > times[n - 1]:
            times[n] = jobs.end_s[site.running[i]]
            n += 1
    for i in range(resources, n * resources):
        free[i] = 0

    # Add the profiles' increase at each end, then accumulate the amounts that are free from each breakpoint.
    size, first, length, at, line = groups.size, groups.first, groups.length, groups.at, groups.free
    for g in range(groups.count):
        for step in range(first[g] + 1, first[g] + length[g]):
            k = first_index_at_least(times, n, at[step] + 1) - 1
            for r in range(resources):
                free[k * resources + r] += size[g] * (line[step, r] - line[step - 1, r])
    for i in range(resources, n * resources):
        free[i] += free[i - resources]
    search.totals.points[0] = n


@subroutine
def lower_bound_by_totals(site: SchedulingState, search: OrderSearchState, k: int, slot: int) -> int:
    """Return a lower bound on a job's start given the jobs before place `k`, or NEVER."""
    jobs, asked = site.jobs, search.totals.asked
    for r in range(len(asked)):
        asked[r] = jobs.units[slot] * jobs.per_unit[slot, r]
    return earliest_start_by_totals(
        search.totals.times[k], search.totals.free[k], search.totals.points[k], jobs.estimate_s[slot], asked
    )


@subroutine
def take_from_totals(
    site: SchedulingState, search: OrderSearchState, k: int, to: int, slot: int, start_s: int, moves: int
) -> None:
    """Set row `to` to row `k` minus the last placed job, whose moves begin at `moves`."""
    jobs, asked = site.jobs, search.totals.asked
    times, free, n, resources = search.totals.times[to], search.totals.free[to], search.totals.points[k], len(asked)
    if to != k:
        from_times, from_free = search.totals.times[k], search.totals.free[k]
        for i in range(n):
            times[i] = from_times[i]
        for i in range(n * resources):
            free[i] = from_free[i]
    search.totals.points[to] = n
    if start_s == NEVER or n + 2 > len(times):
        return
    for r in range(resources):
        asked[r] = jobs.units[slot] * jobs.per_unit[slot, r]
    if jobs.sharing[slot] & EXCLUSIVE:
        for r in range(resources):
            asked[r] = amount_taken_by_node_moves(site, moves, slot, r)
    end_s = start_s + jobs.estimate_s[slot]
    n = add_total_breakpoint(times, free, n, start_s, resources)
    n = add_total_breakpoint(times, free, n, end_s, resources)
    i = first_index_at_least(times, n, start_s)
    while times[i] < end_s:
        for r in range(resources):
            free[i * resources + r] -= asked[r]
        i += 1
    search.totals.points[to] = n
