"""List schedulers on nodes: the rules of `pool_list_scheduling` on node classes.

EASY makes one reservation. The first job that cannot start reserves its earliest start, which `earliest_reservation`
finds with `node_class_availability.earliest_start` (EASY's shadow time). Later jobs start if they do not
delay this start.
"""

from __future__ import annotations

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn
from cpsched.kernels.fit_rules import exceeds_free
from cpsched.kernels.fragmentation import set_ranks_least_stranded
from cpsched.kernels.node_class_availability import (
    count_units_fitting_during,
    earliest_start,
    fits_during,
    set_ranks_fullest_first,
    set_ranks_latest_freed_first,
)
from cpsched.kernels.node_class_moves import amount_taken_by_node_moves, apply_node_move, write_starts
from cpsched.kernels.node_classes import OPEN_ENDED, build_node_classes, copy_classes_for_plan, drop_empty_classes
from cpsched.kernels.node_layout import lay_out_classes
from cpsched.kernels.node_selection import select_nodes
from cpsched.kernels.pool_list_scheduling import CHECK_INTERVAL_JOBS, MIN_PLANNED_JOBS, init_plan_result
from cpsched.kernels.queue_orders import (
    ARRIVAL,
    BEST_FIT,
    GREEDY,
    STRICT,
    queue_position_at,
    queue_positions,
    sorted_queue_positions,
)
from cpsched.kernels.scheduling_state import (
    WHOLE_QUEUE,
    ListSchedulerParameters,
    PlanWorkspace,
    SchedulingState,
    grow_columns,
)
from cpsched.model import NEVER
from cpsched.model.blocks import TOPOLOGY

MAX_FAILED_JOBS = 16
"""Number of failed jobs to cache. Jobs that demand at least as much as one of them are skipped."""

MAX_EMPTY_CLASSES = 256
"""Number of empty classes to retain. Dropping them takes longer than skipping them."""

MAX_REMEMBERED_RESERVATIONS = 64
"""Number of reservations to cache as lower bounds for jobs that demand at least as much."""


@subroutine
def begin_plan_on_classes(site: SchedulingState, reservations: int) -> None:
    """Begin a plan on the carried classes, after rebuilding them if they are stale."""
    trial, machine = site.trial, site.machine
    groups = trial.groups
    if site.groups.stale:
        build_node_classes(groups, machine, site.jobs, site.running[: 0 if reservations == GREEDY else site.active])
    else:
        copy_classes_for_plan(groups, site.groups)
    lay_out_classes(trial)
    trial.reserved = trial.hopeless = trial.slotted = trial.moves = 0
    trial.lasting, trial.crowd = 1, 2 * groups.count + MAX_EMPTY_CLASSES
    grow_columns(trial, "failed", 0, MAX_FAILED_JOBS)
    grow_columns(trial, "slotted_job slotted_s", 0, MAX_REMEMBERED_RESERVATIONS)

    # The free amounts of all nodes, and the largest capacity of a node.
    available, most = trial.available, trial.most
    size, kind, first, free = groups.size, groups.kind, groups.first, groups.free
    capacity, kind_node = machine.capacity, machine.kind_node
    for r in range(len(available)):
        available[r] = most[r] = 0
    for g in range(groups.count):
        node = kind_node[kind[g]]
        for r in range(len(available)):
            available[r] += size[g] * free[first[g], r]
            most[r] = max(most[r], capacity[node, r])


@subroutine
def demands_at_least(site: SchedulingState, slot: int, other: int) -> bool:
    """Return whether a job demands at least the amounts, nodes and time of `other`.

    If they must fill blocks, only equal numbers of nodes compare: 5 nodes in two blocks may fit where 4 in one do not.
    """
    jobs, has_blocks = site.jobs, site.machine.block_rules[site.jobs.node_set[slot], TOPOLOGY] >= 0
    per_unit = jobs.per_unit
    less = (
        jobs.units[slot] < jobs.units[other]
        or jobs.estimate_s[slot] < jobs.estimate_s[other]
        or jobs.sharing[slot] != jobs.sharing[other]
        or jobs.node_set[slot] != jobs.node_set[other]
        or (has_blocks and jobs.units[slot] != jobs.units[other])
    )
    for r in range(per_unit.shape[1]):
        less = less or per_unit[slot, r] < per_unit[other, r]
    return not less


@subroutine
def is_dominated(site: SchedulingState, slot: int, failed: FixedColumn, count: int) -> bool:
    """Return whether a job demands at least as much as one of `failed[:count]`."""
    for i in range(count):  # noqa: SIM110  (a loop compiles to better code than a generator)
        if demands_at_least(site, slot, failed[i]):
            return True
    return False


