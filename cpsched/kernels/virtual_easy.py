"""Simulate a virtual schedule: the starts if EASY had made all decisions.

The virtual schedule counts processors, even on a cluster of nodes: a job occupies its largest share of any resource. It
uses only real run times: its time stops before the first event that depends on an unknown run time. On a counted pool
scheduled by EASY, the virtual schedule equals the real one. The events at a virtual time depend on arrivals and run
times, not on the rounds in which the bridge or the replay observed them.
"""

from __future__ import annotations

import numpy as np

from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, FixedReals, SharedStruct
from cpsched.kernels.pool_profile import first_index_at_least
from cpsched.kernels.queue_orders import sort_positions
from cpsched.kernels.scheduling_state import SchedulingState, empty_column, grow_columns
from cpsched.model import EXCLUSIVE, NEVER, IntArray

WAITS, RUNS, OVER, GONE = range(4)
"""States of an entry in the virtual schedule.

- `OVER`: the job has ended virtually, but not in reality.
- `GONE`: the real job has disappeared without an end record: it was cancelled, held or is not visible.
"""
ENTRY_FIELDS = 9
"""Number of values of a stored entry: id, submit_s, amount, walltime_s, run_s, start_s, does, wait_s, user."""

PAIR_FIELDS = 6
"""Number of values of a pair: user, amount, run_s, real wait (s), virtual wait (s), `longest_satisfiable_wait` (s) at
the virtual end.
"""

LONGEST_WAIT_DECAY = 0.9998
"""Factor applied to the longest wait at each start."""

MAX_UNKNOWN_RUN_S = 7 * 86_400
"""Seconds since its virtual start after which a job with an unknown run time is assumed to run for its walltime.

A job that never starts in reality must not stop the virtual time.
"""

MAX_ENTRIES_AHEAD = 20_000
"""Maximum number of entries whose jobs have ended in reality, but not virtually."""


class VirtualEasySchedule(SharedStruct, grows=True):
    """The virtual schedule. A job has an entry until both its virtual and real end."""

    now_s: int
    """Virtual time in seconds, at most the time of the last update, or -1 before the first update."""
    due: int
    """Whether new processors, arrivals or cancellations since the last round at `now_s` require another round."""
    pool: int
    """Number of processors that are up."""
    count: int
    """Number of entries in use."""
    waiting: int
    """Number of entries of `queue` in use."""
    active: int
    """Number of entries of `running` in use."""
    kept: int
    """Number of remaining entries when finished entries were last dropped."""
    paired: int
    """Number of entries of `pairs` in use."""
    longest_s: float
    """Longest wait of a started job in seconds. Each start multiplies it by `LONGEST_WAIT_DECAY`."""
    id: Column
    """Job id of each entry."""
    submit_s: Column
    amount: Column
    """Number of processors of each entry."""
    walltime_s: Column
    expected_s: Column
    """Expected run time of each entry in seconds."""
    run_s: Column
    """Real run time of each entry in seconds, or 0 before the real end."""
    start_s: Column
    """Virtual start of each entry in seconds, or `NEVER` before it starts."""
    began_s: Column
    """Real start of each entry in seconds, or `NEVER` before it starts."""
    does: Column
    """State of each entry: `WAITS`, `RUNS`, `OVER` or `GONE`."""
    wait_s: Column
    """Real wait of each entry in seconds, or `NEVER` before the real end."""
    user: Column
    """Hash of each entry's user, or 0 before the real end."""
    seen: Column
    """1 for each entry whose job is currently waiting or running in reality."""
    queue: Column
    """Waiting entries in order of arrival."""
    running: Column
    """Running entries, in order of the ends of their walltimes."""
    pairs: Column
    """Jobs that have ended virtually, in order of their ends, with `PAIR_FIELDS` values per job (see
    `take_real_virtual_pairs`).
    """
    of_slot: Column
    """By slot, the index of the entry plus one, or 0 if there is none."""


