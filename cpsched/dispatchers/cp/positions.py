"""Compiled loops of the constraint-programming dispatchers: who could start now, and the dive of the paper's search.

Names: N nodes, R resources, J considered jobs in priority order, P *parts*. A part is one box of the position model:
one unit of a job or, for a job that wants whole nodes, one node with all of its units there. Positions are local to
their node: `y` = 0 is the node's first position of that resource.

Running jobs keep no positions of their own from call to call: at each call they are stacked from position 0, the
one that ends last at the bottom. What they leave free on a node is then one contiguous piece at every moment, so they
never refuse a unit whose amounts fit, and a job that fits now is never refused because of positions. Only jobs
planned in the same call can leave holes, and holes delay nothing but starts in the future.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpsched._jit import Column, FixedColumn, FixedFlags, FixedMatrix, Flags, Matrix, inner, kernel
from cpsched.kernels.fit import takes
from cpsched.model import DISTINCT, EXCLUSIVE, BoolArray, IntArray


class Facts(NamedTuple):
    """The columns of a snapshot, read-only, and the slots of the jobs that are considered."""

    now_s: int
    jobs: FixedColumn
    """Slots of the considered jobs, in priority order: int64[J]."""
    free: FixedMatrix
    capacity: FixedMatrix
    node_sets: FixedFlags
    estimate_s: FixedColumn
    units: FixedColumn
    per_unit: FixedMatrix
    sharing: FixedColumn
    node_set: FixedColumn
    running: FixedColumn
    end_s: FixedColumn
    place_at: FixedColumn
    place_count: FixedColumn
    place_node: FixedColumn
    place_units: FixedColumn
    walks: FixedMatrix
    """Orders in which nodes are tried, int64[W, N]: pcp20's is from the highest down."""
    walk_of: FixedColumn
    """By considered job, which of them."""


class Plan(NamedTuple):
    """Start and place of the considered jobs.

    The parts of job j are `first[j]` and the `parts[j] - 1` after it; `first` leaves room for one part per unit. Parts
    are in the order in which they were placed, which is from the highest node down.
    """

    start_s: Column
    """By job: int64[J], -1 where not planned."""
    first: Column
    """int64[J + 1]"""
    parts: Column
    """By job, how many: int64[J]."""
    node: Column
    """By part: int64[P], and so on."""
    units: Column
    y: Matrix
    """First position on the node, by part and resource: int64[P, R]."""
    dy: Matrix
    """Positions taken, by part and resource: int64[P, R]."""


class Moment(NamedTuple):
    """What a cluster looks like at one moment of a plan."""

    left: Matrix
    """Free amounts: int64[N, R]."""
    floor: Matrix
    """Height of the stack of running jobs: int64[N, R]."""
    newest: Column
    """By node: the part that was put there last, -1 if there is none."""
    older: Column
    """By part: the part that was put on its node before it."""


PLENTY = 1 << 62
"""A moment after all others; more units than any node takes."""
_SHAPES = 64
"""Distinct requests remembered while the queue is read; further ones are counted anew."""


@inner
def taken_on(facts: Facts, slot: int, node: int, units: int, r: int) -> int:
    """What `units` units of the request of `slot` take of resource `r` of a node."""
    return takes(units, facts.per_unit[slot, r], facts.sharing[slot] & EXCLUSIVE, facts.capacity[node, r])


