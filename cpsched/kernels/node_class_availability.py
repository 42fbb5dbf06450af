"""Compute a job's units, earliest start and class ranks from class profiles."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.block_selection import BASE_BLOCK, NODES, WEIGHT, fill_blocks
from cpsched.kernels.fit_rules import units_that_fit
from cpsched.kernels.node_classes import OPEN_ENDED
from cpsched.kernels.queue_orders import sort_pairs
from cpsched.kernels.scheduling_state import NodeClasses, PlanWorkspace, SchedulingState, grow_columns
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER, IntArray
from cpsched.model.blocks import TOPOLOGY


@scalar_subroutine
def find_profile_step(at: FixedColumn, first: int, length: int, at_s: int) -> int:
    """Return a profile's step at `at_s`, usually the first step."""
    if length == 1 or at[first + 1] > at_s:
        return first
    low, high = 1, length
    while low + 1 < high:
        middle = (low + high) // 2
        if at[first + middle] <= at_s:
            low = middle
        else:
            high = middle
    return first + low


@subroutine
def count_units_fitting_during(site: SchedulingState, slot: int, start_s: int, end_s: int) -> int:
    """Return the number of a job's units that fit throughout [start_s, end_s).

    Set `trial.found[g]` to the number of units that fit on one node in class `g`. A round spends most of its time here,
    so the function is one loop over plain arrays.
    """
    groups, found, machine, jobs = site.trial.groups, site.trial.found, site.machine, site.jobs
    kind, size, first, length, at, free = groups.kind, groups.size, groups.first, groups.length, groups.at, groups.free
    per_unit, capacity, node_sets, kind_node = jobs.per_unit, machine.capacity, machine.node_sets, machine.kind_node
    whole, node_set, resources = jobs.sharing[slot] & EXCLUSIVE, jobs.node_set[slot], free.shape[1]
    units = 1 if jobs.sharing[slot] & DISTINCT else jobs.units[slot]
    total = 0
    for g in range(groups.count):
        found[g] = 0
        if size[g] == 0:
            continue
        node = kind_node[kind[g]]
        if node_set > 0 and not node_sets[node_set, node]:
            continue

        # The minimum over the steps from the one at `start_s` to the last one before `end_s`.
        least, step, last = units, find_profile_step(at, first[g], length[g], start_s), first[g] + length[g]
        while step < last and at[step] < end_s and least > 0:
            for r in range(resources):
                least = units_that_fit(least, per_unit[slot, r], whole, free[step, r], capacity[node, r])
            step += 1
        found[g] = least
        total += size[g] * least
    return total


@subroutine
def block_quotas_of_classes(site: SchedulingState, slot: int) -> IntArray:
    """Return how many nodes of each base block a job takes, or zeros if it does not fit (see `fill_blocks`).

    A node in class `g` holds `trial.found[g]` units. The job's node set has a rule.
    """
    trial, machine = site.trial, site.machine
    rule, groups, weights, n = machine.block_rules[site.jobs.node_set[slot]], trial.groups, machine.kind_weight, 0
    usable = np.zeros((groups.count, 3), np.int64)
    for g in range(groups.count):
        if trial.found[g] > 0 and groups.size[g] > 0:
            usable[n, BASE_BLOCK] = machine.block_of[rule[TOPOLOGY], machine.kind_node[groups.kind[g]]]
            usable[n, WEIGHT] = weights[groups.kind[g]] if len(weights) > 0 else 0
            usable[n, NODES] = groups.size[g]
            n += 1
    return fill_blocks(rule, usable[:n], site.jobs.units[slot])


@subroutine
def holds_job(site: SchedulingState, slot: int, total: int) -> bool:
    """Return whether the `total` units in `trial.found` hold a job, and fill its blocks."""
    if total < site.jobs.units[slot]:
        return False
    if site.machine.block_rules[site.jobs.node_set[slot], TOPOLOGY] < 0:
        return True
    return bool(block_quotas_of_classes(site, slot).any())


@subroutine
def fits_during(site: SchedulingState, slot: int, start_s: int, end_s: int) -> bool:
    """Return whether a job fits throughout [start_s, end_s). Set `trial.found`."""
    return holds_job(site, slot, count_units_fitting_during(site, slot, start_s, end_s))


@subroutine
def longest_profile_steps(groups: NodeClasses) -> int:
    """Return the number of steps in the longest profile."""
    steps, length = 0, groups.length
    for g in range(groups.count):
        steps = max(steps, length[g])
    return steps


@subroutine
def append_fit_change(trial: PlanWorkspace, count: int, at_s: int, by: int) -> int:
    """Append a change by `by` units at `at_s`. Return the new number of changes."""
    if count == len(trial.change_s):
        grow_columns(trial, "change_s change_by", count, count + 1)
    trial.change_s[count], trial.change_by[count] = at_s, by
    return count + 1


