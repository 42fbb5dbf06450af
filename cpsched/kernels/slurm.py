"""Slurm's two passes over its queue: the main loop, which starts in order, and backfill, which reserves.

What each rule follows is told in `docs/twin.md`, with the function of Slurm's source that it was read in. The lines,
groups and moves are those of `cpsched.kernels.nodes`.
"""

from __future__ import annotations

import numpy as np

from cpsched.compile.handles import Column, FixedColumn, Handle
from cpsched.compile.jit import bare, inner, kernel
from cpsched.kernels.fit import asks_more_than
from cpsched.kernels.lines import fill_units
from cpsched.kernels.nodes import (
    REMEMBERED,
    commit,
    dominated,
    last_candidate,
    make_room_by_group,
    open_trial,
    reserve,
    starts_now,
)
from cpsched.kernels.orders import PRIORITY, sorted_positions
from cpsched.kernels.picking import pick_nodes
from cpsched.kernels.pool import open_draft
from cpsched.kernels.profile import lower_bound
from cpsched.kernels.ranges import edit_move, write_starts
from cpsched.kernels.state import Site, longer
from cpsched.model import EXCLUSIVE, NEVER

NO_PASS, SUBMITTED, DEPTH, FULL = range(4)
"""What the main loop is to do: nothing; try the jobs just submitted; go through the queue to the default depth, or to
its end."""


GAP_S = 1
"""How long before a reservation of whole nodes begins another job on them must have ended."""


class Rules(Handle):
    """`SchedulerParameters` as numbers; `NEVER` stands for no limit. The names are Slurm's where it has one."""

    default_queue_depth: int
    partition_job_depth: int
    sched_max_job_start: int
    bf_window_s: int
    bf_resolution_s: int
    bf_max_job_test: int
    bf_max_job_start: int
    bf_max_job_user: int
    bf_max_job_part: int
    bf_max_job_user_part: int
    bf_max_job_assoc: int
    bf_job_part_count_reserve: int
    bf_min_age_reserve_s: int
    bf_min_prio_reserve: int
    bf_node_space_size: int
    bf_busy_nodes: int
    """1 where reservations prefer the nodes that become free last."""
    whole_nodes: int
    """1 where a reservation withdraws its nodes in full, 0 where it takes the parts that the job is to get."""


class Owners(Handle):
    """Whose each job is, as numbers counted from 0, by slot."""

    most: int
    """A number above all the others."""
    partition: Column
    user: Column
    user_partition: Column
    association: Column
    node_set: Column
    """By slot: the node set that holds the nodes of the job's partition."""


class Tally(Handle, grows=True):
    """What one backfill has counted so far."""

    tested: int
    begin_s: int
    """The second at which its table of times begins."""
    end_s: int
    """The second at which the table ends."""
    records: int
    """Entries of the table: one, and one more for each second in `bounds`."""
    bounds: Column
    """Seconds at which a reservation begins or ends, rising."""
    by_user: Column
    by_partition: Column
    by_user_partition: Column
    by_association: Column
    reserved: Column
    """Reservations by partition."""


class Passes(Handle):
    """What is due now, and what came of it."""

    main: int
    """`NO_PASS`, `SUBMITTED`, `DEPTH` or `FULL`."""
    since_s: int
    """For `SUBMITTED`: jobs that were submitted later are new."""
    backfill: int
    """1 where backfill is due."""
    whole: int
    """1 where the whole plan is wanted, 0 where its starts suffice."""
    next_s: int
    """Where backfill is not due and a plan is wanted: the second from which jobs may be planned to start."""
    main_cut: int
    """Set to 1 where the main loop stopped at one of its limits."""
    backfill_cut: int
    """Set to 1 where a limit kept backfill from a job."""
    backfilled: int
    """Set to the number of jobs that backfill started."""
    tally: Tally


# ---------------------------------------------------------------------------------------------- the main loop


@inner
def holds_back(site: Site, rules: Rules, slot: int) -> bool:
    """Whether a job that cannot start keeps others back: neither younger nor weaker than the rules say."""
    jobs = site.jobs
    old = site.now_s - jobs.submit_s[slot] >= rules.bf_min_age_reserve_s
    return bool(old and jobs.priority[slot] >= rules.bf_min_prio_reserve)