def new_virtual_schedule() -> VirtualEasySchedule:
    """Return an empty virtual schedule."""
    return VirtualEasySchedule(-1, 1, 0, 0, 0, 0, 0, 0, 0.0, *(empty_column() for _ in range(16)))


@subroutine
def total_capacities(site: SchedulingState) -> IntArray:
    """Return the capacity of the whole machine, int64[R]."""
    capacity = site.machine.capacity
    found = np.zeros(capacity.shape[1], np.int64)
    for node in range(capacity.shape[0]):
        for r in range(capacity.shape[1]):
            found[r] += capacity[node, r]
    return found


@subroutine
def processors_by_largest_share(site: SchedulingState, totals: FixedColumn, slot: int) -> int:
    """Return a job's largest share of any resource, in processors, rounded up."""
    jobs, pool, most = site.jobs, site.machine.pool, 1
    units, nodes = jobs.units[slot], site.machine.capacity.shape[0]
    for r in range(len(totals)):
        asked = units * jobs.per_unit[slot, r]
        if asked > 0 and totals[r] > 0:
            most = max(most, (min(asked, totals[r]) * pool + totals[r] - 1) // totals[r])
    if jobs.sharing[slot] & EXCLUSIVE and nodes > 1:
        most = max(most, units * pool // nodes)
    return int(min(most, pool))


@subroutine
def append_blank_entry(base: VirtualEasySchedule) -> int:
    """Append an entry. Return its index."""
    e = base.count
    columns = "id submit_s amount walltime_s expected_s run_s start_s began_s does wait_s user seen queue running"
    grow_columns(base, columns, e, e + 1)
    base.count = e + 1
    return int(e)


@subroutine
def enqueue(base: VirtualEasySchedule, e: int) -> None:
    """Insert an entry into the queue, which is ordered by submit time, then by id."""
    queue, i = base.queue, base.waiting
    while i > 0 and arrived_before(base, e, queue[i - 1]):
        queue[i] = queue[i - 1]
        i -= 1
    queue[i] = e
    base.waiting += 1


@subroutine
def arrived_before(base: VirtualEasySchedule, e: int, other: int) -> bool:
    """Return whether an entry arrived before another."""
    if base.submit_s[e] != base.submit_s[other]:
        return bool(base.submit_s[e] < base.submit_s[other])
    return bool(base.id[e] < base.id[other])


@subroutine
def start_entry(base: VirtualEasySchedule, e: int) -> None:
    """Insert a started entry into `running`, by the end of the walltime, then by id."""
    base.does[e] = RUNS
    running, i, end_s = base.running, base.active, base.start_s[e] + base.walltime_s[e]
    while i > 0:
        other = running[i - 1]
        other_s = base.start_s[other] + base.walltime_s[other]
        if other_s < end_s or (other_s == end_s and base.id[other] < base.id[e]):
            break
        running[i] = other
        i -= 1
    running[i] = e
    base.active += 1


@subroutine
def longest_satisfiable_wait(base: VirtualEasySchedule) -> int:
    """Return the longest wait in seconds of a waiting entry that fits on the pool."""
    for i in range(base.waiting):
        e = base.queue[i]
        if base.amount[e] <= base.pool:
            return int(max(0, base.now_s - base.submit_s[e]))
    return 0


@subroutine
def append_real_virtual_pair(base: VirtualEasySchedule, e: int) -> None:
    """Append the waits of an entry to `pairs`, unless the real wait is unknown."""
    if base.wait_s[e] == NEVER:
        return
    k = base.paired * PAIR_FIELDS
    grow_columns(base, "pairs", k, k + PAIR_FIELDS)
    base.pairs[k], base.pairs[k + 1], base.pairs[k + 2] = base.user[e], base.amount[e], base.run_s[e]
    base.pairs[k + 3], base.pairs[k + 4] = base.wait_s[e], base.start_s[e] - base.submit_s[e]
    base.pairs[k + 5] = longest_satisfiable_wait(base)
    base.paired += 1


@subroutine
def has_known_end(base: VirtualEasySchedule, e: int, now_s: int) -> bool:
    """Return whether a running entry's end is known, or assumed known, at `now_s`."""
    return bool(base.run_s[e] > 0 or now_s - base.start_s[e] > MAX_UNKNOWN_RUN_S)


@subroutine
def end_of_entry(base: VirtualEasySchedule, e: int, now_s: int, unknown_s: int) -> int:
    """Return a running entry's end, with an unknown run time of at least `unknown_s`."""
    if base.run_s[e] > 0:
        return int(base.start_s[e] + base.run_s[e])
    if base.began_s[e] != NEVER:
        unknown_s = max(unknown_s, now_s - base.began_s[e] + 1)
    return int(base.start_s[e] + unknown_s)


@subroutine
def earliest_end_of_entry(base: VirtualEasySchedule, e: int, now_s: int) -> int:
    """Return the earliest time at which a running entry can end, as known at `now_s`."""
    return end_of_entry(base, e, now_s, base.walltime_s[e] if has_known_end(base, e, now_s) else 1)


@subroutine
def shadow_time(base: VirtualEasySchedule, free: int, need: int, at_s: int) -> tuple[int, int]:
    """Return the shadow time for `need` processors, and the processors free then."""
    then, shadow_s = free, NEVER
    for k in range(base.active):
        other = base.running[k]
        end_s = max(at_s + 1, base.start_s[other] + base.walltime_s[other])
        if then >= need and end_s > shadow_s:
            break
        then += base.amount[other]
        if then >= need and shadow_s == NEVER:
            shadow_s = end_s
    return shadow_s, then


@subroutine
def run_virtual_easy_round(base: VirtualEasySchedule, at_s: int) -> None:
    """Schedule with EASY at `at_s`: in order of arrival, with walltimes as estimates."""
    queue, amount, walltime_s, free = base.queue, base.amount, base.walltime_s, base.pool
    for i in range(base.active):
        free -= amount[base.running[i]]
    kept, headed, shadow_s, extra = 0, False, 0, 0
    for i in range(base.waiting):
        e = queue[i]
        if base.submit_s[e] > at_s:
            queue[kept] = e
            kept += 1
            continue
        starts = free > 0 and amount[e] <= free
        if headed and starts and at_s + walltime_s[e] > shadow_s:
            starts = amount[e] <= extra
            if starts:
                extra -= amount[e]
        if starts:
            free -= amount[e]
            base.start_s[e] = at_s
            base.longest_s = max(LONGEST_WAIT_DECAY * base.longest_s, float(at_s - base.submit_s[e]))
            start_entry(base, e)
            continue
        if not headed and amount[e] <= base.pool:
            headed = True
            shadow_s, then = shadow_time(base, free, amount[e], at_s)
            extra = then - amount[e]
        queue[kept] = e
        kept += 1
    base.waiting = kept


@subroutine
def end_entries(base: VirtualEasySchedule, at_s: int, now_s: int) -> None:
    """End all entries whose ends, as known at `now_s`, are at most `at_s`."""
    kept = 0
    for i in range(base.active):
        e = base.running[i]
        if earliest_end_of_entry(base, e, now_s) > at_s:
            base.running[kept] = e
            kept += 1
        else:
            base.does[e], base.due = OVER, 1
            append_real_virtual_pair(base, e)
    base.active = kept


@subroutine
def next_event(base: VirtualEasySchedule, at_s: int, now_s: int) -> tuple[int, bool]:
    """Return the next end or arrival after `at_s`, and whether it is known at `now_s`.

    It is unknown if a job without a known end may end earlier.
    """
    then, certain = NEVER, True
    for i in range(base.active):
        e = base.running[i]
        end_s = earliest_end_of_entry(base, e, now_s)
        if end_s < then:
            then, certain = end_s, has_known_end(base, e, now_s)
        elif end_s == then:
            certain = certain and has_known_end(base, e, now_s)
    for i in range(base.waiting):
        submit_s = base.submit_s[base.queue[i]]
        if submit_s > at_s:
            if submit_s < then:
                then, certain = submit_s, True
            break
    return then, certain


@subroutine
def advance_virtual_schedule(base: VirtualEasySchedule, first_new: int, now_s: int) -> None:
    """Advance the virtual schedule towards `now_s` as far as run times are known.

    Entries from `first_new` are new arrivals.
    """
    for e in range(first_new, base.count):
        if base.does[e] == WAITS:
            enqueue(base, e)
            base.due |= base.submit_s[e] <= base.now_s
    while True:
        end_entries(base, base.now_s, now_s)
        if base.due and base.waiting:
            run_virtual_easy_round(base, base.now_s)
        base.due = 0
        then, certain = next_event(base, base.now_s, now_s)
        if then > now_s:
            base.now_s = now_s
            return
        if not certain:
            return
        base.now_s, base.due = then, 1


@subroutine
def remove_vanished_entries(base: VirtualEasySchedule) -> None:
    """Remove entries of vanished jobs, and the oldest beyond `MAX_ENTRIES_AHEAD`."""
    ahead = 0
    for e in range(base.count):
        ahead += base.run_s[e] > 0 and base.does[e] < OVER
    gone = False
    for e in range(base.count):
        vanished = base.run_s[e] == 0 and base.seen[e] == 0
        surplus = base.run_s[e] > 0 and base.does[e] < OVER and ahead > MAX_ENTRIES_AHEAD
        ahead -= surplus
        if (vanished or surplus) and base.does[e] != GONE:
            base.does[e] = GONE
            gone = True
    if gone:
        base.due = 1
        base.waiting = compact_entries(base, base.queue, base.waiting)
        base.active = compact_entries(base, base.running, base.active)


@subroutine
def compact_entries(base: VirtualEasySchedule, entries: Column, count: int) -> int:
    """Drop removed entries from a list of `count` entries. Return the new number."""
    kept = 0
    for i in range(count):
        if base.does[entries[i]] != GONE:
            entries[kept] = entries[i]
            kept += 1
    return kept


@subroutine
def drop_finished_entries(base: VirtualEasySchedule) -> None:
    """Drop the entries that were removed or have ended both virtually and in reality."""
    index, kept = np.full(base.count, -1, np.int64), 0
    for e in range(base.count):
        if base.does[e] == GONE or (base.does[e] == OVER and base.run_s[e] > 0):
            continue
        index[e] = kept
        base.id[kept], base.submit_s[kept], base.amount[kept] = base.id[e], base.submit_s[e], base.amount[e]
        base.walltime_s[kept], base.expected_s[kept] = base.walltime_s[e], base.expected_s[e]
        base.run_s[kept], base.start_s[kept], base.began_s[kept] = base.run_s[e], base.start_s[e], base.began_s[e]
        base.does[kept], base.seen[kept] = base.does[e], base.seen[e]
        base.wait_s[kept], base.user[kept] = base.wait_s[e], base.user[e]
        kept += 1
    for i in range(base.waiting):
        base.queue[i] = index[base.queue[i]]
    for i in range(base.active):
        base.running[i] = index[base.running[i]]
    for slot in range(len(base.of_slot)):
        if base.of_slot[slot] > 0:
            base.of_slot[slot] = index[base.of_slot[slot] - 1] + 1
    base.count = base.kept = kept


@subroutine
def append_job_entry(site: SchedulingState, base: VirtualEasySchedule, totals: FixedColumn, slot: int, id: int) -> int:
    """Append an entry for the job in a slot. Return the entry's index."""
    e, jobs = append_blank_entry(base), site.jobs
    base.id[e], base.submit_s[e], base.amount[e] = (
        id,
        jobs.submit_s[slot],
        processors_by_largest_share(site, totals, slot),
    )
    base.walltime_s[e], base.expected_s[e], base.run_s[e] = jobs.walltime_s[slot], jobs.walltime_s[slot], 0
    base.start_s[e], base.began_s[e], base.does[e] = NEVER, NEVER, WAITS
    base.wait_s[e], base.user[e] = NEVER, 0
    base.of_slot[slot] = e + 1
    return e


@subroutine
def is_entry_outdated(site: SchedulingState, base: VirtualEasySchedule, totals: FixedColumn, slot: int, e: int) -> bool:
    """Return whether a waiting entry's submission, walltime or amount has changed."""
    if base.does[e] != WAITS or base.run_s[e] > 0:
        return False
    if base.submit_s[e] != site.jobs.submit_s[slot] or base.walltime_s[e] != site.jobs.walltime_s[slot]:
        return True
    return bool(base.amount[e] != processors_by_largest_share(site, totals, slot))


@subroutine
def find_or_add_entry(
    site: SchedulingState, base: VirtualEasySchedule, totals: FixedColumn, slot: int, id: int, expected_s: float
) -> int:
    """Return the index of a job's entry. Append an entry if it is missing or outdated."""
    e = base.of_slot[slot] - 1
    if e < 0 or base.does[e] == GONE or is_entry_outdated(site, base, totals, slot, e):
        e = append_job_entry(site, base, totals, slot, id)
    base.seen[e] = 1
    base.expected_s[e] = max(1, min(int(expected_s), base.walltime_s[e]))
    return int(e)


@subroutine
def match_entries_to_jobs(
    site: SchedulingState, base: VirtualEasySchedule, expected: FixedReals, ids: FixedColumn
) -> int:
    """Find or append the entries of all jobs. Return the index of the first new entry.

    At the first update, running jobs start at their real starts.
    """
    up, totals, first_new = 0, total_capacities(site), base.count
    for e in range(base.count):
        base.seen[e] = 0
    for node in range(len(site.machine.free)):
        up += site.machine.free[node, 0]
    for i in range(site.active):
        slot = site.running[i]
        e = find_or_add_entry(site, base, totals, slot, ids[slot], expected[site.queued + i])
        base.began_s[e] = site.jobs.start_s[slot]
        up += base.amount[e]
        if base.now_s < 0:
            base.start_s[e] = base.began_s[e]
            start_entry(base, e)
    for i in range(site.queued):
        slot = site.queue[i]
        find_or_add_entry(site, base, totals, slot, ids[slot], expected[i])
    up = min(up, site.machine.pool)
    base.due |= up != base.pool
    base.pool = up
    if base.now_s < 0:
        base.now_s = site.now_s
    return int(first_new)


@subroutine
def longest_expected_wait(base: VirtualEasySchedule, now_s: int) -> float:
    """Return the longest wait in seconds if jobs ran one at a time on the whole pool.

    The jobs run from the virtual time. A wait includes the expected remaining run times of running jobs and of earlier
    queued jobs.
    """
    work, longest_s = 0.0, 0.0
    for i in range(base.active):
        e = base.running[i]
        work += float(base.amount[e]) * (end_of_entry(base, e, now_s, base.expected_s[e]) - base.now_s)
    for i in range(base.waiting):
        e = base.queue[i]
        longest_s = max(longest_s, base.now_s - base.submit_s[e] + work / max(1, base.pool))
        work += float(base.amount[e]) * (base.run_s[e] if base.run_s[e] > 0 else base.expected_s[e])
    return longest_s


@kernel
def record_real_ends(base: VirtualEasySchedule, ended: FixedColumn) -> int:
    """Record jobs that have ended in reality. Return their number.

    `ended` is int64[4 * jobs]: job ids in ascending order, then real run times (s), real waits (s) and users' hashes.
    """
    jobs = len(ended) // 4
    for e in range(base.count):
        at = first_index_at_least(ended, jobs, base.id[e])
        if at < jobs and ended[at] == base.id[e] and base.does[e] != GONE:
            base.run_s[e], base.wait_s[e] = max(1, ended[jobs + at]), ended[2 * jobs + at]
            base.user[e] = ended[3 * jobs + at]
    return jobs


@kernel
def take_real_virtual_pairs(base: VirtualEasySchedule) -> IntArray:
    """Return the contents of `pairs`, int64[jobs * PAIR_FIELDS], and clear it."""
    found = base.pairs[: base.paired * PAIR_FIELDS].copy()
    base.paired = 0
    return found


@kernel
def update_virtual_schedule(
    site: SchedulingState, base: VirtualEasySchedule, expected: FixedReals, ids: FixedColumn
) -> float:
    """Update the virtual schedule to now. Return its longest wait in seconds.

    This is the maximum of `longest_s` and the expected waits of waiting jobs.

    - `expected`: run times in seconds, by queue position, then by index in `site.running`.
    - `ids`: job ids by slot; `of_slot` must belong to the same table (see `map_slots_to_entries`).

    The caller must first record the jobs that have ended since the last call (see `record_real_ends`).
    """
    slots = len(base.of_slot)
    grow_columns(base, "of_slot", slots, len(ids))
    for slot in range(slots, len(base.of_slot)):
        base.of_slot[slot] = 0
    first_new = match_entries_to_jobs(site, base, expected, ids)
    remove_vanished_entries(base)
    advance_virtual_schedule(base, first_new, site.now_s)
    if base.count > 2 * base.kept + 64:
        drop_finished_entries(base)
    return max(base.longest_s, longest_expected_wait(base, site.now_s))


@kernel
def map_slots_to_entries(base: VirtualEasySchedule, ids: FixedColumn) -> int:
    """Map the slots of a new table to entries by job id. Return the number of matches."""
    drop_finished_entries(base)
    found, order, count = np.zeros(len(ids), np.int64), sort_positions(base.id[: base.count], base.id[: base.count]), 0
    known = np.empty(base.count, np.int64)
    for i in range(base.count):
        known[i] = base.id[order[i]]
    for slot in range(len(ids)):
        at = first_index_at_least(known, len(known), ids[slot])
        if at < len(known) and known[at] == ids[slot]:
            found[slot] = order[at] + 1
            count += 1
    base.of_slot = found
    return count


@kernel
def unfinished_entries(base: VirtualEasySchedule) -> IntArray:
    """Return the entries to store, int64[entries * ENTRY_FIELDS], row by row.

    Waiting entries whose jobs have not ended are omitted, because the next snapshot contains these jobs.
    """
    rows, k = np.empty(base.count * ENTRY_FIELDS, np.int64), 0
    for e in range(base.count):
        waits, over = base.does[e] == WAITS and base.run_s[e] == 0, base.does[e] == OVER and base.run_s[e] > 0
        if waits or over or base.does[e] == GONE:
            continue
        rows[k], rows[k + 1], rows[k + 2] = base.id[e], base.submit_s[e], base.amount[e]
        rows[k + 3], rows[k + 4] = base.walltime_s[e], base.run_s[e]
        rows[k + 5], rows[k + 6] = base.start_s[e], base.does[e]
        rows[k + 7], rows[k + 8] = base.wait_s[e], base.user[e]
        k += ENTRY_FIELDS
    return rows[:k].copy()


@kernel
def restore_entries(base: VirtualEasySchedule, rows: FixedColumn) -> int:
    """Add entries from `unfinished_entries` to an empty schedule. Return their number."""
    for k in range(0, len(rows), ENTRY_FIELDS):
        e = append_blank_entry(base)
        base.id[e], base.submit_s[e], base.amount[e] = rows[k], rows[k + 1], rows[k + 2]
        base.walltime_s[e], base.run_s[e] = rows[k + 3], rows[k + 4]
        base.start_s[e], base.does[e] = rows[k + 5], rows[k + 6]
        base.wait_s[e], base.user[e] = rows[k + 7], rows[k + 8]
        base.expected_s[e], base.began_s[e], base.seen[e] = base.walltime_s[e], NEVER, 0
        if base.does[e] == WAITS:
            enqueue(base, e)
        elif base.does[e] == RUNS:
            start_entry(base, e)
    return base.count
