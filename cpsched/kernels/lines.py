"""What a job finds on the lines of groups: units now, the earliest slot, nodes that are free latest."""

from __future__ import annotations

import numpy as np

from cpsched.handles import Column
from cpsched.kernels.fit import units_in
from cpsched.kernels.groups import EVER
from cpsched.kernels.jit import inner
from cpsched.kernels.profile import lower_bound
from cpsched.kernels.state import Groups, Machine, Site
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER, JobTable


@inner
def fill_units(site: Site, slot: int, start_s: int, end_s: int) -> int:
    """`trial.found[g]` = units of a job that a node of group `g` holds throughout [start_s, end_s); returns their sum.

    One loop over plain arrays: this is where the time of a round goes.
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

        # The least that the steps hold from the one at `start_s` to the last before `end_s`.
        least, step, last = units, first[g], first[g] + length[g]
        while step + 1 < last and at[step + 1] <= start_s:
            step += 1
        while step < last and at[step] < end_s and least > 0:
            for r in range(resources):
                least = units_in(least, per_unit[slot, r], whole, free[step, r], capacity[node, r])
            step += 1
        found[g] = least
        total += size[g] * least
    return total


@inner
def fill_line(groups: Groups, machine: Machine, jobs: JobTable, slot: int, g: int, held: Column) -> int:
    """`held[i]` = units of a job that a node of group `g` holds at step i of its line; returns the number of steps.

    None where no node of the group is for this job.
    """
    free, per_unit, capacity = groups.free, jobs.per_unit, machine.capacity
    node, node_set, first = machine.kind_node[groups.kind[g]], jobs.node_set[slot], groups.first[g]
    if groups.size[g] == 0 or (node_set > 0 and not machine.node_sets[node_set, node]):
        return 0
    whole, resources, steps = jobs.sharing[slot] & EXCLUSIVE, free.shape[1], groups.length[g]
    units = 1 if jobs.sharing[slot] & DISTINCT else jobs.units[slot]
    for i in range(steps):
        least = units
        for r in range(resources):
            least = units_in(least, per_unit[slot, r], whole, free[first + i, r], capacity[node, r])
        held[i] = least
    return int(steps)


@inner
def longest_line(groups: Groups) -> int:
    """The most steps that a line has."""
    steps, length = 0, groups.length
    for g in range(groups.count):
        steps = max(steps, length[g])
    return steps


@inner
def first_slot(site: Site, slot: int) -> int:
    """The index in `trial.times` of the earliest second from which a job finds its units for its whole duration.

    -1 where there is none. Each group adds its change in units to a line of sums, then the sums are scanned: the cost
    follows the steps of all lines, not the nodes.
    """
    trial, machine, jobs, now_s = site.trial, site.machine, site.jobs, site.now_s
    groups, times, count = trial.groups, trial.times, trial.seconds
    duration_s, need = jobs.estimate_s[slot], jobs.units[slot]
    change, base = np.zeros(count + 1, np.int64), 0
    all_at, first, size = groups.at, groups.first, groups.size
    held = np.empty(longest_line(groups), np.int64)
    for g in range(groups.count):
        n = fill_line(groups, machine, jobs, slot, g, held)
        start, current = first[g], 0

        # For each step: the job that starts at `pos_s` sees this step and those that begin before it ends.
        for i in range(n):
            pos_s = max(all_at[start + i], now_s)
            until_s = all_at[start + i + 1] if i + 1 < n else NEVER
            if until_s <= now_s:
                continue
            least, j = held[i], i + 1
            while True:
                while j < n and all_at[start + j] < pos_s + duration_s:
                    least = min(least, held[j])
                    j += 1

                # From `pos_s` on a node holds `least` units: note by how many that differs from just before.
                if least != current:
                    more = size[g] * (least - current)
                    if pos_s <= now_s:
                        base += more
                    else:
                        change[lower_bound(times, count, pos_s)] += more
                    current = least

                # A later start within this step holds less once it reaches a step that holds less: go there.
                while j < n and held[j] >= least:
                    j += 1
                if least == 0 or j == n or all_at[start + j] - duration_s + 1 >= until_s:
                    break
                pos_s = all_at[start + j] - duration_s + 1

    # The first second at which all groups together hold enough.
    for k in range(count):
        base += change[k]
        if base >= need:
            return k
    return -1


@inner
def rank_by_latest(site: Site, slot: int, start_s: int) -> None:
    """`trial.rank[g]` = since when a node of group `g` holds its `found[g]` units without a break until `start_s`."""
    trial, machine, jobs = site.trial, site.machine, site.jobs
    groups, found, rank = trial.groups, trial.found, trial.rank
    held = np.empty(longest_line(groups), np.int64)
    at, first = groups.at, groups.first
    for g in range(groups.count):
        rank[g] = EVER
        if found[g] == 0:
            continue
        since = EVER
        for i in range(fill_line(groups, machine, jobs, slot, g, held)):
            at_s = at[first[g] + i]
            if at_s > start_s:
                break
            if held[i] < found[g]:
                since = NEVER
            elif since == NEVER:
                since = at_s
        rank[g] = since


@inner
def rank_by_fullest(site: Site) -> None:
    """`trial.rank[g]` is higher for nodes that have less free now.

    That is measured in millionths of the largest node, summed over resources (mod17).
    """
    trial = site.trial
    groups, found, rank, most = trial.groups, trial.found, trial.rank, trial.most
    for g in range(groups.count):
        share = 0
        for r in range(len(most)):
            if most[r] > 0:
                share += groups.free[groups.first[g], r] * 1_000_000 // most[r]
        rank[g] = -share if found[g] else EVER