@inner
def starts_on_open(site: Site, slot: int, withdrawn: FixedColumn) -> bool:
    """Whether a job can start now on nodes of kinds that are not `withdrawn`; reservations do not count.

    If so, `trial.found` says how many units one node of each group holds.
    """
    trial, jobs, kind = site.trial, site.jobs, site.trial.groups.kind
    if asks_more_than(jobs, slot, trial.available) or dominated(jobs, slot, trial.failed, trial.hopeless):
        return False
    total = fill_units(site, slot, site.now_s, site.now_s + 1)
    for g in range(trial.groups.count):
        if withdrawn[kind[g]] and trial.found[g] > 0:
            total -= trial.groups.size[g] * trial.found[g]
            trial.found[g] = 0
    if total >= jobs.units[slot]:
        return True
    if trial.hopeless < REMEMBERED:
        trial.failed[trial.hopeless] = slot
        trial.hopeless += 1
    return False


@inner
def withdraw(site: Site, node_set: int, withdrawn: Column) -> None:
    """Withdraw the nodes of a node set. Nodes of one kind are in the same node sets."""
    machine = site.machine
    for kind in range(len(withdrawn)):
        if machine.node_sets[node_set, machine.kind_node[kind]]:
            withdrawn[kind] = 1


@inner
def main_loop(site: Site, rules: Rules, owners: Owners, passes: Passes, order: FixedColumn) -> None:
    """Start jobs in order of the queue; the first of a partition that does not fit blocks the others there.

    Its nodes are withdrawn from the jobs of other partitions behind it. Jobs younger or weaker than the rules want
    block nobody, and a job that the cluster could never hold is passed over. For `SUBMITTED`, jobs that waited before
    are taken as ones that do not fit.
    """
    queue, jobs, trial = site.queue, site.jobs, site.trial
    n = site.queued
    withdrawn = np.zeros(len(site.machine.kind_node), np.int64)
    blocked, seen = np.zeros(owners.most, np.int64), np.zeros(owners.most, np.int64)
    whole_queue, limited = passes.main != DEPTH, passes.main != SUBMITTED
    depth = 0
    for i in range(n):
        slot = queue[order[i]]
        partition = owners.partition[slot]
        if limited:
            if site.draft.started >= rules.sched_max_job_start:
                passes.main_cut = 1
                break
            seen[partition] += 1
            if seen[partition] > rules.partition_job_depth:
                continue
        if not whole_queue:
            if depth > rules.default_queue_depth:
                passes.main_cut = 1
                break
            depth += 1
        if blocked[partition]:
            continue
        make_room_by_group(trial)
        is_new = limited or jobs.submit_s[slot] > passes.since_s
        if is_new and starts_on_open(site, slot, withdrawn):
            commit(site, order[i], site.now_s, False)
        elif holds_back(site, rules, slot) and fill_units(site, slot, NEVER - 1, NEVER) >= jobs.units[slot]:
            blocked[partition] = 1
            withdraw(site, owners.node_set[slot], withdrawn)


# ---------------------------------------------------------------------------------------------- backfill


@bare
def down_to(at_s: int, resolution_s: int) -> int:
    """The last multiple of the resolution that is not after `at_s`."""
    return at_s // resolution_s * resolution_s


@inner
def open_tally(site: Site, rules: Rules, owners: Owners, tally: Tally) -> None:
    """Nothing is counted yet."""
    tally.begin_s = down_to(site.now_s, rules.bf_resolution_s)
    tally.end_s = down_to(site.now_s + rules.bf_window_s, rules.bf_resolution_s)
    tally.tested, tally.records, n = 0, 1, owners.most
    tally.bounds = longer(tally.bounds, 0, 2 * site.queued + 2)
    tally.by_user, tally.by_partition = longer(tally.by_user, 0, n), longer(tally.by_partition, 0, n)
    tally.by_user_partition, tally.by_association = (
        longer(tally.by_user_partition, 0, n), longer(tally.by_association, 0, n),
    )  # fmt: skip
    tally.reserved = longer(tally.reserved, 0, n)
    for k in range(n):
        tally.by_user[k] = tally.by_partition[k] = tally.by_user_partition[k] = 0
        tally.by_association[k] = tally.reserved[k] = 0


@inner
def is_counted(rules: Rules, owners: Owners, tally: Tally, slot: int) -> bool:
    """Whether a job is within the limits by user, partition and association; if so, it is counted."""
    user, partition, both = owners.user[slot], owners.partition[slot], owners.user_partition[slot]
    association = owners.association[slot]
    if (
        tally.by_user_partition[both] >= rules.bf_max_job_user_part
        or tally.by_partition[partition] >= rules.bf_max_job_part
        or tally.by_association[association] >= rules.bf_max_job_assoc
        or tally.by_user[user] >= rules.bf_max_job_user
    ):
        return False
    tally.by_user[user] += 1
    tally.by_partition[partition] += 1
    tally.by_user_partition[both] += 1
    tally.by_association[association] += 1
    return True


