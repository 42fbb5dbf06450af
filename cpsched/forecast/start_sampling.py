"""Simulate the plan with sampled run times to find when each job would start."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from cpsched.model import NEVER, IntArray, JobTable, Snapshot
from cpsched.model.job_table import COLUMNS
from cpsched.planning import get_scheduling_state, planned_starts
from cpsched.run_time_model import RunTimeClass, RunTimeModel, run_time_class

SAMPLES = 15
"""Number of samples sufficient for a median start."""
_SIMILAR_JOBS = 9
"""Number of jobs with similar planned starts that represent a hypothetical job."""
_ADDED_WAIT_S = 60
"""Seconds added to all waits before a comparison."""


def sample_starts(snapshot: Snapshot, plan_s: IntArray, run_times: RunTimeModel, draws: int, seed: int) -> IntArray:
    """Return sampled starts of the queued jobs in seconds, int64[draws, Q].

    Each draw samples all run times. It places jobs in the order of `plan_s` (int64[Q]), each at its earliest start that
    delays no earlier job. Later submissions are not included. The same seed gives the same starts.
    """
    queued, slots = len(snapshot.queue), np.append(snapshot.queue, snapshot.running)
    table = job_subset(snapshot.table, slots)
    at = np.random.default_rng(seed).random((len(slots), draws))
    alike = defaultdict[RunTimeClass, list[int]](list)
    for slot, job in enumerate(table.jobs):
        alike[run_time_class(job)].append(slot)
    run_s, elapsed_s = np.empty((len(slots), draws), np.int64), np.zeros((len(slots), 1), np.int64)
    elapsed_s[queued:, 0] = np.maximum(0, snapshot.now_s - table.start_s[queued:])
    for these in alike.values():
        run_s[these] = run_times.run_times_at_quantiles_s(table.jobs[these[0]], at[these], elapsed_s[these])
    return planned_starts_for_run_times(snapshot, table, plan_s, run_s)


def sample_hypothetical_start(now_s: int, planned_s: int, plan_s: IntArray, drawn_s: IntArray) -> IntArray:
    """Return sampled starts, int64[draws, 1], of a job planned for `planned_s`.

    `plan_s` (int64[Q]) and `drawn_s` (int64[draws, Q]) are the queue's planned and sampled starts. The job gets the
    ratios of sampled to planned wait of the jobs with similar planned starts. The result is empty if no queued job has
    both planned and sampled starts.
    """
    known = np.flatnonzero((plan_s != NEVER) & (drawn_s != NEVER).all(axis=0))
    if not len(known):
        return drawn_s[:0, :0]
    near = known[np.argsort(np.abs(plan_s[known] - planned_s), kind="stable")[:_SIMILAR_JOBS]]
    shares = (drawn_s[:, near] - now_s + _ADDED_WAIT_S) / (plan_s[near] - now_s + _ADDED_WAIT_S)
    waits_s = np.median(shares, axis=1) * (planned_s - now_s + _ADDED_WAIT_S) - _ADDED_WAIT_S
    return now_s + np.maximum(0, np.rint(waits_s)).astype(np.int64)[:, None]


def job_subset(table: JobTable, slots: IntArray, more: JobTable | None = None) -> JobTable:
    """Return a table of the jobs in `slots`, in that order.

    The result shares the placement pool of `table`. The jobs in `more`, which must not be running, are appended.
    """
    columns = {name: np.array(getattr(table, name)[slots]) for name in COLUMNS}
    jobs = [table.jobs[slot] for slot in slots.tolist()]
    if more is not None:
        columns = {name: np.concatenate((column, getattr(more, name))) for name, column in columns.items()}
        jobs += more.jobs
    return JobTable(jobs=jobs, places=table.places, **columns)


def planned_starts_for_run_times(snapshot: Snapshot, table: JobTable, plan_s: IntArray, run_s: IntArray) -> IntArray:
    """Return the queued jobs' starts in seconds for each column of `run_s`, int64[draws, Q].

    `table` (see `job_subset`) and `run_s` (int64[Q + R, draws]) contain the queued jobs, then the running ones. Jobs
    are placed in the order of `plan_s` (int64[Q]). The columns `estimate_s` and `end_s` of `table` are overwritten.
    """
    order = np.argsort(plan_s, kind="stable").astype(np.int64)
    queued, draws = len(snapshot.queue), run_s.shape[1]
    slots, running = np.arange(queued, dtype=np.int64), np.arange(queued, len(run_s), dtype=np.int64)
    end_s = np.maximum(table.start_s[queued:, None] + run_s[queued:], snapshot.now_s + 1)
    drawn = Snapshot(snapshot.now_s, snapshot.cluster, snapshot.free, table, slots, running, by_construction=True)
    state = get_scheduling_state(drawn)
    drawn = replace(drawn, by_construction=True, carry=state)
    found = np.empty((draws, queued), np.int64)
    for draw in range(draws):
        table.estimate_s[:], table.end_s[queued:] = run_s[:, draw], end_s[:, draw]
        state.running[:] = queued + np.argsort(end_s[:, draw], kind="stable")
        found[draw] = planned_starts(drawn, order)
    return found
