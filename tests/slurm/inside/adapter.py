"""Use the Slurm adapter as a bridge would: observe, start, hold and release."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from cpsched.model import EndedJob, IntArray
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_options import Options, connect, make_transport
from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_transport
from cpsched_bridge.ports import Observation, StartOrder, UndoOrder
from tests.backend_contract import CHECKS, observe_until


def options() -> Options:
    transport: Any = os.environ["CPSCHED_TRANSPORT"]
    return Options(transport=transport, deadline_s=20.0)


def make_backend() -> SlurmBackend:
    return SlurmBackend(make_transport(options()))


class SlurmSite:
    """The jobs that a test has submitted, for the contract of backends."""

    def connect(self) -> SlurmBackend:
        return make_backend()

    def wait(self) -> None:
        time.sleep(0.2)

    def end(self, job_id: int) -> None:
        subprocess.run(["scancel", str(job_id)], check=True)


def check_contract(name: str) -> None:
    """Check one promise of `Backend`."""
    CHECKS[name](SlurmSite())


def _pack(seen: Observation) -> tuple[list[StartOrder], IntArray]:
    """Return start orders for what fits, first fit from the last node on, and the free amounts that should remain."""
    capacity, sets, names = seen.cluster.capacity, seen.cluster.node_sets, seen.cluster.node_names
    free = seen.free.copy()
    orders = []
    for pending in seen.pending:
        request = pending.job.request
        if pending.job.ineligible or pending.hold != "plugin":
            continue
        need = capacity if request.exclusive else np.tile(np.array(request.per_unit), (len(free), 1))
        fit = [n for n in range(len(free))[::-1] if sets[request.node_set, n] and (free[n] >= need[n]).all()]
        if len(fit) >= request.units:
            for node in fit[: request.units]:
                free[node] -= need[node]
            nodes = tuple((names[node], 1) for node in sorted(fit[: request.units]))
            orders.append(StartOrder(pending.job, nodes, pending.start_settings))
    return orders, free


def _undo(orders: Iterable[StartOrder]) -> list[UndoOrder]:
    return [UndoOrder(order.job_id, pinned=True, restore=order.settings.restore) for order in orders]


def start_all() -> dict[str, Any]:
    """Start what fits. Return what was decided, with the cores of jobs that share nodes, and what Slurm then shows."""
    backend = make_backend()
    seen = backend.observe()
    orders, free = _pack(seen)
    outcomes = backend.start(orders)
    label = {pending.job.id: pending.label for pending in seen.pending}
    started = {order.job.id for order in orders}
    seen = observe_until(SlurmSite(), backend, lambda now: started <= {running.job.id for running in now.running})
    names = seen.cluster.node_names
    shared = [order for order in orders if not order.job.request.exclusive]
    return {
        "decided": {label[order.job.id]: sorted(name for name, _ in order.nodes) for order in orders},
        "cores": {label[order.job.id]: order.job.request.units * order.job.request.per_unit[0] for order in shared},
        "seen": {label[each.job.id]: sorted(names[node] for node, _ in each.placement) for each in seen.running},
        "outcomes": [outcome.result for outcome in outcomes],
        "free": seen.free.tolist(),
        "expected": free.tolist(),
    }


def start_and_hold_again() -> list[tuple[str, str]]:
    """Start jobs on nodes that accept none, and hold them again. Return the outcomes of the holds."""
    backend = make_backend()
    seen = backend.observe()
    orders, _ = _pack(replace(seen, free=seen.cluster.capacity.copy()))
    backend.start(orders)
    ids = {order.job_id for order in orders}
    observe_until(SlurmSite(), backend, lambda now: all(p.pinned and p.hold == "none" for p in now.pending), ids)
    held = backend.hold(_undo(orders))
    observe_until(SlurmSite(), backend, lambda now: all(p.hold == "plugin" and not p.pinned for p in now.pending), ids)
    return [(outcome.result, outcome.detail) for outcome in held]


def hold_and_release(*jobs: str) -> dict[str, Any]:
    """Hold and release jobs. Return the outcomes, and the jobs that are unmanaged."""
    backend = make_backend()
    seen = backend.observe()
    orders = [UndoOrder(int(job)) for job in jobs]
    return {
        "hold": [outcome.result for outcome in backend.hold(orders)],
        "back": [outcome.result for outcome in backend.release(orders)],
        "unmanaged": {each.label: each.reason.code for each in seen.unmanaged},
    }


def list_fitting_nodes(label: str) -> list[str]:
    """Return the nodes on which a pending job fits now."""
    seen = make_backend().observe()
    (job,) = (pending.job for pending in seen.pending if pending.label == label)
    fits = (seen.free >= job.request.per_unit).all(axis=1) & seen.cluster.node_sets[job.request.node_set]
    return [name for name, ok in zip(seen.cluster.node_names, fits, strict=True) if ok]


def start_until_ended() -> dict[str, tuple[int, bool, str]]:
    """Start jobs. Return the run time of each ended job, whether it is in the history, and its user."""
    backend = make_backend()
    seen = backend.observe()
    label = {pending.job.id: pending.label for pending in seen.pending}
    orders, _ = _pack(seen)
    backend.start(orders)
    ended: list[EndedJob] = []

    def have_all_ended(now: Observation) -> bool:
        ended.extend(now.ended)
        return len(ended) == len(orders)

    observe_until(SlurmSite(), backend, have_all_ended)
    time.sleep(2)
    past = {each.job.id for each in make_backend().read_history()}
    return {label[each.job.id]: (each.run_s, each.job.id in past, each.job.user) for each in ended}


def run_checks() -> dict[str, tuple[bool, bool, str]]:
    """Return the doctor's checks: whether each is ok and required, and its remedy."""
    return {check.name: (check.ok, check.required, check.fix) for check in make_backend().run_checks()}


