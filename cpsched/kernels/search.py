"""The door of `lookahead`: candidate orders of the queue, a local search on the best of them, and its plan."""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.handles import Column, FixedColumn, FixedReals, Reals
from cpsched.kernels.costs import priced, weigh
from cpsched.kernels.decode_nodes import carry_out_placed, decode_placed, mark, take_back
from cpsched.kernels.decode_pool import carry_out_counted, decode_counted
from cpsched.kernels.fit import asks_more_than
from cpsched.kernels.groups import mixed
from cpsched.kernels.moves import move
from cpsched.kernels.nodes import commit, make_room_by_group, open_trial, starts_now
from cpsched.kernels.orders import LAF, SAF, SJF, SPF, bits_of, order_of, sorted_positions
from cpsched.kernels.pool import amount_of, fill_held, free_in_pool, open_draft, place_starts, profile_of, start_now
from cpsched.kernels.ranges import write_starts
from cpsched.kernels.search_state import OUT, POOL_JOBS, Price, Search, accept, make_room_for, make_rows
from cpsched.kernels.state import Site, grow
from cpsched.kernels.totals import open_totals
from cpsched.model import NEVER, IntArray

LAST, FIRST_COME, SHORTEST_JOB, SMALLEST_AREA, SHORTEST_SMALL, LARGEST_AREA, SMITH = range(7)
"""Candidate orders.

- `LAST`: the order of the last round, with new jobs at its end.
- `FIRST_COME`, `SHORTEST_JOB`, `SMALLEST_AREA`, `SHORTEST_SMALL`, `LARGEST_AREA`: reg, sjf, saf, spf and laf.
- `SMITH`: by the price of a second over area, largest first (Smith 1956).
"""

NONE_START, ALL_START, SEARCHED = range(3)
"""How a round was decided: no job can start, all jobs start, or a search."""


@subroutine
def arrange(site: Site, search: Search, found: Column) -> None:
    """Make `found` (queue positions) the order on trial: overdue jobs first, jobs that can never run left out."""
    submit_s, amount, trial, k = site.jobs.submit_s, search.queued.amount, search.trial.order, 0
    overdue_s = site.now_s - search.settings.overdue_s
    for i in range(search.overdue):
        trial[i] = search.best.order[i]
        k += 1
    for i in range(site.queued):
        position = found[i]
        if amount[position] != NEVER and submit_s[site.queue[position]] >= overdue_s:
            trial[k] = position
            k += 1


@subroutine
def fix_overdue(site: Site, search: Search) -> None:
    """Put the overdue jobs at the front of the best order, in order of arrival, and fix them there."""
    overdue_s, k = site.now_s - search.settings.overdue_s, 0
    for position in range(site.queued):
        if search.queued.amount[position] != NEVER and site.jobs.submit_s[site.queue[position]] < overdue_s:
            search.best.order[k] = position
            k += 1
    search.overdue = k
    search.fixed = min(k, search.head)


@subroutine
def last_order(site: Site, search: Search, found: Column) -> None:
    """Write the order of the last round into `found`, with new jobs at its end."""
    n, queue, where, slots, k = site.queued, site.queue, search.last.where, search.last.slots, 0
    for i in range(n):
        where[queue[i]] = i + 1
    for i in range(search.last.ordered):
        if where[slots[i]] > 0:
            found[k] = where[slots[i]] - 1
            k += 1
            where[slots[i]] = 0
    for i in range(n):
        if where[queue[i]] > 0:
            found[k] = i
            k += 1
            where[queue[i]] = 0


@subroutine
def candidate(site: Site, search: Search, which: int) -> None:
    """Make candidate order `which` the order on trial."""
    found = np.arange(site.queued)
    if which == LAST:
        last_order(site, search, found)
    elif which == SMITH:
        price = np.empty(site.queued)
        for i in range(site.queued):
            area = max(1, site.jobs.units[site.queue[i]] * site.jobs.per_unit[site.queue[i], 0])
            price[i] = search.queued.weight[i] / (area * max(search.queued.expected[i], 1.0))
        dearest = bits_of(price)
        for i in range(site.queued):
            dearest[i] = -dearest[i]
        found = order_of(dearest, found)
    elif which == SHORTEST_JOB:
        found = sorted_positions(SJF, site)
    elif which == SMALLEST_AREA:
        found = sorted_positions(SAF, site)
    elif which == SHORTEST_SMALL:
        found = sorted_positions(SPF, site)
    elif which == LARGEST_AREA:
        found = sorted_positions(LAF, site)
    arrange(site, search, found)
    search.shared.upto = search.head


@subroutine
def tail_cost(site: Site, search: Search, order: Column) -> float:
    """What the jobs behind the head would cost if they ran one after the other on the whole machine."""
    jobs, queue, pool = site.jobs, site.queue, float(max(1, site.machine.pool))
    delay_s, cost = 0.0, 0.0
    if search.head == search.able:
        return 0.0
    for k in range(search.able):
        slot = queue[order[k]]
        if k >= search.head:
            cost += search.queued.weight[order[k]] * delay_s
        delay_s += jobs.units[slot] * jobs.per_unit[slot, 0] * jobs.estimate_s[slot] / pool
    return float(cost)


