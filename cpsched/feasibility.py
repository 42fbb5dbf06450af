"""The one fit rule: does this decision fit that snapshot, node by node, resource by resource?

Used by the bridge before anything is applied, by the simulator in every round, and by the tests as the judge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpsched.model import Decision, Placement, Request, Snapshot


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