def read_priorities() -> dict[str, Any]:
    """Return the doctor's checks, and the priorities that the bridge computes for all pending jobs."""
    with closing(connect(options())) as backend:
        seen = backend.observe()
        checks = {check.name: (check.ok, check.detail) for check in backend.run_checks()}
        pending = {each.label: each.job.priority for each in seen.pending}
    return {"checks": checks, "priorities": pending, "notes": seen.notes}


def try_both_transports() -> tuple[str, str]:
    """Return what a backend with `transport: auto` reports before and after its trial."""
    pyslurm_transport.MIN_JOBS = 0
    with closing(connect(Options(site_policy=False, deadline_s=60.0))) as backend:
        first = backend.transport_info
        for _ in range(30):
            backend.observe()
            if backend.transport_trial is None:
                break
            backend.transport_trial.pyslurm.reader.client.wait_until_ready(20.0)
        return first, backend.transport_info


def start_burst(count: int) -> tuple[int, float, float, int]:
    """Start `count` jobs in one batch.

    Return how many run, the seconds of the commands and until all are seen running, and the number of failures.
    """
    backend = make_backend()
    seen = backend.observe()
    free = seen.free.copy()
    orders: list[StartOrder] = []
    for pending in seen.pending[:count]:
        need = np.array(pending.job.request.per_unit)
        node = int(np.flatnonzero((free >= need).all(axis=1))[-1 - len(orders) % 50])
        free[node] -= need
        orders.append(StartOrder(pending.job, ((seen.cluster.node_names[node], 1),), pending.start_settings))
    wanted = {order.job.id for order in orders}
    start_s = time.monotonic()
    outcomes = backend.start(orders)
    commands_s = time.monotonic() - start_s
    while True:
        running = {each.job.id for each in backend.observe().running}
        all_s = time.monotonic() - start_s
        if wanted <= running or all_s > 60:
            break
        time.sleep(0.05)
    return len(wanted & running), commands_s, all_s, sum(outcome.result != "done" for outcome in outcomes)
