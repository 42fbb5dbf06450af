"""Slurm's two passes over the queue: the main loop and backfill.

The main loop starts jobs in order and follows `_schedule` in Slurm's job_scheduler.c. Backfill makes reservations and
follows `_attempt_backfill` in backfill.c, and `_future_run_test` in cons_tres/job_test.c, as of 26.05. Profiles,
classes and moves are those of `cpsched.kernels.node_list_scheduling`.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedMatrix, SharedStruct
from cpsched.kernels.fit_rules import exceeds_free, units_that_fit
from cpsched.kernels.node_class_availability import (
    count_units_fitting_during,
    find_profile_step,
    fits_during,
    holds_job,
)
from cpsched.kernels.node_class_moves import apply_scaled_node_move, write_starts
from cpsched.kernels.node_classes import OPEN_ENDED
from cpsched.kernels.node_list_scheduling import (
    MAX_FAILED_JOBS,
    begin_plan_on_classes,
    can_start_until,
    earliest_reservation,
    earliest_reservation_unranked,
    is_dominated,
    known_start_lower_bound,
    last_startable_on_nodes,
    place_job,
    resize_class_columns,
)
from cpsched.kernels.node_selection import select_nodes
from cpsched.kernels.pool_list_scheduling import init_plan_result
from cpsched.kernels.pool_profile import first_index_at_least
from cpsched.kernels.queue_orders import PRIORITY, sorted_queue_positions
from cpsched.kernels.scheduling_state import PlanWorkspace, SchedulingState, resize_column
from cpsched.model import DISTINCT, EXCLUSIVE, NEVER, IntArray

NO_PASS, SUBMITTED, DEPTH, FULL = range(4)
"""The jobs that the main loop tries: none, new jobs, jobs up to the default depth, or all jobs."""

WHOLE_NODE_GAP_S = 1
"""Seconds between the end of a job and a reservation of whole nodes."""
FIRST_WINDOW_S = 30
"""Length of the first window in seconds. Backfill processes all job ends within a window together."""
DOUBLINGS = 22
"""Number of times that Slurm doubles the window. The last window is two years long."""
TRIES_BEFORE_SEARCH = 4
"""Number of tries before a job's earliest start is computed. The computation takes longer than a try."""
WITHHELD_FACTOR = 1 << 20
"""Multiple of a node's capacity that a reservation subtracts from the node's profile.

A negative amount thus marks a reservation, and the amount not used by running jobs can still be computed.
"""


class SlurmSchedulerRules(SharedStruct):
    """`SchedulerParameters` as numbers, with Slurm's names; `NEVER` means no limit."""

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
    """1 if reservations prefer nodes in use or, when parts are reserved, nodes that become free last."""
    whole_nodes: int
    """1 if a reservation takes whole nodes, 0 if it takes the job's amounts."""


class JobOwnerColumns(SharedStruct):
    """The owners of each job, as numbers from 0 by slot."""

    most: int
    """A number greater than all owner numbers."""
    partition: Column
    user: Column
    user_partition: Column
    association: Column
    node_set: Column
    """Node set of each job's partition, by slot."""


class BackfillPassState(SharedStruct, grows=True):
    """Slurm's parameters, and the counters for one backfill pass."""

    rules: SlurmSchedulerRules
    begin_s: int
    """Time (s) at which the table of times begins."""
    end_s: int
    """Time (s) at which the table ends."""
    records: int
    """Number of entries in the table: one, plus one per time in `bounds`."""
    bounds: Column
    """Times (s) at which a reservation begins or ends, ascending."""
    returns: Column
    """Number of nodes that each bound releases without reserving them again immediately."""
    by_user: Column
    by_partition: Column
    by_user_partition: Column
    by_association: Column
    reserved: Column
    """Number of reservations by partition."""
    noted: int
    """Number of classes for which `kept_from` and `kept_until` are known."""
    kept_from: Column
    """Time (s) before which no node in each class is reserved, or NEVER if none is reserved."""
    kept_until: Column
    """Time (s) from which no node in each class is reserved."""
    keeping: int
    """Number of entries in use in `keeps`."""
    keeps: Column
    """Classes whose nodes are reserved at some time."""


