"""Provide a slow, plain list scheduler on single nodes and seconds, as a reference for the compiled kernels.

It shares no code with the kernels. Free resources are a table of every node at every second of a horizon.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from cpsched.feasibility import why_infeasible
from cpsched.model import NEVER, RunningJob
from tests.builders import a_snapshot

STRICT, GREEDY = -1, 0


class Line:
    """Free amounts by node and second from now, int64[N, T, R]."""

    def __init__(self, snapshot, horizon_s):
        table, cluster = snapshot.table, snapshot.cluster
        self.cluster, self.now_s = cluster, snapshot.now_s
        self.free = np.repeat(snapshot.free[:, None, :], horizon_s, axis=1)
        for running in snapshot.running_jobs():
            end = int(table.end_s[table.jobs.index(running.job)]) - snapshot.now_s
            for node, units in running.placement:
                self.free[node, end:] += self.amounts(running.job.request, node, units)

    def amounts(self, request, node, units):
        """Return the amounts of `units` units on a node."""
        return self.cluster.capacity[node] if request.exclusive else units * np.array(request.per_unit)

    def units(self, request, node, begin, end):
        """Return the number of units that fit on the node in each second of [begin, end)."""
        if not self.cluster.node_sets[request.node_set, node]:
            return 0
        window = self.free[node, begin:end]
        if request.exclusive and (window != self.cluster.capacity[node]).any():
            return 0
        most = 1 if request.distinct else request.units
        for r, amount in enumerate(request.per_unit):
            if amount:
                most = min(most, int(window[:, r].min()) // amount)
        return max(most, 0)

    def held_since(self, request, node, begin, end, units):
        """Return the second since which `units` units fit the node until `end`, or -1 if they always fit."""
        at = begin
        while at > 0 and self.units(request, node, at - 1, at) >= units:
            at -= 1
        return at or -1

    def fits(self, request, begin, end):
        """Return the units by node throughout [begin, end), and whether they suffice."""
        by_node = [self.units(request, node, begin, end) for node in range(self.cluster.size)]
        return by_node, sum(by_node) >= request.units

    def share(self, node):
        """Return the node's free amounts now as a sort key, smallest first."""
        most = self.cluster.capacity.max(axis=0)
        return sum(int(self.free[node, 0, r]) * 1_000_000 // int(most[r]) for r in range(len(most)) if most[r])

    def take(self, request, begin, end, order, by_node):
        """Place the job on nodes in `order` during [begin, end); return its placement."""
        left, placement = request.units, []
        for node in order:
            here = min(by_node[node], left)
            if here:
                placement.append((node, here))
                left -= here
        for node, units in placement:
            self.free[node, begin:end] -= self.amounts(request, node, units)
        return tuple(sorted(placement))


def plan(snapshot, order, reservations, best_fit=False, backfill=None):
    """Return placements of jobs that start now by id, and starts by queue position, for a queue in `order`."""
    table, queue = snapshot.table, snapshot.queue.tolist()
    estimates = [int(table.estimate_s[slot]) for slot in queue]
    ends = [int(table.end_s[slot]) - snapshot.now_s for slot in snapshot.running.tolist()]
    horizon = max(ends, default=0) + sum(estimates) + max(estimates) + 2
    line, starts, planned = Line(snapshot, horizon), {}, [NEVER] * len(queue)
    todo, reserved = list(order), 0
    nodes = range(snapshot.cluster.size)
    while todo:
        position = todo.pop(0)
        request, duration = table.jobs[queue[position]].request, estimates[position]
        by_node, fits = line.fits(request, 0, duration)
        if fits:
            choice = sorted(nodes, key=line.share) if best_fit else nodes
            starts[table.jobs[queue[position]].id] = line.take(request, 0, duration, choice, by_node)
            planned[position] = snapshot.now_s
            continue
        if not line.fits(request, horizon - 1, horizon)[1]:
            continue
        if reservations == STRICT:
            break
        if reserved == reservations:
            continue
        begin = next(t for t in range(horizon) if line.fits(request, t, min(t + duration, horizon))[1])
        by_node, _ = line.fits(request, begin, begin + duration)
        latest = sorted(
            nodes,
            key=lambda n, q=request, t=begin, d=duration, b=by_node: -line.held_since(q, n, t, t + d, b[n]),
        )
        line.take(request, begin, begin + duration, latest, by_node)
        planned[position] = snapshot.now_s + begin
        reserved += 1
        if backfill is not None and reserved == 1:
            todo = [p for p in backfill if planned[p] == NEVER]
    return starts, planned


def replay(cluster, trace, reservations):
    """Return start and placement by job id for a trace, planned in arrival order at every event.

    Walltimes are the estimates. Jobs that can never run are omitted.
    """

    def decide(snapshot, arrived, ended):
        return plan(snapshot, range(len(snapshot.queue)), reservations)[0]

    return sweep(cluster, trace, decide)


def sweep(cluster, trace, decide, until_s=0):
    """Return start and placement by job id of what `decide` starts at every event, and in every second to `until_s`.

    It receives the snapshot, and whether jobs have arrived and ended in this second.
    """
    waiting = [item for item in trace if why_infeasible(item.job.request, cluster) is None]
    placed, running = {}, {}
    times = [item.job.submit_s for item in waiting] + list(range(min(item.job.submit_s for item in trace), until_s))
    while times and waiting:
        now_s = min(times)
        times = [each for each in times if each > now_s]
        ended = any(end_s == now_s for end_s in running.values())
        running = {each: end_s for each, end_s in running.items() if end_s > now_s}
        queue = [item.job for item in waiting if item.job.submit_s <= now_s]
        if not queue:
            continue
        arrived = any(job.submit_s == now_s for job in queue)
        starts = decide(a_snapshot(cluster, queue, list(running), now_s), arrived, ended)
        for item in [item for item in waiting if item.job.id in starts]:
            placed[item.job.id] = (now_s, starts[item.job.id])
            running[RunningJob(item.job, *placed[item.job.id])] = now_s + item.run_s
            times.append(now_s + item.run_s)
            waiting.remove(item)
    return placed


def assert_same_schedule(schedule, cluster, trace, expected):
    """Compare starts and nodes; `expected` contains start and placement by id of each job that starts.

    If all nodes count as one node, placements are ignored.
    """
    for i, item in enumerate(trace):
        if item.job.id not in expected:
            assert schedule.start_s[i] == NEVER
        elif cluster.counted and cluster.size > 1:
            assert schedule.start_s[i] == expected[item.job.id][0]
        else:
            assert (schedule.start_s[i], schedule.placement_of(i)) == expected[item.job.id]


def starts_and_nodes(schedule):
    """Return the start and the placement of each job."""
    return schedule.start_s.tolist(), [schedule.placement_of(i) for i in range(len(schedule.start_s))]


def without_groups(snapshot):
    """Return the snapshot without the node groups that the simulated cluster carries between rounds."""
    return dataclasses.replace(snapshot, by_construction=True)
