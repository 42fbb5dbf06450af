"""The one fit rule: does this decision fit that snapshot, node by node, resource by resource?

Used by the bridge before anything is applied, by the simulator in every round, and by the tests as the judge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpsched import kernels
from cpsched.model import Cluster, Decision, Placement, Request, Snapshot


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule of a decision."""

    job_id: int
    rule: str

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.rule}"


def used_by(request: Request, placement: Placement, capacity: np.ndarray) -> dict[int, np.ndarray]:
    """Amounts [R] that `request` takes on each node of `placement`; whole nodes where it is exclusive."""
    if request.exclusive:
        return {node: capacity[node] for node, _ in placement}
    per_unit = np.array(request.per_unit, dtype=np.int64)
    return {node: units * per_unit for node, units in placement}


def verify(decision: Decision, snapshot: Snapshot) -> list[Violation]:
    """Every rule that the starts of `decision` break; an empty list means that it may be applied."""
    cluster, free = snapshot.cluster, snapshot.free.copy()
    queued = set(snapshot.queue.tolist())
    found: list[Violation] = []
    for slot, placement in decision.starts.placements().items():
        job = snapshot.table.jobs[slot]
        request = job.request

        def broken(rule: str, job_id: int = job.id) -> None:
            found.append(Violation(job_id, rule))

        if slot not in queued:
            broken("not in the queue, or started twice")
        queued.discard(slot)
        nodes = [node for node, _ in placement]
        if any(not 0 <= node < cluster.size for node in nodes):
            broken("a node that does not exist")
            continue
        if len(set(nodes)) < len(nodes):
            broken("a node listed twice")
        elif nodes != sorted(nodes):
            broken("nodes out of order")
        if any(units < 1 for _, units in placement) or sum(units for _, units in placement) != request.units:
            broken(f"placed units differ from the {request.units} asked for")
        if request.distinct and any(units > 1 for _, units in placement):
            broken("units that must be on distinct nodes share one")
        if not cluster.node_sets[request.node_set, nodes].all():
            broken(f"a node outside of {cluster.node_set_names[request.node_set]}")
        if request.exclusive:
            for node, units in placement:
                if (free[node] != cluster.capacity[node]).any():
                    broken(f"wants node {cluster.node_names[node]} for itself, but it is in use")
                if (units * np.array(request.per_unit) > cluster.capacity[node]).any():
                    broken(f"more units than node {cluster.node_names[node]} can hold")
        for node, amounts in used_by(request, placement, cluster.capacity).items():
            free[node] -= amounts
            if (free[node] < 0).any():
                short = cluster.resources[int(np.argmin(free[node]))]
                broken(f"{cluster.node_names[node]} lacks {short}")
    return found


def holds(decision: Decision, snapshot: Snapshot) -> bool:
    """Whether `verify` finds nothing: the same rules, compiled, for the hot path."""
    table, starts = snapshot.table, decision.starts
    queued = np.zeros(len(table.units), dtype=np.int64)
    queued[snapshot.queue] = 1
    fault = kernels.take_starts(
        starts.slots,
        starts.offsets,
        starts.nodes,
        starts.units,
        queued,
        snapshot.free.copy(),
        snapshot.free.sum(axis=0),
        snapshot.cluster.capacity,
        snapshot.cluster.node_sets,
        table.units,
        table.per_unit,
        table.sharing,
        table.node_set,
    )
    return bool(fault < 0)


def units_by_node(request: Request, capacity: np.ndarray) -> np.ndarray:
    """How many units of `request` each row of `capacity` (int64[N, R]) holds, int64[N], the node set left aside."""
    fits = np.full(len(capacity), request.units, dtype=np.int64)
    for r, amount in enumerate(request.per_unit):
        if amount:
            fits = np.minimum(fits, capacity[:, r] // amount)
    return np.minimum(fits, 1) if request.distinct else fits


def refusal(request: Request, cluster: Cluster) -> str | None:
    """Why a job with this request can never run, even on the empty cluster; None when it can."""
    if len(request.per_unit) != len(cluster.resources):
        return f"asks for {len(request.per_unit)} resources, the cluster has {len(cluster.resources)}"
    if request.node_set >= len(cluster.node_sets):
        return f"node set {request.node_set} does not exist"
    fits = units_by_node(request, cluster.capacity)[cluster.node_sets[request.node_set]]
    if not fits.any():
        return "no node can hold one of its units"
    if fits.sum() < request.units:
        kind = "units on distinct nodes" if request.distinct else "units"
        return f"asks for {request.units} {kind}, the empty cluster holds {int(fits.sum())}"
    return None