class SchedulingPassState(SharedStruct):
    """The due passes and their results."""

    main: int
    """The jobs that the main loop tries: `NO_PASS`, `SUBMITTED`, `DEPTH` or `FULL`."""
    since_s: int
    """For `SUBMITTED`: jobs submitted after this time (s) are new."""
    backfill: int
    """1 if backfill is due."""
    whole: int
    """1 for the whole plan, 0 for only the starts."""
    next_s: int
    """For a plan without backfill: earliest permitted planned start (s)."""
    main_cut: int
    """Set to 1 if the main loop stopped at a limit."""
    backfill_cut: int
    """Set to 1 if backfill skipped a job because of a limit."""
    backfilled: int
    """Set to the number of jobs that backfill starts."""
    tally: BackfillPassState


# ---------------------------------------------------------------------------------------------- the main loop


@subroutine
def blocks_later_jobs(site: SchedulingState, rules: SlurmSchedulerRules, slot: int) -> bool:
    """Return whether a job's age and priority let it block others if it cannot start."""
    jobs = site.jobs
    old = site.now_s - jobs.submit_s[slot] >= rules.bf_min_age_reserve_s
    return bool(old and jobs.priority[slot] >= rules.bf_min_prio_reserve)


@subroutine
def can_start_on_unblocked_nodes(site: SchedulingState, slot: int, withdrawn: FixedColumn) -> bool:
    """Return whether a job can start now on nodes whose kinds are not `withdrawn`.

    Ignore reservations. If the job can start, `trial.found` contains the units on one node of each class.
    """
    trial, jobs, kind = site.trial, site.jobs, site.trial.groups.kind
    if exceeds_free(jobs, slot, trial.available) or is_dominated(site, slot, trial.failed, trial.hopeless):
        return False
    total = count_units_fitting_during(site, slot, site.now_s, site.now_s + 1)
    for g in range(trial.groups.count):
        if withdrawn[kind[g]] and trial.found[g] > 0:
            total -= trial.groups.size[g] * trial.found[g]
            trial.found[g] = 0
    if holds_job(site, slot, total):
        return True
    if trial.hopeless < MAX_FAILED_JOBS:
        trial.failed[trial.hopeless] = slot
        trial.hopeless += 1
    return False


@subroutine
def block_nodes(site: SchedulingState, node_set: int, withdrawn: Column) -> None:
    """Mark the kinds of the nodes in a node set as withdrawn."""
    machine = site.machine
    for kind in range(len(withdrawn)):
        if machine.node_sets[node_set, machine.kind_node[kind]]:
            withdrawn[kind] = 1


@subroutine
def run_main_scheduler(
    site: SchedulingState,
    owners: JobOwnerColumns,
    passes: SchedulingPassState,
    order: FixedColumn,
) -> None:
    """Start jobs in queue order; a job that does not fit blocks its partition.

    Later jobs in other partitions cannot use nodes of a blocked partition. A job below the minimum age or priority in
    the rules blocks no partition. A job that can never fit is skipped. For `SUBMITTED`, jobs that were already pending
    count as not fitting.
    """
    queue, jobs, trial = site.queue, site.jobs, site.trial
    n, rules = site.queued, passes.tally.rules
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
                passes.main_cut = 1
                continue
        if not whole_queue:
            if depth > rules.default_queue_depth:
                passes.main_cut = 1
                break
            depth += 1
        if blocked[partition]:
            continue
        resize_class_columns(trial)
        is_new = limited or jobs.submit_s[slot] > passes.since_s
        if is_new and can_start_on_unblocked_nodes(site, slot, withdrawn):
            place_job(site, order[i], site.now_s, False)
        elif blocks_later_jobs(site, rules, slot) and fits_during(site, slot, NEVER - 1, NEVER):
            blocked[partition] = 1
            block_nodes(site, owners.node_set[slot], withdrawn)


# ---------------------------------------------------------------------------------------------- backfill's counters


