"""Processors that stand idle while jobs wait: because nothing that waits fits, or although something does."""

from __future__ import annotations

import numpy as np

from cpsched.compile.handles import Column, FixedColumn, FixedMatrix, Matrix
from cpsched.compile.jit import inner, kernel
from cpsched.kernels.fit import asks_more_than, shift_free, units_on
from cpsched.kernels.state import Machine
from cpsched.model import IntArray, JobTable


@inner
def has_room(jobs: JobTable, slot: int, machine: Machine, free: FixedMatrix, total_free: FixedColumn) -> bool:
    """Whether a job could start on what is free (int64[N, R], and its sum over nodes)."""
    if asks_more_than(jobs, slot, total_free):
        return False
    found, wanted = 0, jobs.units[slot]
    for node in range(len(free)):
        found += units_on(jobs, slot, machine, free, node)
        if found >= wanted:
            return True
    return False


@inner
def shift(jobs: JobTable, slot: int, machine: Machine, free: Matrix, total_free: Column, sign: int) -> None:
    """Release (1) or take (-1) what a job holds."""
    first = jobs.place_at[slot]
    last = first + jobs.place_count[slot]
    nodes, units = jobs.places.node[first:last], jobs.places.units[first:last]
    shift_free(jobs, slot, machine, nodes, units, free, total_free, sign)


ByTime = tuple[FixedColumn, FixedColumn, FixedColumn]
"""Slots by submission, by start and by end."""
Alike = tuple[FixedColumn, FixedColumn]
"""By slot, the number of what the job asks for; by that number, a slot of a job that asks for it."""


@kernel
def idle_times(machine: Machine, jobs: JobTable, columns: tuple[ByTime, Alike], window: tuple[int, int]) -> IntArray:
    """Three sums over a window of time, from one second to another, int64[3]:

    - the seconds in which jobs wait;
    - the processor seconds idle meanwhile although one of the waiting jobs has room;
    - the processor seconds idle meanwhile because none has room.

    `jobs` says when each job really started and ended, and where it was. In each second ends count first, then
    submissions, then starts.
    """
    ((by_submit, by_start, by_end), (alike, example)), (from_s, to_s) = columns, window
    n = len(alike)
    free, total_free = machine.free.copy(), machine.free.sum(axis=0)
    waiting = np.zeros(len(example), np.int64)  # jobs that wait, by what they ask for
    listed = np.empty(len(example), np.int64)  # what is waited for, in any order
    place = np.empty(len(example), np.int64)
    hopeless = np.full(len(example), -1, np.int64)  # the number of ends after which a kind had no room; -1: never
    kinds, ends, submits, starts, fits = 0, 0, 0, 0, -1
    found = np.zeros(3, np.int64)
    while ends < n:
        now_s = jobs.end_s[by_end[ends]]
        if submits < n:
            now_s = min(now_s, jobs.submit_s[by_submit[submits]])
        if starts < n:
            now_s = min(now_s, jobs.start_s[by_start[starts]])
        # What happens in this second. A record may tell of jobs that end as they start: those hold nothing.
        while ends < n and jobs.end_s[by_end[ends]] == now_s:
            if jobs.start_s[by_end[ends]] < now_s:
                shift(jobs, by_end[ends], machine, free, total_free, 1)
            ends += 1
        while submits < n and jobs.submit_s[by_submit[submits]] == now_s:
            kind = alike[by_submit[submits]]
            if waiting[kind] == 0:
                listed[kinds], place[kind] = kind, kinds
                kinds += 1
            waiting[kind] += 1
            submits += 1
        while starts < n and jobs.start_s[by_start[starts]] == now_s:
            slot = by_start[starts]
            kind = alike[slot]
            waiting[kind] -= 1
            if waiting[kind] == 0:
                kinds -= 1
                listed[place[kind]], place[listed[kinds]] = listed[kinds], place[kind]
            if jobs.end_s[slot] > now_s:
                shift(jobs, slot, machine, free, total_free, -1)
            starts += 1
        if ends == n:
            break
        # How long the cluster stays in this state.
        next_s = jobs.end_s[by_end[ends]]
        if submits < n:
            next_s = min(next_s, jobs.submit_s[by_submit[submits]])
        if starts < n:
            next_s = min(next_s, jobs.start_s[by_start[starts]])
        lasts_s = min(next_s, to_s) - max(now_s, from_s)
        if kinds == 0 or lasts_s <= 0:
            continue
        found[0] += lasts_s
        if total_free[0] <= 0:
            continue
        # The kind that had room a moment ago most often still has.
        if fits < 0 or waiting[fits] == 0 or not has_room(jobs, example[fits], machine, free, total_free):
            fits = -1
            for i in range(kinds):
                kind = listed[i]
                if hopeless[kind] == ends:
                    continue
                if has_room(jobs, example[kind], machine, free, total_free):
                    fits = kind
                    break
                hopeless[kind] = ends
        found[1 if fits >= 0 else 2] += lasts_s * total_free[0]
    return found