@subroutine
def decode(site: Site, search: Search, objective: Price, first: int, limit: float, counted: bool) -> float:
    """Plan the order on trial and return its cost, on a pool (`counted`) or on nodes. See `decode_counted`."""
    search.counts.decoded += 1
    if counted:
        return decode_counted(site, search, objective, first, limit)
    return decode_placed(site, search, objective, first, limit)


@subroutine
def longest_wait(site: Site, search: Search) -> int:
    """The longest wait of a job in the plan on trial, past and planned, in seconds."""
    submit_s, longest_s = site.jobs.submit_s, 0
    for k in range(search.head):
        if search.trial.starts[k] != NEVER:
            longest_s = max(longest_s, search.trial.starts[k] - submit_s[site.queue[search.trial.order[k]]])
    return int(longest_s)


@subroutine
def is_tried(search: Search, which: int) -> bool:
    """Whether candidate order `which` is to be tried."""
    return bool((search.settings.candidates >> which) & 1)


@subroutine
def is_spent(search: Search, counted: bool) -> bool:
    """Whether this round has placed as many jobs as `Settings.work` allows."""
    return bool(search.counts.placed >= (POOL_JOBS * search.settings.work if counted else search.settings.work))


@subroutine
def accept_whole(search: Search) -> None:
    """Make the order on trial the best one, with the jobs behind its head."""
    accept(search, 0)
    for k in range(search.head, search.able):
        search.best.order[k] = search.trial.order[k]


@subroutine
def bounding_candidates(site: Site, search: Search, objective: Price, counted: bool) -> tuple[float, float]:
    """Plan the last order and that of arrival, take the shorter of their longest waits as the bound, keep the cheaper.

    Returns the cost of the cheaper order, and the cost of its head alone. Each order is decoded once, because only
    prices depend on the bound.
    """
    best, head_cost, bound_s = OUT, OUT, NEVER
    for which in (LAST, FIRST_COME):
        if is_tried(search, which):
            candidate(site, search, which)
            decode(site, search, objective, 0, OUT, counted)
            bound_s = min(bound_s, longest_wait(site, search))
            if which == LAST:
                accept_whole(search)
    search.bound_s = bound_s
    if is_tried(search, LAST):
        cost = priced(site, search, objective, search.best.order, search.best.starts, search.best.spent, 0, 0.0)
        behind = tail_cost(site, search, search.best.order)
        if cost + behind < best:
            best, head_cost = cost + behind, cost
    if is_tried(search, FIRST_COME) and head_cost > 0.0:
        cost = priced(site, search, objective, search.trial.order, search.trial.starts, search.trial.spent, 0, 0.0)
        behind = tail_cost(site, search, search.trial.order)
        if cost + behind < best:
            best, head_cost = cost + behind, cost
            accept_whole(search)
    return float(best), float(head_cost)


@subroutine
def best_candidate(site: Site, search: Search, objective: Price, counted: bool) -> float:
    """Make the cheapest candidate the best order; returns the cost of its head."""
    best, head_cost, others = OUT, OUT, LAST
    if objective.bounded:
        best, head_cost = bounding_candidates(site, search, objective, counted)
        others = SHORTEST_JOB
    for which in range(others, SMITH + 1):
        if head_cost == 0.0 or (head_cost < OUT and is_spent(search, counted)):
            break
        if not is_tried(search, which):
            continue
        candidate(site, search, which)
        behind = tail_cost(site, search, search.trial.order)
        cost = decode(site, search, objective, 0, best - behind, counted)
        if cost + behind < best:
            best, head_cost = cost + behind, cost
            accept_whole(search)
    return float(head_cost)


@subroutine
def improve(site: Site, search: Search, objective: Price, best: float, counted: bool) -> float:
    """Hill climbing: change the best order at random, and keep a change that costs no more. Returns the head's cost."""
    if search.head - search.fixed < 2:
        return best
    for _ in range(search.settings.limit):
        if best == 0.0 or is_spent(search, counted):
            break
        first = move(search)
        cost = decode(site, search, objective, first, best, counted)
        if cost <= best:
            best = cost
            accept(search, first)
    return best


@subroutine
def open_search(site: Site, search: Search, objective: Price, site_weight: FixedReals, counted: bool) -> None:
    """Begin a round: weigh the jobs, and find those that can run at all."""
    n = site.queued
    make_room_for(search, n, len(site.jobs.units), site.machine.free.shape[1])
    weigh(site, search, objective, site_weight)
    search.counts.drawn = mixed(search.settings.seed) + mixed(site.now_s)
    search.counts.decoded = search.counts.placed = search.able = search.shared.valid = 0
    search.bound_s, search.best.known[0] = NEVER, 0
    search.best.spent[0] = 0.0
    eventually = 0
    if counted:
        eventually = fill_held(site) + free_in_pool(site)
    for i in range(n):
        search.queued.amount[i] = amount_of(site, site.queue[i]) if counted else 1
        if counted and search.queued.amount[i] > eventually:
            search.queued.amount[i] = NEVER
        search.able += search.queued.amount[i] != NEVER
    search.head = min(search.able, search.settings.horizon)
    fix_overdue(site, search)


