"""List the nodes with their states and jobs."""

from __future__ import annotations

from collections import defaultdict

from cpsched_bridge.views.job_view import JobRequestView
from cpsched_bridge.views.status_view import NodeOutageView, NodeView, StatusPageView

NODE_STATES = ("down", "drained", "reserved", "unavailable", "full", "in use", "idle")
"""Node states, worst first."""
_STATE_RANK = {"down": 0, "drained": 1, "reserved": 2, "unknown": 3}
_MAX_PLANNED_JOBS = 8


def list_nodes(view: StatusPageView) -> list[NodeView]:
    """Return all nodes, in the cluster's order."""
    running, used = _map_running_jobs_by_node(view)
    if view.jobs.reader:  # the reader sees only the total use of other users' jobs
        used = _compute_used_amounts(view)
    planned, out = _map_planned_starts(view), _find_worst_outages(view)
    resources = len(view.status.resources)
    nothing, found = [0] * resources, []
    for index, name in enumerate(view.chart.node_names):
        capacity = view.capacities.capacity[index] if view.capacities.capacity else nothing
        free = view.capacities.free[index] if view.capacities.free else nothing
        shut = out.get(index)
        found.append(
            NodeView(
                index=index, name=name,
                state=_get_node_state(shut, bool(running[index]) or any(used.get(index, ())), capacity, free),
                because=shut.name if shut else "", until_s=shut.to_s if shut else None, capacity=capacity,
                in_use=used.get(index, nothing), running=running[index],
                planned=[(id, begin_s) for begin_s, id in sorted(planned[index])[:_MAX_PLANNED_JOBS]],
            )
        )  # fmt: skip
    return found


def _map_running_jobs_by_node(view: StatusPageView) -> tuple[defaultdict[int, list[int]], dict[int, list[int]]]:
    """Return the ids of running jobs and the total amounts they use, by node."""
    index = {name: node for node, name in enumerate(view.chart.node_names)}
    on: defaultdict[int, list[int]] = defaultdict(list)
    used: dict[int, list[int]] = {}
    for job in view.jobs.running:
        for name, units in job.nodes:
            node = index[name]
            on[node].append(job.id)
            capacity = view.capacities.capacity[node] if view.capacities.capacity else []
            taken = _compute_job_amounts(job.request, units, capacity)
            before = used.get(node)
            used[node] = [a + b for a, b in zip(before, taken, strict=True)] if before else taken
    return on, used


def _compute_used_amounts(view: StatusPageView) -> dict[int, list[int]]:
    """Return the amounts in use on each node that accepts jobs."""
    rows = zip(view.capacities.capacity, view.capacities.free, strict=True)
    shut = {*view.chart.unavailable, *_find_worst_outages(view)}
    return {
        index: [total - free for total, free in zip(capacity, left, strict=True)]
        for index, (capacity, left) in enumerate(rows)
        if index not in shut
    }


def _compute_job_amounts(request: JobRequestView | None, units: int, capacity: list[int]) -> list[int]:
    if request is None or request.exclusive:
        return list(capacity)
    return [units * amount for amount in request.amounts.values()]


def _map_planned_starts(view: StatusPageView) -> defaultdict[int, list[tuple[int, int]]]:
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for bar in view.chart.bars:
        if bar.kind == "planned":
            for node, _ in bar.nodes:
                found[node].append((bar.begin_s, bar.id))
    return found


def _find_worst_outages(view: StatusPageView) -> dict[int, NodeOutageView]:
    """Return the worst current outage of each node that accepts no jobs."""
    found: dict[int, NodeOutageView] = {}
    for each in sorted(view.chart.outages, key=lambda each: _STATE_RANK.get(each.kind, 3)):
        if each.from_s <= view.jobs.now_s:
            for node in each.nodes:
                found.setdefault(node, each)
    return found


def _get_node_state(shut: NodeOutageView | None, busy: bool, capacity: list[int], free: list[int]) -> str:
    if shut is not None:
        return "unavailable" if shut.kind == "unknown" else shut.kind
    if not any(free) and any(capacity) and not busy:
        return "unavailable"
    if not busy:
        return "idle"
    return "full" if any(capacity) and not free[0] else "in use"