@scalar_subroutine
def round_down(at_s: int, resolution_s: int) -> int:
    """Return the last multiple of the resolution that is at most `at_s`."""
    return at_s // resolution_s * resolution_s


@subroutine
def reset_backfill_pass(site: SchedulingState, owners: JobOwnerColumns, tally: BackfillPassState) -> None:
    """Reset the counters for a new pass."""
    tally.begin_s = round_down(site.now_s, tally.rules.bf_resolution_s)
    tally.end_s = round_down(site.now_s + tally.rules.bf_window_s, tally.rules.bf_resolution_s)
    tally.records, tally.noted, n = 1, 0, owners.most
    tally.bounds = resize_column(tally.bounds, 0, 2 * site.queued + 2)
    tally.returns = resize_column(tally.returns, 0, 2 * site.queued + 2)
    tally.by_user, tally.by_partition = resize_column(tally.by_user, 0, n), resize_column(tally.by_partition, 0, n)
    tally.by_user_partition, tally.by_association = (
        resize_column(tally.by_user_partition, 0, n), resize_column(tally.by_association, 0, n),
    )  # fmt: skip
    tally.reserved = resize_column(tally.reserved, 0, n)
    for k in range(n):
        tally.by_user[k] = tally.by_partition[k] = tally.by_user_partition[k] = 0
        tally.by_association[k] = tally.reserved[k] = 0


@subroutine
def count_if_within_limits(owners: JobOwnerColumns, tally: BackfillPassState, slot: int) -> bool:
    """Count a job if it is within the limits per user, partition and association.

    Return whether the job was counted.
    """
    rules, user, partition, both = tally.rules, owners.user[slot], owners.partition[slot], owners.user_partition[slot]
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


@subroutine
def jobs_to_test(
    site: SchedulingState,
    owners: JobOwnerColumns,
    passes: SchedulingPassState,
    order: FixedColumn,
) -> IntArray:
    """Return the positions of the jobs that backfill tests, in order.

    These are the jobs within the limits that the main loop did not start. Set `passes.backfill_cut` if a limit excludes
    a job.
    """
    tested, n = np.empty(min(site.queued, passes.tally.rules.bf_max_job_test), np.int64), 0
    for position in order:
        if site.draft.plan_s[position] != NEVER:
            continue
        if n == len(tested):
            passes.backfill_cut = 1
            break
        if count_if_within_limits(owners, passes.tally, site.queue[position]):
            tested[n] = position
            n += 1
        else:
            passes.backfill_cut = 1
    return tested[:n]


@subroutine
def record_reservation_boundary(tally: BackfillPassState, at_s: int) -> None:
    """Record a time at which reserved nodes change, if new and within the table."""
    bounds, returns, n = tally.bounds, tally.returns, tally.records - 1
    if not tally.begin_s < at_s < tally.end_s:
        return
    at = first_index_at_least(bounds, n, at_s)
    if at < n and bounds[at] == at_s:
        return
    for k in range(n, at, -1):
        bounds[k], returns[k] = bounds[k - 1], returns[k - 1]
    bounds[at], returns[at] = at_s, 0
    tally.records += 1


@subroutine
def count_released_nodes(tally: BackfillPassState, at_s: int, nodes: int) -> None:
    """Add `nodes` to the number of nodes released at `at_s`, if this time is a bound."""
    at = first_index_at_least(tally.bounds, tally.records - 1, at_s)
    if at < tally.records - 1 and tally.bounds[at] == at_s:
        tally.returns[at] += nodes


# ---------------------------------------------------------------------------------------------- possible starts


@scalar_subroutine
def is_reserved(free: FixedMatrix, step: int) -> bool:
    """Return whether a whole node is reserved at a step, a row of `free`."""
    for r in range(free.shape[1]):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if free[step, r] < 0:
            return True
    return False


@scalar_subroutine
def is_reserved_until(at: FixedColumn, free: FixedMatrix, step: int, last: int, end_s: int) -> bool:
    """Return whether a whole node is reserved in [step, last) until `end_s`."""
    while step < last and at[step] <= end_s:
        if is_reserved(free, step):
            return True
        step += 1
    return False