@inner
def note_bound(tally: Tally, at_s: int) -> None:
    """Note a second at which the nodes in reserve change, where it lies within the table and is a new one."""
    bounds, n = tally.bounds, tally.records - 1
    if not tally.begin_s < at_s < tally.end_s:
        return
    at = lower_bound(bounds, n, at_s)
    if at < n and bounds[at] == at_s:
        return
    for k in range(n, at, -1):
        bounds[k] = bounds[k - 1]
    bounds[at] = at_s
    tally.records += 1


@inner
def keep_free(site: Site, rules: Rules, tally: Tally, position: int, start_s: int) -> None:
    """Reserve nodes for the job of a queue position, whose `trial.found` and `trial.rank` are known for `start_s`.

    The reservation begins and ends at multiples of the resolution, and lasts for one at least. Whole nodes are
    withdrawn `GAP_S` earlier, which no other reservation can tell. Parts are taken from `start_s` on: before, they may
    be in use.
    """
    trial, jobs, slot, step_s = site.trial, site.jobs, site.queue[position], rules.bf_resolution_s
    begin_s = max(down_to(start_s, step_s), tally.begin_s)
    end_s = max(down_to(start_s + jobs.estimate_s[slot] + step_s - 1, step_s), begin_s + step_s)
    note_bound(tally, begin_s)
    note_bound(tally, end_s)
    first = trial.moves
    pick_nodes(site, jobs.units[slot], rules.bf_busy_nodes == 1)
    since_s = begin_s - GAP_S if rules.whole_nodes else start_s
    whole = rules.whole_nodes | jobs.sharing[slot] & EXCLUSIVE
    for m in range(first, trial.moves):
        edit_move(site, m, slot, since_s, end_s, whole)
    site.draft.plan_s[position] = start_s
    trial.reserved += 1


@inner
def backfill(site: Site, rules: Rules, owners: Owners, passes: Passes, order: FixedColumn) -> None:
    """Start jobs in order of the queue where that delays no reservation; those that cannot start reserve.

    Without `passes.backfill` nothing starts, and the jobs are planned from `passes.next_s` on.
    """
    queue, draft, trial, now_s = site.queue, site.draft, site.trial, site.now_s
    trial.hopeless = trial.slotted = 0
    tally, last = passes.tally, site.queued - 1
    open_tally(site, rules, owners, tally)
    i = -1
    while i < last:
        i += 1
        position = order[i]
        slot = queue[position]
        partition = owners.partition[slot]
        if draft.plan_s[position] != NEVER:
            continue
        if tally.tested >= rules.bf_max_job_test:
            passes.backfill_cut = 1
            break
        if not is_counted(rules, owners, tally, slot):
            passes.backfill_cut = 1
            continue
        tally.tested += 1
        make_room_by_group(trial)

        # Start it now where it fits beside the reservations.
        if passes.backfill and starts_now(site, slot):
            commit(site, position, now_s, False)
            passes.backfilled += 1
            if passes.backfilled >= rules.bf_max_job_start:
                passes.backfill_cut = 1
                break
            continue

        # Reserve, unless the job is too young, too weak, too far down in its partition, or too late.
        if not holds_back(site, rules, slot) or tally.reserved[partition] >= rules.bf_job_part_count_reserve:
            continue
        start_s = reserve(site, slot, now_s if passes.backfill else passes.next_s)
        if start_s == NEVER or start_s > now_s + rules.bf_window_s:
            continue
        if tally.records >= rules.bf_node_space_size:
            passes.backfill_cut = 1
            break
        keep_free(site, rules, tally, position, start_s)
        tally.reserved[partition] += 1

        # If only starts are wanted, the pass ends with the last job that might start.
        if not passes.whole:
            make_room_by_group(trial)
            last = last_candidate(site, order, i + 1, last, True)


@kernel
def plan_as_slurm(site: Site, rules: Rules, owners: Owners, passes: Passes, given: FixedColumn) -> int:
    """Go through the passes that are due, the main loop first; returns how many jobs start now.

    `given` are the positions of the queue in the order in which jobs are taken; where it is empty, priorities rule.

    Starts and planned starts are in `site.draft`; what else came of the passes is in `passes`. Stale groups are built
    from the other columns.
    """
    draft = site.draft
    open_draft(draft, site.queued)
    draft.offsets[0] = 0
    open_trial(site, NEVER)
    passes.main_cut = passes.backfill_cut = passes.backfilled = 0
    order = given.copy() if len(given) else sorted_positions(PRIORITY, site)
    if passes.main != NO_PASS:
        main_loop(site, rules, owners, passes, order)
    if passes.backfill or passes.whole:
        backfill(site, rules, owners, passes, order)
    write_starts(site)
    return draft.started
