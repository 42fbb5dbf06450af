"""Judges of a whole schedule, node by node, that share no code with the kernels or the simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpsched.model import NEVER, Cluster
from cpsched_sim.cluster.replay import Schedule
from cpsched_sim.traces.job import TraceJob


def overfull(cluster: Cluster, trace: Sequence[TraceJob], schedule: Schedule) -> list[tuple[int, int]]:
    """(second, node) pairs at which more is in use than there is; whole-node jobs use all of a node, and are alone."""
    found, steps = [], {0}
    ran = [i for i in range(len(trace)) if schedule.start_s[i] != NEVER]
    steps.update(int(schedule.start_s[i]) for i in ran)
    for second in sorted(steps):
        used, jobs = np.zeros_like(cluster.capacity), np.zeros(cluster.size, np.int64)
        alone = np.zeros(cluster.size, np.int64)
        for i in ran:
            if schedule.start_s[i] <= second < schedule.end_s[i]:
                request = trace[i].job.request
                for node, units in schedule.placement_of(i):
                    used[node] += units * np.array(request.per_unit)
                    jobs[node] += 1
                    alone[node] += request.exclusive
        too_much = (used > cluster.capacity).any(axis=1) | ((alone > 0) & (jobs > 1))
        found += [(second, node) for node in np.flatnonzero(too_much).tolist()]
    return found


def misplaced(cluster: Cluster, trace: Sequence[TraceJob], schedule: Schedule) -> list[int]:
    """Jobs whose placement is not what they asked for: units, distinct nodes, node set, time."""
    found = []
    for i, item in enumerate(trace):
        if schedule.start_s[i] == NEVER:
            continue
        request, placement = item.job.request, schedule.placement_of(i)
        nodes = [node for node, _ in placement]
        right = (
            sum(units for _, units in placement) == request.units
            and len(set(nodes)) == len(nodes)
            and (not request.distinct or all(units == 1 for _, units in placement))
            and cluster.node_sets[request.node_set, nodes].all()
            and schedule.start_s[i] >= item.job.submit_s
            and schedule.end_s[i] - schedule.start_s[i] == item.run_s
        )
        if not right:
            found.append(item.job.id)
    return found