@scalar_subroutine
def amount_free_of_running_jobs(free: FixedMatrix, step: int, r: int, capacity: int) -> int:
    """Return the amount that running jobs leave free, ignoring reservations."""
    amount = free[step, r]
    return int(amount + WITHHELD_FACTOR * capacity if amount < 0 else amount)


@scalar_subroutine
def does_job_end_at_step(free: FixedMatrix, step: int, capacity: FixedMatrix, node: int) -> bool:
    """Return whether a job ends at a step, which is not the first of its profile.

    `node` is any node of the profile's kind.
    """
    for r in range(free.shape[1]):
        if amount_free_of_running_jobs(free, step, r, capacity[node, r]) != amount_free_of_running_jobs(
            free, step - 1, r, capacity[node, r]
        ):
            return True
    return False


@scalar_subroutine
def units_fitting_beside_running_jobs(
    most: int, per_unit: FixedMatrix, slot: int, whole: int, free: FixedMatrix, step: int, capacity: FixedMatrix,
    node: int,
) -> int:  # fmt: skip
    """Return how many units, at most `most`, fit at a step, ignoring reservations."""
    for r in range(free.shape[1]):
        left = amount_free_of_running_jobs(free, step, r, capacity[node, r])
        most = units_that_fit(most, per_unit[slot, r], whole, left, capacity[node, r])
    return most


@scalar_subroutine
def next_job_end_in_profile(
    at: FixedColumn, free: FixedMatrix, step: int, last: int, before_s: int, capacity: FixedMatrix, node: int
) -> int:
    """Return the first end of a job between `step` and `last`, or `before_s`."""
    step += 1
    while step < last and at[step] < before_s:
        if does_job_end_at_step(free, step, capacity, node):
            return int(at[step])
        step += 1
    return before_s


@subroutine
def end_of_first_fitting_window(
    site: SchedulingState, tally: BackfillPassState, slot: int, start_s: int, later_s: int
) -> int:
    """Return the end in seconds of the first window after which a job fits.

    A window is a period in which jobs end. Return `start_s` if the job fits immediately, NEVER if it does not fit. Use
    only nodes without a reservation while the job runs. The first window begins with the first end after `start_s`.
    Let m be the next multiple of `FIRST_WINDOW_S` after this end. The first window ends `FIRST_WINDOW_S` after m, and
    each further window ends twice as long after m as the previous window. Ignore ends after `later_s`. Set
    `trial.found`. (`_future_run_test` in `cons_tres/job_test.c`)
    """
    trial, jobs, machine = site.trial, site.jobs, site.machine
    groups, found, last_s = trial.groups, trial.found, min(later_s, NEVER - 1)
    kind, size, first, length, at, free = groups.kind, groups.size, groups.first, groups.length, groups.at, groups.free
    per_unit, capacity, node_sets, kind_node = jobs.per_unit, machine.capacity, machine.node_sets, machine.kind_node
    kept_from, kept_until = tally.kept_from, tally.kept_until
    whole, node_set, need = jobs.sharing[slot] & EXCLUSIVE, jobs.node_set[slot], jobs.units[slot]
    most, end_s = 1 if jobs.sharing[slot] & DISTINCT else need, start_s + jobs.estimate_s[slot]

    # Find usable nodes, and the units that they hold at `start_s`. Skip nodes with a reservation that begins during the
    # job.
    among, steps, n = np.empty(groups.count, np.int64), np.empty(groups.count, np.int64), 0
    for g in range(groups.count):
        found[g] = 0
        if size[g] == 0:
            continue
        node = kind_node[kind[g]]
        if node_set > 0 and not node_sets[node_set, node]:
            continue
        near = kept_from[g] <= end_s and start_s < kept_until[g]
        if near and kept_from[g] >= start_s:
            continue
        step = find_profile_step(at, first[g], length[g], start_s)
        if near and is_reserved_until(at, free, step, first[g] + length[g], end_s):
            continue
        found[g] = units_fitting_beside_running_jobs(most, per_unit, slot, whole, free, step, capacity, node)
        need -= size[g] * found[g]
        among[n], steps[n] = g, step
        n += 1
    if need <= 0 and holds_job(site, slot, jobs.units[slot]):
        return start_s

    # Find the next change in the units on these nodes. Ends only add units, so nodes with the most units are skipped.
    next_s, changes_s = NEVER, np.empty(n, np.int64)
    for k in range(n):
        g = among[k]
        step, last = steps[k], first[g] + length[g]
        next_s = next_job_end_in_profile(at, free, step, last, next_s, capacity, kind_node[kind[g]])
        changes_s[k] = at[step + 1] if step + 1 < last and found[g] < most else NEVER
    if next_s > last_s:
        return NEVER

    # Count the units on these nodes after each window of ends.
    anchor_s = round_down(next_s, FIRST_WINDOW_S) + FIRST_WINDOW_S
    for window in range(DOUBLINGS + 1):
        ended_s = min(anchor_s + (FIRST_WINDOW_S << window), last_s) if window < DOUBLINGS else last_s
        for k in range(n):
            if changes_s[k] > ended_s:
                continue
            g = among[k]
            step, last = steps[k] + 1, first[g] + length[g]
            while step + 1 < last and at[step + 1] <= ended_s:
                step += 1
            steps[k] = step
            holds = units_fitting_beside_running_jobs(
                most, per_unit, slot, whole, free, step, capacity, kind_node[kind[g]]
            )
            changes_s[k] = at[step + 1] if step + 1 < last and holds < most else NEVER
            need -= size[g] * (holds - found[g])
            found[g] = holds
        if need <= 0 and holds_job(site, slot, jobs.units[slot]):
            return int(ended_s)
        if ended_s == last_s:
            break
    return NEVER