@inner
def units_held(facts: Facts, slot: int, amounts: IntArray, row: int) -> int:
    """How many units of the request of `slot` the amounts of one row hold, sharing rules and node sets left aside."""
    count = PLENTY
    for r in range(amounts.shape[1]):
        if facts.per_unit[slot, r] > 0:
            count = min(count, max(amounts[row, r], 0) // facts.per_unit[slot, r])
    return count


@inner
def untouched(facts: Facts, left: IntArray, node: int) -> bool:
    """Whether nothing of `node` is in use where the amounts `left` are free."""
    for r in range(left.shape[1]):  # noqa: SIM110 - a loop compiles, a generator does not
        if left[node, r] != facts.capacity[node, r]:
            return False
    return True


@inner
def units_on(facts: Facts, left: IntArray, node: int, slot: int) -> int:
    """Units of the request of `slot` that `node` could take of the amounts `left`."""
    sharing = facts.sharing[slot]
    if not facts.node_sets[facts.node_set[slot], node] or (sharing & EXCLUSIVE and not untouched(facts, left, node)):
        return 0
    count = units_held(facts, slot, left, node)
    return min(count, 1) if sharing & DISTINCT else count


@kernel
def room_when_empty(facts: Facts, slot: int) -> IntArray:
    """How many units of the request of `slot` each node takes when nothing runs: int64[N]."""
    room = np.empty(len(facts.capacity), np.int64)
    for node in range(len(room)):
        room[node] = units_on(facts, facts.capacity, node, slot)
    return room


@inner
def same_shape(facts: Facts, a: int, b: int) -> bool:
    """Whether slots `a` and `b` want the same kind of unit on the same nodes."""
    if facts.sharing[a] != facts.sharing[b] or facts.node_set[a] != facts.node_set[b]:
        return False
    for r in range(facts.per_unit.shape[1]):  # noqa: SIM110 - a loop compiles, a generator does not
        if facts.per_unit[a, r] != facts.per_unit[b, r]:
            return False
    return True


@kernel
def startable(facts: Facts, queue: FixedColumn, most: int) -> IntArray:
    """The first `most` slots of `queue` that each could start now, were they alone (cp19 section 3)."""
    N, R = facts.free.shape

    # What all nodes together have free: most jobs of a long queue ask for more than that, and are passed over at once.
    pool = np.zeros(R, np.int64)
    for n in range(N):
        for r in range(R):
            pool[r] += max(facts.free[n, r], 0)
    shapes, rooms = np.empty(_SHAPES, np.int64), np.empty(_SHAPES, np.int64)
    known = count = 0
    found = np.empty(min(most, len(queue)), np.int64)
    for i in range(len(queue)):
        slot = queue[i]
        enough = True
        for r in range(R):
            enough &= facts.per_unit[slot, r] * facts.units[slot] <= pool[r]
        if not enough:
            continue

        # How many units of its kind the nodes hold is counted once for all jobs that want the same kind of unit.
        room = -1
        for k in range(known):
            if same_shape(facts, shapes[k], slot):
                room = rooms[k]
                break
        if room < 0:
            room = 0
            for n in range(N):
                room += units_on(facts, facts.free, n, slot)
            if known < _SHAPES:
                shapes[known], rooms[known] = slot, room
                known += 1
        if room >= facts.units[slot]:
            found[count] = slot
            count += 1
            if count == most:
                break
    return found[:count].copy()


@inner
def at_first(facts: Facts, plan: Plan) -> Moment:
    """The cluster now, nothing of the plan placed."""
    N, R = facts.free.shape
    left, floor, newest = np.empty((N, R), np.int64), np.empty((N, R), np.int64), np.empty(N, np.int64)
    for node in range(N):
        newest[node] = -1
        for r in range(R):
            left[node, r] = max(facts.free[node, r], 0)
            floor[node, r] = facts.capacity[node, r] - left[node, r]
    return Moment(left, floor, newest, np.empty(len(plan.node), np.int64))


@inner
def end_running(facts: Facts, moment: Moment, touched: BoolArray, first: int, until_s: int) -> int:
    """Give back what the running jobs from `first` on that end by `until_s` hold; returns who comes next."""
    while first < len(facts.running) and facts.end_s[facts.running[first]] <= until_s:
        slot = facts.running[first]
        first += 1
        for p in range(facts.place_at[slot], facts.place_at[slot] + facts.place_count[slot]):
            node = facts.place_node[p]
            touched[node] = True
            for r in range(moment.left.shape[1]):
                amount = taken_on(facts, slot, node, facts.place_units[p], r)
                moment.left[node, r] += amount
                moment.floor[node, r] -= amount
    return first


@kernel
def possible(facts: Facts, queue: FixedColumn) -> IntArray:
    """The slots of `queue` that each could start once all running jobs have ended; what is out of service stays out."""
    N, R = facts.free.shape
    none, touched = np.empty(0, np.int64), np.zeros(N, np.bool_)
    moment = Moment(np.maximum(facts.free, 0), np.zeros((N, R), np.int64), none, none)
    end_running(facts, moment, touched, 0, PLENTY)
    found = np.empty(len(queue), np.int64)
    count = 0
    for slot in queue:
        room = 0
        for node in range(N):
            room += min(facts.units[slot], units_on(facts, moment.left, node, slot))
            if room >= facts.units[slot]:
                found[count] = slot
                count += 1
                break
    return found[:count].copy()


@inner
def highest_gap(plan: Plan, moment: Moment, node: int, r: int, ceiling: int, dy: int) -> int:
    """The highest position from which `dy` positions of `node` below `ceiling` are free, -1 if there is none."""
    y = ceiling - dy
    moved = True
    while moved and y >= moment.floor[node, r]:
        moved = False
        part = moment.newest[node]
        while part >= 0:
            if plan.y[part, r] < y + dy and y < plan.y[part, r] + plan.dy[part, r]:
                y = plan.y[part, r] - dy
                moved = True
            part = moment.older[part]
    return y if y >= moment.floor[node, r] else -1


@inner
def put_part(facts: Facts, plan: Plan, moment: Moment, slot: int, part: int, node: int) -> bool:
    """Give `part` the highest gaps of `node`, in every resource; False if one has none."""
    for r in range(moment.left.shape[1]):
        dy = taken_on(facts, slot, node, 1, r)
        y = highest_gap(plan, moment, node, r, facts.capacity[node, r], dy) if dy > 0 else 0
        if y < 0:
            return False
        plan.y[part, r], plan.dy[part, r] = y, dy
    plan.node[part] = node
    moment.older[part] = moment.newest[node]
    moment.newest[node] = part
    return True


@inner
def put(facts: Facts, plan: Plan, moment: Moment, room_of: IntArray, j: int) -> bool:
    """Place job `j`: each part on the first node of its walk that still takes it; the paper's largest value first.

    `room_of` says how many of its units each node takes now, see `recount`. Where not all parts find room, none is
    placed. `moment.left` is not changed: see `occupy`.
    """
    slot = facts.jobs[j]
    whole = facts.sharing[slot] & EXCLUSIVE
    wanted, part = facts.units[slot], plan.first[j]
    for node in facts.walks[facts.walk_of[j]]:
        room = min(wanted, room_of[node])
        while room > 0 and put_part(facts, plan, moment, slot, part, node):
            plan.units[part] = room if whole else 1
            wanted -= plan.units[part]
            room -= plan.units[part]
            part += 1
        if wanted == 0:
            plan.parts[j] = part - plan.first[j]
            return True
    while part > plan.first[j]:
        part -= 1
        moment.newest[plan.node[part]] = moment.older[part]
    return False


@inner
def occupy(plan: Plan, moment: Moment, touched: BoolArray, j: int) -> None:
    """Take what job `j` uses from the amounts left, and note the nodes."""
    for part in range(plan.first[j], plan.first[j] + plan.parts[j]):
        touched[plan.node[part]] = True
        for r in range(moment.left.shape[1]):
            moment.left[plan.node[part], r] -= plan.dy[part, r]


@inner
def vacate(plan: Plan, moment: Moment, touched: BoolArray, j: int) -> None:
    """Undo `put` and `occupy`: job `j` ended."""
    for part in range(plan.first[j], plan.first[j] + plan.parts[j]):
        node = plan.node[part]
        touched[node] = True
        for r in range(moment.left.shape[1]):
            moment.left[node, r] += plan.dy[part, r]
        if moment.newest[node] == part:
            moment.newest[node] = moment.older[part]
            continue
        newer = moment.newest[node]
        while moment.older[newer] != part:
            newer = moment.older[newer]
        moment.older[newer] = moment.older[part]


@inner
def recount(
    facts: Facts, moment: Moment, shapes: IntArray, touched: BoolArray, room: IntArray, rooms: IntArray
) -> None:
    """Bring `room` [K, N] and its sums `rooms` [K] up to date for the nodes touched, and forget them."""
    for node in range(len(touched)):
        if not touched[node]:
            continue
        touched[node] = False
        for k in range(len(shapes)):
            units = units_on(facts, moment.left, node, shapes[k])
            rooms[k] += units - room[k, node]
            room[k, node] = units


@inner
def shapes_of(facts: Facts) -> tuple[IntArray, IntArray]:
    """The kinds of unit among the considered jobs: a slot of each kind [K], and the kind of each job [J]."""
    kind_of, shapes = np.zeros(len(facts.jobs), np.int64), np.empty(len(facts.jobs), np.int64)
    kinds = 0
    for j in range(len(facts.jobs)):
        kind_of[j] = kinds
        for k in range(kinds):
            if same_shape(facts, shapes[k], facts.jobs[j]):
                kind_of[j] = k
                break
        if kind_of[j] == kinds:
            shapes[kinds] = facts.jobs[j]
            kinds += 1
    return shapes[:kinds].copy(), kind_of


@inner
def next_end(facts: Facts, plan: Plan, present: BoolArray, next_running: int) -> int:
    """The first moment at which a running job from `next_running` on, or one of the jobs `present`, ends."""
    end_s = PLENTY
    if next_running < len(facts.running):
        end_s = facts.end_s[facts.running[next_running]]
    for j in range(len(facts.jobs)):
        if present[j]:
            end_s = min(end_s, plan.start_s[j] + facts.estimate_s[facts.jobs[j]])
    return end_s


@inner
def end_by(
    facts: Facts, plan: Plan, moment: Moment, touched: BoolArray, present: BoolArray, next_running: int, tau: int
) -> int:
    """Let all that end by `tau` end, running jobs and jobs of the plan; returns which running job comes next."""
    for j in range(len(facts.jobs)):
        if present[j] and plan.start_s[j] + facts.estimate_s[facts.jobs[j]] <= tau:
            present[j] = False
            vacate(plan, moment, touched, j)
    return end_running(facts, moment, touched, next_running, tau)


@kernel
def dive(facts: Facts, plan: Plan, order: Column, only_now: bool) -> int:
    """Fill `plan` with the first leaf of the paper's search (pcp20 section 3), without a solver.

    Of the jobs that can start first, the first in `order` (the paper: highest priority) starts at once; each of its
    units takes the highest legal positions. So no job starts before one placed earlier, and what is free when a job
    starts stays free: a sweep over the moments at which something ends does just what the dive does. `only_now` stops
    the sweep at the first moment. Returns the number of jobs that start now; jobs not planned keep start -1.
    """
    J, N = len(facts.jobs), len(facts.free)

    # For every kind of unit, how many each node holds and how many all of them do: a job that asks for more than the
    # sum is passed over without a look at the nodes. A step brings up to date only the nodes that it touched.
    shapes, kind_of = shapes_of(facts)
    moment = at_first(facts, plan)
    room, rooms = np.zeros((len(shapes), N), np.int64), np.zeros(len(shapes), np.int64)
    touched = np.ones(N, np.bool_)
    recount(facts, moment, shapes, touched, room, rooms)
    plan.start_s[:] = -1
    present = np.zeros(J, np.bool_)
    waiting, next_running, start_now = J, 0, 0
    tau = facts.now_s
    while True:
        # At this moment whoever fits starts.
        for j in order:
            if plan.start_s[j] >= 0 or rooms[kind_of[j]] < facts.units[facts.jobs[j]]:
                continue
            if put(facts, plan, moment, room[kind_of[j]], j):
                plan.start_s[j] = tau
                present[j] = True
                waiting -= 1
                occupy(plan, moment, touched, j)
                recount(facts, moment, shapes, touched, room, rooms)
        if tau == facts.now_s:
            start_now = J - waiting
        if waiting == 0 or only_now:
            return start_now

        # The next moment is the first at which something ends: running jobs first, then jobs of this plan.
        tau = next_end(facts, plan, present, next_running)
        next_running = end_by(facts, plan, moment, touched, present, next_running, tau)
        recount(facts, moment, shapes, touched, room, rooms)


@inner
def at(facts: Facts, plan: Plan, placed: BoolArray, tau: int, touched: BoolArray) -> Moment:
    """The cluster at `tau` with the jobs `placed`, all of which start by then; nodes that are not as now are noted."""
    moment = at_first(facts, plan)
    end_running(facts, moment, touched, 0, tau)
    for j in range(len(facts.jobs)):
        if placed[j] and plan.start_s[j] + facts.estimate_s[facts.jobs[j]] > tau:
            for part in range(plan.first[j], plan.first[j] + plan.parts[j]):
                moment.older[part] = moment.newest[plan.node[part]]
                moment.newest[plan.node[part]] = part
            occupy(plan, moment, touched, j)
    return moment


@kernel
def room_now(facts: Facts) -> tuple[IntArray, IntArray]:
    """How many units each node takes now, by kind of unit among the considered jobs [K, N]; the kind of each [J]."""
    shapes, kind_of = shapes_of(facts)
    room = np.empty((len(shapes), len(facts.free)), np.int64)
    for k in range(len(shapes)):
        for node in range(len(facts.free)):
            room[k, node] = units_on(facts, facts.free, node, shapes[k])
    return room, kind_of


@kernel
def next_to_start(
    facts: Facts,
    plan: Plan,
    placed: Flags,
    earliest_s: FixedColumn,
    order: FixedColumn,
    now: FixedMatrix,
    kind_of: FixedColumn,
) -> tuple[int, IntArray]:
    """The first of the jobs not `placed` that can start, of equals the first in `order`, and how far jobs are put off.

    `earliest_s` says before which moment a job cannot start, by job; no job placed starts later than any of these. A
    job that has no room beside those placed has none until one of them or a running job ends. The second result is by
    job the moment to which it is put off on the way, -1 where it is not; `PLENTY` stands for never. The place of the
    job found is written into the plan. Job -1: nobody waits, or everybody who goes first waits for ever.
    """
    J = len(facts.jobs)
    at_s, put_off = earliest_s.copy(), np.full(J, -1, np.int64)
    tau = PLENTY
    for j in range(J):
        if not placed[j]:
            tau = min(tau, at_s[j])
    if tau == PLENTY:
        return -1, put_off
    touched, present = np.zeros(len(facts.free), np.bool_), np.zeros(J, np.bool_)
    moment = at(facts, plan, placed, tau, touched)
    next_running = 0
    while next_running < len(facts.running) and facts.end_s[facts.running[next_running]] <= tau:
        next_running += 1
    for j in range(J):
        present[j] = placed[j] and plan.start_s[j] + facts.estimate_s[facts.jobs[j]] > tau
    room, rooms, shapes = now.copy(), now.sum(axis=1), np.empty(len(now), np.int64)
    for j in range(J):
        shapes[kind_of[j]] = facts.jobs[j]
    recount(facts, moment, shapes, touched, room, rooms)
    while True:
        # Who does not fit at this moment waits for the next end of a job that is there.
        later = next_end(facts, plan, present, next_running)
        for j in order:
            if placed[j] or at_s[j] > tau:
                continue
            if rooms[kind_of[j]] >= facts.units[facts.jobs[j]] and put(facts, plan, moment, room[kind_of[j]], j):
                plan.start_s[j] = tau
                return j, put_off
            at_s[j] = put_off[j] = later

        # On to the next moment at which somebody could start.
        tau = PLENTY
        for j in range(J):
            if not placed[j]:
                tau = min(tau, at_s[j])
        if tau == PLENTY:
            return -1, put_off
        next_running = end_by(facts, plan, moment, touched, present, next_running, tau)
        recount(facts, moment, shapes, touched, room, rooms)


@kernel
def next_chance(facts: Facts, plan: Plan, placed: Flags, j: int, tau: int) -> int:
    """The earliest moment after `tau` at which anything can end, so that job `j`, postponed, could start.

    In a plan whose jobs start as early as they can, a start is now or the end of another job: one running, one
    placed, or one not placed yet, which ends its estimate after `tau` at the earliest.
    """
    chance = PLENTY
    for i in range(len(facts.running)):
        end_s = facts.end_s[facts.running[i]]
        if end_s > tau:
            chance = end_s
            break
    for other in range(len(facts.jobs)):
        begin = plan.start_s[other] if placed[other] else tau
        end_s = begin + facts.estimate_s[facts.jobs[other]]
        if other != j and end_s > tau:
            chance = min(chance, end_s)
    return chance


@kernel
def starts_now(facts: Facts, plan: Plan) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """The jobs of `plan` that start now as slots, offsets, nodes and units: what `Starts` holds."""
    J = len(facts.jobs)
    slots, offsets = np.empty(J, np.int64), np.zeros(J + 1, np.int64)
    nodes, units = np.empty(len(plan.node), np.int64), np.empty(len(plan.node), np.int64)
    count = filled = 0
    for j in range(J):
        if plan.start_s[j] != facts.now_s:
            continue
        begin = filled
        for part in range(plan.first[j] + plan.parts[j] - 1, plan.first[j] - 1, -1):
            # Nodes ascend, whatever the walk; from the highest down, which is the default, each comes at the end.
            at_node = filled
            while at_node > begin and nodes[at_node - 1] > plan.node[part]:
                at_node -= 1
            if at_node > begin and nodes[at_node - 1] == plan.node[part]:
                units[at_node - 1] += plan.units[part]
                continue
            for moved in range(filled, at_node, -1):
                nodes[moved], units[moved] = nodes[moved - 1], units[moved - 1]
            nodes[at_node], units[at_node] = plan.node[part], plan.units[part]
            filled += 1
        slots[count], offsets[count + 1] = facts.jobs[j], filled
        count += 1
    return slots[:count].copy(), offsets[: count + 1].copy(), nodes[:filled].copy(), units[:filled].copy()


@kernel
def next_spot(facts: Facts, plan: Plan, placed: Flags, j: int, done: int, top: int, tau: int) -> int:
    """The highest node up to `top` that takes one more part of job `j`, `done` of whose parts have a place; or -1.

    Writes the place of that part into the plan.
    """
    moment, slot = at(facts, plan, placed, tau, np.zeros(len(facts.free), np.bool_)), facts.jobs[j]
    wanted = facts.units[slot]

    # The parts that have a place hold it.
    for part in range(plan.first[j], plan.first[j] + done):
        wanted -= plan.units[part]
        moment.older[part] = moment.newest[plan.node[part]]
        moment.newest[plan.node[part]] = part
        for r in range(moment.left.shape[1]):
            moment.left[plan.node[part], r] -= plan.dy[part, r]
    # The next part goes to the highest node that has room for it.
    part = plan.first[j] + done
    for node in range(top, -1, -1):
        room = min(wanted, units_on(facts, moment.left, node, slot))
        if room > 0 and put_part(facts, plan, moment, slot, part, node):
            plan.units[part] = room if facts.sharing[slot] & EXCLUSIVE else 1
            return node
    return -1


@kernel
def running_boxes(
    facts: Facts, base: FixedColumn, r: int, stride: int, horizon_s: int
) -> tuple[IntArray, IntArray, IntArray]:
    """What running jobs, and nodes out of service, hold of resource `r`, as boxes: position, size, end in seconds.

    `base` is the index of a node on the position axis, -1 for nodes that are left out. All boxes begin now.
    Boxes of one node form stairs: the longest at the bottom.
    """
    # At most one box for each entry of a placement, and one for each node.
    room = len(facts.free)
    for i in range(len(facts.running)):
        room += facts.place_count[facts.running[i]]
    y, dy, end_s = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    count = 0

    # From the top of what is in use on a node, each running job takes the piece below the one that ends before it.
    height = np.empty(len(facts.free), np.int64)
    for node in range(len(facts.free)):
        height[node] = facts.capacity[node, r] - max(facts.free[node, r], 0)
    for i in range(len(facts.running)):
        slot = facts.running[i]
        for p in range(facts.place_at[slot], facts.place_at[slot] + facts.place_count[slot]):
            node = facts.place_node[p]
            amount = taken_on(facts, slot, node, facts.place_units[p], r)
            if amount == 0 or base[node] < 0:
                continue
            height[node] -= amount
            y[count], dy[count] = base[node] * stride + height[node], amount
            end_s[count] = facts.end_s[slot]
            count += 1

    # What is in use although no running job holds it is out of service, for as long as the plan goes.
    for node in range(len(facts.free)):
        if base[node] >= 0 and height[node] > 0:
            y[count], dy[count], end_s[count] = base[node] * stride, height[node], horizon_s
            count += 1
    return y[:count].copy(), dy[:count].copy(), end_s[:count].copy()


@kernel
def gap_below(
    facts: Facts, plan: Plan, placed: Flags, j: int, done: int, node: int, r: int, ceiling: int, tau: int
) -> int:
    """The highest free positions of `node` below `ceiling` for one more part of job `j`, -1 if there are none."""
    moment, slot = at(facts, plan, placed, tau, np.zeros(len(facts.free), np.bool_)), facts.jobs[j]
    for part in range(plan.first[j], plan.first[j] + done):
        moment.older[part] = moment.newest[plan.node[part]]
        moment.newest[plan.node[part]] = part
    return highest_gap(plan, moment, node, r, ceiling, facts.per_unit[slot, r])