@subroutine
def known_start_lower_bound(site: SchedulingState, slot: int) -> int:
    """Return a lower bound on a job's start, from the cached reservations."""
    trial, found = site.trial, site.now_s
    for i in range(trial.slotted):
        if trial.slotted_s[i] > found and demands_at_least(site, slot, trial.slotted_job[i]):
            found = trial.slotted_s[i]
    return int(found)


@subroutine
def remember_reservation(site: SchedulingState, slot: int, start_s: int) -> None:
    """Cache a reservation. If placements are final, replace one with equal demand."""
    trial = site.trial
    if trial.lasting:
        for i in range(trial.slotted):
            other = trial.slotted_job[i]
            if demands_at_least(site, slot, other) and demands_at_least(site, other, slot):
                trial.slotted_s[i] = max(start_s, trial.slotted_s[i])
                return
    if trial.slotted < MAX_REMEMBERED_RESERVATIONS:
        trial.slotted_job[trial.slotted], trial.slotted_s[trial.slotted] = slot, start_s
        trial.slotted += 1


@subroutine
def can_start_now(site: SchedulingState, slot: int) -> bool:
    """Return whether a job can start now, given all planned jobs.

    If so, `trial.found` contains the number of units on one node in each class.
    """
    return can_start_until(site, slot, site.now_s + site.jobs.estimate_s[slot])


@subroutine
def can_start_until(site: SchedulingState, slot: int, end_s: int) -> bool:
    """Return whether a job can start now and occupy its nodes until `end_s`."""
    trial, jobs = site.trial, site.jobs
    if exceeds_free(jobs, slot, trial.available) or is_dominated(site, slot, trial.failed, trial.hopeless):
        return False
    if fits_during(site, slot, site.now_s, end_s):
        return True
    if trial.hopeless < MAX_FAILED_JOBS:
        trial.failed[trial.hopeless] = slot
        trial.hopeless += 1
    return False


@subroutine
def earliest_reservation(site: SchedulingState, slot: int, from_s: int) -> int:
    """Return a job's earliest start given all planned jobs, or NEVER.

    The job must not be able to start now or before `from_s`. Set `trial.found` and `trial.rank` for the result. Nodes
    that become free last have the highest rank. Nodes that are free now thus remain free for other jobs.
    """
    start_s = earliest_reservation_unranked(site, slot, from_s)
    if start_s < NEVER:
        set_ranks_latest_freed_first(site, slot, start_s)
    return start_s


@subroutine
def earliest_reservation_unranked(site: SchedulingState, slot: int, from_s: int) -> int:
    """Return the result of `earliest_reservation` without setting the ranks."""
    start_s, duration_s = max(from_s, known_start_lower_bound(site, slot)), site.jobs.estimate_s[slot]
    if start_s == site.now_s or not fits_during(site, slot, start_s, start_s + duration_s):
        start_s = earliest_start(site, slot, start_s + 1)
        if start_s == NEVER:
            return NEVER
        count_units_fitting_during(site, slot, start_s, start_s + duration_s)
    remember_reservation(site, slot, start_s)
    return int(start_s)


@subroutine
def place_job(site: SchedulingState, position: int, start_s: int, ranked: bool) -> None:
    """Place a job from `start_s`, and record its start.

    If `ranked`, select the nodes with the highest `trial.rank`, otherwise those with the lowest index. Each node
    holds `trial.found` units.
    """
    trial, draft, jobs, slot = site.trial, site.draft, site.jobs, site.queue[position]
    first = trial.moves
    select_nodes(site, slot, ranked)
    from_s, end_s = OPEN_ENDED if start_s == site.now_s else start_s, start_s + jobs.estimate_s[slot]
    for m in range(first, trial.moves):
        apply_node_move(site, m, slot, from_s, end_s)
    draft.plan_s[position] = start_s

    # A job that starts now is added to the plan result, and reduces the available amounts.
    if start_s > site.now_s:
        trial.reserved += 1
        return
    started = draft.started
    grow_columns(trial, "start_first start_last", started, started + 1)
    draft.slots[started], trial.start_first[started], trial.start_last[started] = slot, first, trial.moves
    draft.started = started + 1
    for r in range(len(trial.available)):
        trial.available[r] -= amount_taken_by_node_moves(site, first, slot, r)


@subroutine
def start_job(site: SchedulingState, position: int) -> None:
    """Place a job that starts now, if possible where fewest GPUs become stranded.

    Each node holds `trial.found` units.
    """
    place_job(site, position, site.now_s, set_ranks_least_stranded(site, site.queue[position]))