@subroutine
def last_job_end_on_moved_nodes(site: SchedulingState, first: int, after_s: int, until_s: int) -> int:
    """Return the latest time in (after_s, until_s] at which a job ends.

    Return `after_s` if there is none. Consider only the nodes in the moves from index `first` onward.
    """
    trial, groups, machine, found = site.trial, site.trial.groups, site.machine, after_s
    at, free, capacity = groups.at, groups.free, machine.capacity
    for m in range(first, trial.moves):
        g = trial.moved[m]
        begin, node = groups.first[g], machine.kind_node[groups.kind[g]]
        step = find_profile_step(at, begin, groups.length[g], until_s)
        while step > begin and at[step] > found:
            if does_job_end_at_step(free, step, capacity, node):
                found = at[step]
            step -= 1
    return int(found)


@subroutine
def overlaps_reservation(site: SchedulingState, tally: BackfillPassState, first: int, begin_s: int, end_s: int) -> bool:
    """Return whether a node in the moves from `first` is reserved in [begin_s, end_s)."""
    trial, groups = site.trial, site.trial.groups
    at, free = groups.at, groups.free
    for m in range(first, trial.moves):
        g = trial.moved[m]
        if end_s <= tally.kept_from[g] or tally.kept_until[g] <= begin_s:
            continue
        if tally.kept_from[g] >= begin_s:
            return True
        step = find_profile_step(at, groups.first[g], groups.length[g], begin_s)
        if is_reserved_until(at, free, step, groups.first[g] + groups.length[g], end_s - 1):
            return True
    return False


@subroutine
def is_only_reservation_end(site: SchedulingState, tally: BackfillPassState, node_set: int, at_s: int) -> bool:
    """Return whether a reservation in a node set ends at `at_s`, and none begins."""
    groups, machine = site.trial.groups, site.machine
    size, first, length, at, free = groups.size, groups.first, groups.length, groups.at, groups.free
    kind, kind_node, node_sets = groups.kind, machine.kind_node, machine.node_sets
    kept_from, kept_until = tally.kept_from, tally.kept_until
    for g in tally.keeps[: tally.keeping]:
        if size[g] == 0 or not kept_from[g] < at_s <= kept_until[g] or not node_sets[node_set, kind_node[kind[g]]]:
            continue
        step = find_profile_step(at, first[g], length[g], at_s)
        if at[step] == at_s and is_reserved(free, step - 1) and not is_reserved(free, step):
            return True
    return False