@subroutine
def certain_counted(site: Site, search: Search) -> int:
    """On a pool: `ALL_START` or `NONE_START` where no order could change the answer, otherwise `SEARCHED`."""
    available, wanted, least = free_in_pool(site), 0, NEVER
    for i in range(site.queued):
        if search.queued.amount[i] != NEVER:
            wanted += search.queued.amount[i]
            least = min(least, search.queued.amount[i])
    if wanted <= available:
        return ALL_START
    return NONE_START if least > available else SEARCHED


@subroutine
def certain_placed(site: Site, search: Search) -> int:
    """On nodes: the same answers. Where the answer is `ALL_START`, the jobs are placed."""
    none = True
    for i in range(site.queued):
        make_room_by_group(site.trial)
        if starts_now(site, site.queue[i]):
            none = False
            break
    site.trial.hopeless = 0
    if none:
        return NONE_START
    for i in range(site.queued):
        make_room_by_group(site.trial)
        if asks_more_than(site.jobs, site.queue[i], site.trial.available) or not starts_now(site, site.queue[i]):
            return SEARCHED
        commit(site, i, site.now_s, False)
    return ALL_START


@subroutine
def remember(site: Site, search: Search) -> None:
    """Keep the best order for the next round, as slots."""
    grow(search.last, "slots", 0, search.able)
    for k in range(search.able):
        search.last.slots[k] = site.queue[search.best.order[k]]
    search.last.ordered = search.able


@subroutine
def carry_out(site: Site, search: Search, whole: bool, counted: bool) -> None:
    """Write the plan of the best order into the draft. See `carry_out_counted`."""
    if counted:
        carry_out_counted(site, search, whole)
    else:
        carry_out_placed(site, search, whole)


@subroutine
def plan_all(site: Site, search: Search, objective: Price, answer: int, whole: bool, counted: bool) -> None:
    """Find an order and carry it out. Where nothing can start, it is the last order, planned only if `whole`."""
    if answer == SEARCHED:
        improve(site, search, objective, best_candidate(site, search, objective, counted), counted)
        carry_out(site, search, whole, counted)
        return
    candidate(site, search, LAST)
    for k in range(search.able):
        search.best.order[k] = search.trial.order[k]
    if whole:
        decode(site, search, objective, 0, OUT, counted)
        accept(search, 0)
        carry_out(site, search, whole, counted)


@subroutine
def search_counted(site: Site, search: Search, objective: Price, whole: bool) -> int:
    """Decide a round on a pool; returns how it was decided."""
    answer = certain_counted(site, search)
    if answer == ALL_START:
        for i in range(site.queued):
            if search.queued.amount[i] != NEVER:
                start_now(site, i, search.queued.amount[i])
        return answer
    make_rows(search, site.active + 2 * search.able + 4)
    search.rows.points[0] = profile_of(site, free_in_pool(site), search.rows.times[0], search.rows.level[0])
    plan_all(site, search, objective, answer, whole, True)
    return answer


@subroutine
def search_placed(site: Site, search: Search, objective: Price, whole: bool) -> int:
    """Decide a round on nodes; returns how it was decided."""
    open_trial(site, 2)
    site.trial.lasting = 0
    mark(site, search, 0)
    answer = certain_placed(site, search)
    if answer != ALL_START:
        if answer == SEARCHED or whole:
            take_back(site, search, 0)
            open_totals(site, search)
        plan_all(site, search, objective, answer, whole, False)
    write_starts(site)
    return answer


Asked = tuple[Reals, FixedReals, bool, bool]
"""What `look_ahead` is asked, in this order:

- by queue position, the expected run time in seconds;
- by queue position, the site's factor on the job's weight; empty where all jobs weigh alike;
- whether the cluster is a counted pool;
- whether the whole plan is wanted, or its starts alone.
"""


@kernel
def look_ahead(site: Site, search: Search, objective: Price, asked: Asked) -> int:
    """Plan the queue into `site.draft`; returns `NONE_START`, `ALL_START` or `SEARCHED`.

    The order found is kept in `search` for the next round.
    """
    expected, site_weight, counted, whole = asked
    search.queued.expected = expected
    open_draft(site.draft, site.queued)
    site.draft.offsets[0] = 0
    open_search(site, search, objective, site_weight, counted)
    if counted:
        answer = search_counted(site, search, objective, whole)
        place_starts(site)
    else:
        answer = search_placed(site, search, objective, whole)
    if answer == ALL_START:
        search.last.ordered = 0
    else:
        remember(site, search)
    return answer


@kernel
def ordered(search: Search) -> IntArray:
    """The order from which the next round goes on, as slots."""
    return search.last.slots[: search.last.ordered].copy()


@kernel
def go_on_from(search: Search, slots: FixedColumn) -> int:
    """Set the order from which the next round goes on, as slots; returns their number."""
    search.last.slots = slots.copy()
    search.last.ordered = len(slots)
    return search.last.ordered