@subroutine
def last_startable_on_nodes(site: SchedulingState, sequence: FixedColumn, i: int, last: int, look: bool) -> int:
    """Return the last index from `i` to `last` whose job might start now, or i - 1.

    Check the sums and the cached failures and, if `look`, also the nodes.
    """
    trial, jobs, queue, now_s = site.trial, site.jobs, site.queue, site.now_s
    while last >= i:
        slot = queue[queue_position_at(sequence, last)]
        hopeless = exceeds_free(jobs, slot, trial.available) or is_dominated(site, slot, trial.failed, trial.hopeless)
        end_s = now_s + jobs.estimate_s[slot]
        if not hopeless and (not look or fits_during(site, slot, now_s, end_s)):
            break
        last -= 1
    return last


@subroutine
def resize_class_columns(trial: PlanWorkspace) -> None:
    """Resize `found` and `rank` to the class count. Drop empty classes if too many."""
    if trial.lasting and trial.groups.count > trial.crowd:
        drop_empty_classes(trial.groups)
        trial.crowd = 2 * trial.groups.count + MAX_EMPTY_CLASSES
    if len(trial.found) < len(trial.groups.kind):
        grow_columns(trial, "found rank", 0, len(trial.groups.kind))


@kernel
def plan_on_nodes(site: SchedulingState, method: ListSchedulerParameters, given: FixedColumn) -> int:
    """Write the queue's plan on nodes to `site.draft`. Return how many jobs start now.

    Jobs are processed in the method's order, or for `GIVEN` in the order of `given` (queue positions).

    - A job that fits starts.
    - The first `method.reservations` jobs that do not fit reserve their earliest start.
    - Later jobs start if and only if they fit together with the reservations.
    - A job that does not fit even after all jobs have ended is skipped.

    Once no further job can start, planning stops immediately if only starts are needed, and after `MIN_PLANNED_JOBS`
    reservations for a whole plan. With `WHOLE_QUEUE`, it continues to the end of the queue. Stale classes are rebuilt.
    """
    draft, trial, queue = site.draft, site.trial, site.queue
    n, reservations, best_fit = site.queued, method.reservations, method.allocation == BEST_FIT
    init_plan_result(draft, n)
    draft.offsets[0] = 0
    begin_plan_on_classes(site, reservations)
    sequence, i, last = queue_positions(method, given, site), 0, n - 1
    while i <= last:
        position = queue_position_at(sequence, i)
        i += 1
        if draft.plan_s[position] != NEVER:
            continue
        slot, start_s = queue[position], NEVER
        resize_class_columns(trial)

        # Start the job now, reserve for it, skip it, or stop.
        if can_start_now(site, slot):
            start_s = site.now_s
            if best_fit:
                set_ranks_fullest_first(site)
        elif reservations == STRICT:
            if fits_during(site, slot, NEVER - 1, NEVER):
                break
        elif trial.reserved < reservations:
            start_s = earliest_reservation(site, slot, site.now_s)
        if start_s == NEVER:
            continue
        if start_s > site.now_s or best_fit:
            place_job(site, position, start_s, True)
        else:
            start_job(site, position)

        # After a single reservation, the other jobs may follow a different order.
        if start_s > site.now_s and trial.reserved == 1 and reservations == 1 and method.backfill != ARRIVAL:
            sequence, i = sorted_queue_positions(method.backfill, site), 0

        # If only starts are needed, the plan ends with the last job that might start.
        if trial.reserved > 0 and not method.whole:
            resize_class_columns(trial)
            last = last_startable_on_nodes(site, sequence, i, last, reservations > 1)
        elif (
            method.whole != WHOLE_QUEUE
            and trial.reserved >= MIN_PLANNED_JOBS
            and trial.reserved % CHECK_INTERVAL_JOBS == 0
        ):
            resize_class_columns(trial)
            if last_startable_on_nodes(site, sequence, i, last, True) < i:
                break
    write_starts(site)
    return draft.started


@kernel
def earliest_start_of_extra_job(site: SchedulingState, slot: int) -> int:
    """Return the earliest start of a job outside the queue, or NEVER.

    The job is in the table, and `plan_on_nodes` has made the plan. The job is neither placed nor cached, so its
    slot can be reused.
    """
    trial = site.trial
    hopeless, slotted = trial.hopeless, trial.slotted
    resize_class_columns(trial)
    start_s = site.now_s if can_start_now(site, slot) else earliest_reservation_unranked(site, slot, site.now_s)
    trial.hopeless, trial.slotted = hopeless, slotted
    return start_s