@subroutine
def next_backfill_try_s(
    site: SchedulingState, tally: BackfillPassState, node_set: int, start_s: int, end_s: int
) -> int:
    """Return the time of Slurm's next try for a job in [start_s, end_s], or NEVER."""
    bounds, n = tally.bounds, tally.records - 1
    for k in range(first_index_at_least(bounds, n, start_s + 1), n):
        if tally.returns[k] > 0 and is_only_reservation_end(site, tally, node_set, bounds[k]):
            return int(bounds[k])
        if k > 0 and bounds[k - 1] > end_s:
            return int(bounds[k + 1]) if k + 1 < n else NEVER
    return NEVER


@subroutine
def last_backfill_try_before(
    site: SchedulingState, tally: BackfillPassState, node_set: int, from_s: int, earliest_s: int
) -> int:
    """Return the time of Slurm's last try before `earliest_s`, to skip earlier tries."""
    k = first_index_at_least(tally.bounds, tally.records - 1, earliest_s) - 1
    while k >= 0 and tally.bounds[k] > from_s:
        if tally.returns[k] > 0 and is_only_reservation_end(site, tally, node_set, tally.bounds[k]):
            return int(tally.bounds[k])
        k -= 1
    return from_s


@subroutine
def set_ranks_in_use_first(site: SchedulingState) -> None:
    """Set `trial.rank[g]` to 1 if nodes of class `g` are in use now, else 0."""
    groups, machine, rank = site.trial.groups, site.machine, site.trial.rank
    first, free, capacity = groups.first, groups.free, machine.capacity
    for g in range(groups.count):
        rank[g], node = 0, machine.kind_node[groups.kind[g]]
        for r in range(free.shape[1]):
            if amount_free_of_running_jobs(free, first[g], r, capacity[node, r]) < capacity[node, r]:
                rank[g] = 1


@subroutine
def try_whole_nodes(site: SchedulingState, tally: BackfillPassState, slot: int, try_s: int, later_s: int) -> int:
    """Try a job at `try_s`. Record its nodes as moves, and return its start.

    If the job does not fit, record nothing. Return NEVER, or -1 minus the time of Slurm's next try.

    A try uses nodes that have no reservation while the job runs. It releases running jobs window by window,
    and selects the lowest nodes that then suffice. The job starts at the last end of a running job on these nodes.
    `later_s` is the next try if the nodes do not suffice.
    """
    trial, rules, lasts_s, first = site.trial, tally.rules, site.jobs.estimate_s[slot], site.trial.moves
    step_s = rules.bf_resolution_s
    ended_s = end_of_first_fitting_window(site, tally, slot, try_s, later_s)
    if ended_s == NEVER:
        return int(-1 - later_s)
    if rules.bf_busy_nodes:
        set_ranks_in_use_first(site)
    select_nodes(site, slot, rules.bf_busy_nodes == 1)
    start_s = last_job_end_on_moved_nodes(site, first, try_s, ended_s)
    begin_s, end_s = round_down(start_s, step_s), round_down(start_s + lasts_s + step_s - 1, step_s)
    if not overlaps_reservation(site, tally, first, begin_s, end_s):
        return start_s
    trial.moves = first
    return -1 - (start_s + step_s if start_s == try_s else start_s)


