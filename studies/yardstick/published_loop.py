"""The loop of RLScheduler (Zhang et al., SC 2020), as in the code that produced its tables V and VI.

It commits to the first job in its order, and waits for it even if a better job arrives. With `backfill`, the earliest
start of that job is computed once, by requested times. Meanwhile, queued jobs start in order of submission if they fit
and end strictly before it.

The loop takes events one by one, even within one second: arrivals, then ends. It commits to a job that finds an empty
queue before the next one arrives, and may start jobs before the last job of the second has ended. WFP3 and UNICEP
compute the wait of a queued job from a start of -1, as the published figures do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Literal

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.model import NEVER, NO_STARTS, Decision, Effort, EndedJob, JobTable, Need, Snapshot, Starts
from cpsched.planning import ORDERS, OrderSymbols

NOT_STARTED_S = -1


class PublishedLoop(Dispatcher):
    """RLScheduler's loop under one of its five rules, on a pool of processors."""

    learns = every_round = True

    def __init__(self, rule: Literal["fcfs", "wfp3", "unicep", "sjf", "f1"] = "fcfs", backfill: bool = False) -> None:
        self.rule, self.backfill = rule, backfill
        self.committed: int | None = None
        """Id of the job that the loop waits for."""
        self.earliest_s = 0
        self.ended: list[EndedJob] = []
        """Jobs that have ended since the last decision."""

    @override
    def learn(self, ended: EndedJob) -> None:
        self.ended.append(ended)

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        now_s, table, queue = snapshot.now_s, snapshot.table, snapshot.queue.tolist()
        ended = sorted(((each.start_s, each.job) for each in self.ended), key=itemgetter(0))
        ends = [(start_s + job.walltime_s, job.request.units * job.request.per_unit[0]) for start_s, job in ended]
        self.ended.clear()
        free, started = int(snapshot.free[:, 0].sum()) - sum(processors for _, processors in ends), list[int]()
        first = next((slot for slot in queue if table.jobs[slot].id == self.committed), None)
        taken, arrived = (queue, []) if first is not None else ([], queue)
        while first is not None or taken or arrived:
            begins = first is None
            if first is None:
                if not taken:
                    taken, arrived = arrived[:1], arrived[1:]
                first = taken[int(np.argmin(self._compute_scores(table, taken)))]
            if _processors_of(table, first) <= free:
                free -= _processors_of(table, first)
                started.append(first)
                taken, first = [slot for slot in taken if slot != first], None
                continue

            # Wait for it, until the next job of this second ends.
            if begins:
                running = [(table.start_s[slot], slot) for slot in snapshot.running] + [(now_s, s) for s in started]
                held = [(start_s + table.walltime_s[slot], _processors_of(table, slot)) for start_s, slot in running]
                self.earliest_s = _earliest_start_s([*held, *ends], free, _processors_of(table, first))
            taken, arrived = taken + arrived, []
            for slot in list(taken) if self.backfill else ():
                if now_s + table.walltime_s[slot] < self.earliest_s and _processors_of(table, slot) <= free:
                    free -= _processors_of(table, slot)
                    started.append(slot)
                    taken.remove(slot)
            if not ends:
                break
            free += ends.pop(0)[1]
        self.committed = None if first is None else table.jobs[first].id
        effort = Effort("published-loop", len(queue))
        return Decision(_place_jobs(snapshot, started) if started else NO_STARTS, effort)

    def _compute_scores(self, table: JobTable, slots: Sequence[int]) -> np.ndarray:
        E, r, s = table.walltime_s[slots], table.units[slots] * table.per_unit[slots, 0], table.submit_s[slots]
        if self.rule in ("fcfs", "sjf"):
            return s if self.rule == "fcfs" else E
        by = ORDERS[self.rule].by
        assert by is not None
        waits_s = (NOT_STARTED_S - s).astype(float)
        symbols = OrderSymbols(E.astype(float), r.astype(float), np.maximum(s, 1.0), waits_s, R=0.0, tau=0.0)
        return np.asarray(by(symbols))


def _processors_of(table: JobTable, slot: int) -> int:
    return int(table.units[slot] * table.per_unit[slot, 0])


def _earliest_start_s(held: Iterable[tuple[int, int]], free: int, wanted: int) -> int:
    """Return when enough processors are free if each job ends at its requested time; `held` are (end, processors)."""
    for end_s, processors in sorted(held):
        free += processors
        if free >= wanted:
            return int(end_s)
    return NEVER


def _place_jobs(snapshot: Snapshot, started: Sequence[int]) -> Starts:
    """Return the started jobs, placed on the first free processors."""
    free = np.repeat(np.arange(len(snapshot.free)), snapshot.free[:, 0])
    placements, at = {}, 0
    for slot in started:
        to = at + _processors_of(snapshot.table, slot)
        nodes, units = np.unique(free[at:to], return_counts=True)
        placements[slot], at = tuple(zip(nodes.tolist(), units.tolist(), strict=True)), to
    return Starts.of(placements)
