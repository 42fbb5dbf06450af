"""Start jobs on parts of GPUs as a bridge would."""

from __future__ import annotations

import time
from typing import Any

from cpsched import verify
from cpsched.model import ClusterState
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.ports import Observation, StartOrder
from tests.slurm.inside.adapter import make_backend


def list_fitting_nodes(label: str) -> list[str]:
    """Return the nodes on which a pending job fits now."""
    seen = make_backend().observe()
    (job,) = (pending.job for pending in seen.pending if pending.label == label)
    sets, names = seen.cluster.node_sets[job.request.node_set], seen.cluster.node_names
    fits = (seen.free >= job.request.per_unit).all(axis=1) & sets
    return [name for name, ok in zip(names, fits, strict=True) if ok]


def run_all(limit_s: float) -> dict[str, Any]:
    """Decide and start until no job is pending. Return the starts of each cycle, and what went wrong."""
    backend, policy = make_backend(), PolicySpec.parse("easy").build()
    cycles: list[int] = []
    faults: list[str] = []
    end_s = time.monotonic() + limit_s
    while (seen := backend.observe()).pending and time.monotonic() < end_s:
        faults += [f"{each.label} is unmanaged: {each.reason}" for each in seen.unmanaged]
        queue = tuple(pending.job for pending in seen.pending if pending.job.ineligible is None)
        snapshot = policy.add_estimates(ClusterState(seen.now_s, seen.cluster, seen.free, queue, seen.running))
        decision = policy.decide(snapshot)
        faults += [str(violation) for violation in verify(decision, snapshot)]
        settings = {pending.job.id: pending.start_settings for pending in seen.pending}
        jobs = {job.id: job for job in queue}
        orders = [
            StartOrder(
                jobs[number],
                tuple((seen.cluster.node_names[node], units) for node, units in placement),
                settings[number],
            )
            for number, placement in decision.starts_by_job(snapshot).items()
        ]
        faults += [outcome.detail for outcome in backend.start(orders) if outcome.result != "done"]
        faults += _wait_until_started(backend, {order.job.id for order in orders})
        cycles.append(len(orders))
    return {"cycles": cycles, "faults": faults, "left": len(seen.pending)}


def _wait_until_started(backend: Any, numbers: set[int]) -> list[str]:
    """Wait until no started job is pending. After 20 s, return those that are."""
    end_s = time.monotonic() + 20
    while True:
        seen: Observation = backend.observe(numbers)
        waiting = [pending.label for pending in seen.pending if pending.job.id in numbers]
        if not waiting:
            return []
        if time.monotonic() > end_s:
            return [f"{label} has not started" for label in waiting]
        time.sleep(0.2)