@subroutine
def place_on_whole_nodes(
    site: SchedulingState,
    owners: JobOwnerColumns,
    tally: BackfillPassState,
    slot: int,
    from_s: int,
) -> int:
    """Return the planned start of a job on whole nodes, recorded as moves, or NEVER.

    Slurm tries a job at `from_s`, and again at each time at which reserved nodes are released. Two bounds are used
    to skip tries that fail:

    - the known earliest start of a job whose demands are no greater,
    - the job's own earliest start, computed after `TRIES_BEFORE_SEARCH` tries. It is also computed if a try leads to
      the next multiple of the resolution, because reserved nodes may be released earlier.
    """
    rules, lasts_s, node_set = tally.rules, site.jobs.estimate_s[slot], owners.node_set[slot]
    try_s = last_backfill_try_before(site, tally, node_set, from_s, known_start_lower_bound(site, slot))
    tries, known = 0, False
    while try_s <= tally.end_s:
        made_s = try_s
        start_s = try_whole_nodes(
            site, tally, slot, try_s, next_backfill_try_s(site, tally, node_set, try_s, try_s + lasts_s)
        )
        if start_s >= 0:
            return start_s
        try_s, tries = -1 - start_s, tries + 1
        if not known and (tries == TRIES_BEFORE_SEARCH or try_s == made_s + rules.bf_resolution_s):
            known, earliest_s = True, earliest_reservation_unranked(site, slot, from_s)
            if earliest_s > site.now_s + rules.bf_window_s:
                return NEVER
            later_s = last_backfill_try_before(site, tally, node_set, made_s, earliest_s)
            try_s = later_s if later_s > made_s else try_s
    return NEVER


@subroutine
def place_on_node_parts(site: SchedulingState, rules: SlurmSchedulerRules, slot: int, from_s: int) -> int:
    """Return a job's planned start on parts of nodes, which is its earliest start."""
    start_s = earliest_reservation(site, slot, from_s)
    if start_s < NEVER:
        select_nodes(site, slot, rules.bf_busy_nodes == 1)
    return start_s


@subroutine
def reserve_nodes(site: SchedulingState, tally: BackfillPassState, position: int, start_s: int, first: int) -> None:
    """Reserve nodes for a job that is planned to start at `start_s`.

    Reserve the nodes in the moves from index `first` onward. The reservation begins and ends at multiples of the
    resolution, and is at least one resolution long. A reservation of whole nodes ends no later than the last multiple
    in the window, the end of Slurm's table of times (`_add_reservation`). A reservation of parts begins at `start_s`,
    because the parts may be in use before that time.
    """
    trial, jobs, slot, rules = site.trial, site.jobs, site.queue[position], tally.rules
    step_s = rules.bf_resolution_s
    begin_s = max(round_down(start_s, step_s), tally.begin_s)
    end_s = max(round_down(start_s + jobs.estimate_s[slot] + step_s - 1, step_s), begin_s + step_s)
    record_reservation_boundary(tally, begin_s)
    record_reservation_boundary(tally, end_s)
    if rules.whole_nodes:
        end_s = min(end_s, tally.end_s)
        if begin_s >= end_s:
            trial.moves = first
    for m in range(first, trial.moves):
        if rules.whole_nodes:
            groups, g = trial.groups, trial.moved[m]
            first_step, steps = groups.first[g], groups.length[g]
            if is_reserved(groups.free, find_profile_step(groups.at, first_step, steps, begin_s - 1)):
                count_released_nodes(tally, begin_s, -trial.moved_count[m])
            if not is_reserved(groups.free, find_profile_step(groups.at, first_step, steps, end_s)):
                count_released_nodes(tally, end_s, trial.moved_count[m])
            apply_scaled_node_move(site, m, slot, begin_s, end_s, 1, WITHHELD_FACTOR)
        else:
            apply_scaled_node_move(site, m, slot, start_s, end_s, jobs.sharing[slot] & EXCLUSIVE, 1)
    site.draft.plan_s[position] = start_s
    trial.reserved += 1