@subroutine
def record_fit_changes(site: SchedulingState, slot: int, low_s: int, high_s: int) -> tuple[int, int, bool]:
    """Record how the number of a job's units that fit changes with the job's start.

    Consider starts in [low_s, high_s]. Write the changes to `trial.change_s` and `trial.change_by`, unsorted. Return
    the units for a start at `low_s`, the number of changes, and whether any profile has steps after `high_s`.
    """
    trial, machine, jobs = site.trial, site.machine, site.jobs
    groups, duration_s = trial.groups, jobs.estimate_s[slot]
    all_at, all_first, size, length, kind = groups.at, groups.first, groups.size, groups.length, groups.kind
    free, per_unit, capacity, resources = groups.free, jobs.per_unit, machine.capacity, groups.free.shape[1]
    whole, node_set = jobs.sharing[slot] & EXCLUSIVE, jobs.node_set[slot]
    units = 1 if jobs.sharing[slot] & DISTINCT else jobs.units[slot]
    held = np.empty(longest_profile_steps(groups), np.int64)
    base, count, goes_on = 0, 0, False
    for g in range(groups.count):
        node = machine.kind_node[kind[g]]
        if size[g] == 0 or (node_set > 0 and not machine.node_sets[node_set, node]):
            continue
        n, first = length[g], all_first[g]
        goes_on = goes_on or all_at[first + n - 1] > high_s
        i = find_profile_step(all_at, first, n, low_s) - first
        filled, current = i, 0

        # A job that starts at `pos_s` needs this step and all steps that begin before its end.
        while i < n and all_at[first + i] <= high_s:
            pos_s = max(all_at[first + i], low_s)
            until_s = all_at[first + i + 1] if i + 1 < n else NEVER
            least, j = units, i
            while True:
                while j < n and (j == i or all_at[first + j] < pos_s + duration_s):
                    if j == filled:
                        most = units
                        for r in range(resources):
                            most = units_that_fit(most, per_unit[slot, r], whole, free[first + j, r], capacity[node, r])
                        held[j] = most
                        filled += 1
                    least = min(least, held[j])
                    if least == 0:
                        break
                    j += 1

                # For a start at `pos_s`, `least` units fit on a node. Record the difference from a start just before.
                if least != current:
                    if pos_s <= low_s:
                        base += size[g] * (least - current)
                    else:
                        count = append_fit_change(trial, count, pos_s, size[g] * (least - current))
                    current = least
                if least == 0:
                    break

                # For a later start in this step, the job may reach a lower step with fewer units. Continue there.
                while j < n:
                    if j == filled:
                        most = units
                        for r in range(resources):
                            most = units_that_fit(most, per_unit[slot, r], whole, free[first + j, r], capacity[node, r])
                        held[j] = most
                        filled += 1
                    if held[j] < least:
                        break
                    j += 1
                if j == n or all_at[first + j] - duration_s + 1 >= until_s:
                    break
                pos_s = all_at[first + j] - duration_s + 1
                if pos_s > high_s:
                    break
            i += 1
    return base, count, goes_on


@subroutine
def earliest_start(site: SchedulingState, slot: int, from_s: int) -> int:
    """Return a job's earliest start from `from_s`, or NEVER if there is none.

    On nodes, this is EASY's shadow time. The loop examines the profiles in pieces, each twice as long as the previous
    one. So its run time depends on the steps before the result, not on the length of the profiles.
    """
    trial, need, duration_s = site.trial, site.jobs.units[slot], site.jobs.estimate_s[slot]
    low_s, span_s = from_s, duration_s
    has_blocks = site.machine.block_rules[site.jobs.node_set[slot], TOPOLOGY] >= 0
    while True:
        high_s = low_s + span_s
        held, count, goes_on = record_fit_changes(site, slot, low_s, high_s)
        if held >= need and (not has_blocks or fits_during(site, slot, low_s, low_s + duration_s)):
            return low_s
        change_s, change_by = trial.change_s, trial.change_by
        sort_pairs(change_s, change_by, count)
        for k in range(count):
            held += change_by[k]
            if held < need or (k + 1 < count and change_s[k + 1] == change_s[k]):
                continue
            if not has_blocks or fits_during(site, slot, change_s[k], change_s[k] + duration_s):
                return int(change_s[k])
        if not goes_on:
            return NEVER
        low_s, span_s = high_s + 1, 2 * span_s


@subroutine
def units_fitting_at_step(site: SchedulingState, slot: int, g: int, step: int, most: int) -> int:
    """Return how many units of a job, at most `most`, fit on a class's node at a step."""
    groups, machine, jobs = site.trial.groups, site.machine, site.jobs
    node, whole = machine.kind_node[groups.kind[g]], jobs.sharing[slot] & EXCLUSIVE
    found, free, at = most, groups.free, groups.first[g] + step
    for r in range(free.shape[1]):
        found = units_that_fit(found, jobs.per_unit[slot, r], whole, free[at, r], machine.capacity[node, r])
    return found


@subroutine
def set_ranks_latest_freed_first(site: SchedulingState, slot: int, start_s: int) -> None:
    """Assign the highest ranks to the classes whose nodes become free last.

    Set `trial.rank[g]` to the time from which a node holds `found[g]` units until `start_s`. A reservation thus leaves
    the nodes that are free now to other jobs.
    """
    trial = site.trial
    groups, found, rank = trial.groups, trial.found, trial.rank
    for g in range(groups.count):
        rank[g] = OPEN_ENDED
        if found[g] == 0:
            continue
        step = find_profile_step(groups.at, groups.first[g], groups.length[g], start_s) - groups.first[g]
        while step > 0 and units_fitting_at_step(site, slot, g, step - 1, found[g]) == found[g]:
            step -= 1
        rank[g] = groups.at[groups.first[g] + step]


@subroutine
def set_ranks_fullest_first(site: SchedulingState) -> None:
    """Set `trial.rank[g]` for best fit (mod17): fuller nodes have higher ranks.

    The measure is the sum, over resources, of the free amount in millionths of a node's largest capacity.
    """
    trial = site.trial
    groups, found, rank, most = trial.groups, trial.found, trial.rank, trial.most
    for g in range(groups.count):
        share = 0
        for r in range(len(most)):
            if most[r] > 0:
                share += groups.free[groups.first[g], r] * 1_000_000 // most[r]
        rank[g] = -share if found[g] else OPEN_ENDED