@subroutine
def record_reserved_classes(trial: PlanWorkspace, tally: BackfillPassState) -> None:
    """Resize the columns of the classes, and record when each new class is reserved."""
    if trial.lasting and trial.groups.count > trial.crowd:
        tally.noted = 0
    resize_class_columns(trial)
    groups, noted = trial.groups, tally.noted
    at, free, first, length = groups.at, groups.free, groups.first, groups.length
    tally.kept_from = resize_column(tally.kept_from, noted, groups.count)
    tally.kept_until = resize_column(tally.kept_until, noted, groups.count)
    tally.keeping = tally.keeping if noted else 0
    tally.keeps = resize_column(tally.keeps, tally.keeping, groups.count)
    kept_from, kept_until = tally.kept_from, tally.kept_until
    for g in range(noted, groups.count):
        kept_from[g], kept_until[g] = NEVER, OPEN_ENDED
        for step in range(first[g], first[g] + length[g]):
            if is_reserved(free, step):
                kept_from[g] = min(kept_from[g], at[step])
                kept_until[g] = at[step + 1] if step + 1 < first[g] + length[g] else NEVER
        if kept_from[g] < NEVER:
            tally.keeps[tally.keeping] = g
            tally.keeping += 1
    tally.noted = groups.count


# ---------------------------------------------------------------------------------------------- backfill


@subroutine
def run_backfill_pass(
    site: SchedulingState,
    owners: JobOwnerColumns,
    passes: SchedulingPassState,
    order: FixedColumn,
) -> None:
    """In queue order, start each job that delays no reservation, or reserve its nodes.

    If `passes.backfill` is 0, start no jobs, and plan starts at or after `passes.next_s`.
    """
    queue, trial, now_s = site.queue, site.trial, site.now_s
    trial.hopeless = trial.slotted = 0
    tally, rules = passes.tally, passes.tally.rules
    reset_backfill_pass(site, owners, tally)
    tested = jobs_to_test(site, owners, passes, order)
    i, last = -1, len(tested) - 1
    while i < last:
        i += 1
        position = tested[i]
        slot = queue[position]
        partition = owners.partition[slot]
        record_reserved_classes(trial, tally)

        # Start the job now if it fits without delaying a reservation.
        if passes.backfill and can_start_until(
            site, slot, now_s + site.jobs.estimate_s[slot] + WHOLE_NODE_GAP_S * rules.whole_nodes
        ):
            place_job(site, position, now_s, False)
            passes.backfilled += 1
            if passes.backfilled >= rules.bf_max_job_start:
                passes.backfill_cut = 1
                break
            continue

        # Reserve nodes unless age, priority, the partition's limit on reservations, or the window excludes the job.
        if not blocks_later_jobs(site, rules, slot) or tally.reserved[partition] >= rules.bf_job_part_count_reserve:
            continue
        from_s, first = now_s if passes.backfill else passes.next_s, trial.moves
        if rules.whole_nodes:
            start_s = place_on_whole_nodes(site, owners, tally, slot, from_s)
        else:
            start_s = place_on_node_parts(site, rules, slot, from_s)
        if start_s > now_s + rules.bf_window_s:
            trial.moves = first
            continue
        if tally.records >= rules.bf_node_space_size:
            passes.backfill_cut = 1
            break
        reserve_nodes(site, tally, position, start_s, first)
        tally.reserved[partition] += 1

        # If only starts are needed, the pass ends with the last job that might start.
        if not passes.whole:
            record_reserved_classes(trial, tally)
            last = last_startable_on_nodes(site, tested, i + 1, last, True)


@kernel
def plan_as_slurm(
    site: SchedulingState,
    owners: JobOwnerColumns,
    passes: SchedulingPassState,
    given: FixedColumn,
) -> int:
    """Run the due passes, the main loop first. Return how many jobs start now.

    `given` contains queue positions in the order of the jobs. If it is empty, jobs are ordered by priority.

    Write starts and planned starts to `site.draft`, and other results to `passes`. Rebuild stale classes.
    """
    draft = site.draft
    init_plan_result(draft, site.queued)
    draft.offsets[0] = 0
    begin_plan_on_classes(site, NEVER)
    passes.main_cut = passes.backfill_cut = passes.backfilled = 0
    order = given.copy() if len(given) else sorted_queue_positions(PRIORITY, site)
    if passes.main != NO_PASS:
        run_main_scheduler(site, owners, passes, order)
    if passes.backfill or passes.whole:
        run_backfill_pass(site, owners, passes, order)
    write_starts(site)
    return draft.started
