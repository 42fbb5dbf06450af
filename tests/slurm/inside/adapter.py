"""Use the Slurm adapter as a bridge would: observe, start, hold, release, and survive faults of the child."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from cpsched.model import EndedJob, IntArray
from cpsched_bridge.adapters.slurm.slurm_backend import SlurmBackend
from cpsched_bridge.adapters.slurm.slurm_options import Options, connect, make_transport
from cpsched_bridge.adapters.slurm.transport import transport_trial
from cpsched_bridge.errors import BackendError
from cpsched_bridge.ports import Observation, StartOrder, UndoOrder


def make_backend(deadline_s: float = 20.0) -> SlurmBackend:
    transport: Any = os.environ["CPSCHED_TRANSPORT"]
    return SlurmBackend(make_transport(Options(transport=transport, deadline_s=deadline_s)))


def _pack(seen: Observation, wanted: Collection[int] | None = None) -> tuple[list[StartOrder], IntArray]:
    """Return start orders for what fits, first fit from the last node on, and the free amounts that should remain."""
    capacity, sets, names = seen.cluster.capacity, seen.cluster.node_sets, seen.cluster.node_names
    free = seen.free.copy()
    orders = []
    for pending in seen.pending:
        request = pending.job.request
        if pending.job.ineligible or pending.hold != "plugin" or (wanted is not None and pending.job.id not in wanted):
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


def _observe_until(
    backend: SlurmBackend, holds: Callable[[Observation], bool], timeout_s: float = 60, pinned: Collection[int] = ()
) -> Observation:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        seen = backend.observe(pinned)
        if holds(seen):
            return seen
        time.sleep(0.2)
    raise SystemExit(f"not within {timeout_s} s")


def start_all() -> dict[str, Any]:
    """Start what fits. Return what was decided, and what Slurm then shows."""
    backend = make_backend()
    seen = backend.observe()
    orders, free = _pack(seen)
    outcomes = backend.start(orders)
    label = {pending.job.id: pending.label for pending in seen.pending}
    started = {order.job.id for order in orders}
    seen = _observe_until(backend, lambda now: started <= {running.job.id for running in now.running})
    names = seen.cluster.node_names
    return {
        "decided": {label[order.job.id]: sorted(name for name, _ in order.nodes) for order in orders},
        "cores": {label[order.job.id]: order.job.request.units * order.job.request.per_unit[0] for order in orders},
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
    _observe_until(backend, lambda now: all(p.pinned and p.hold == "none" for p in now.pending), pinned=ids)
    held = backend.hold(_undo(orders))
    _observe_until(backend, lambda now: all(p.hold == "plugin" and not p.pinned for p in now.pending), pinned=ids)
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


def start_and_hold_running_job() -> list[str]:
    """Start a job, and start and hold it again while it runs. Return the outcomes."""
    backend = make_backend()
    orders, _ = _pack(backend.observe())
    first = backend.start(orders)
    _observe_until(backend, lambda now: len(now.running) == 1)
    again = backend.start([StartOrder(orders[0].job, (("n1", 1),))])
    hold = backend.hold(_undo(orders[:1]))
    return [first[0].result, again[0].result, hold[0].result]


def requeue_pinned_job() -> tuple[list[tuple[str, bool]], str, list[tuple[str, bool]]]:
    """Requeue a job that the bridge started, then hold it. Return its holds and pins, and the outcome."""
    backend = make_backend()
    orders, _ = _pack(backend.observe())
    backend.start(orders)
    _observe_until(backend, lambda now: len(now.running) == 1)
    number = orders[0].job.id
    subprocess.run(["scontrol", "requeue", str(number)], check=True)
    seen = _observe_until(backend, lambda now: bool(now.pending), 40, {number})
    requeued = [(pending.hold.value, pending.pinned) for pending in seen.pending]
    held = backend.hold(_undo(orders[:1]))
    seen = backend.observe()
    return requeued, held[0].result, [(pending.hold.value, pending.pinned) for pending in seen.pending]


def start_two_eligible_jobs() -> tuple[list[str], list[str], dict[str, tuple[str, bool]]]:
    """Start two jobs. Return the eligible jobs, the running jobs, and the hold and eligibility of the others."""
    backend = make_backend()
    seen = backend.observe()
    label = {pending.job.id: pending.label for pending in seen.pending}
    eligible = {pending.job.id for pending in seen.pending if pending.job.ineligible is None}
    orders, _ = _pack(seen, eligible)
    backend.start(orders[:2])
    seen = _observe_until(backend, lambda now: len(now.running) == 2)
    waiting = {each.label: (each.hold.value, each.job.ineligible is None) for each in seen.pending}
    return sorted(label[i] for i in eligible), sorted(label[each.job.id] for each in seen.running), waiting


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

    _observe_until(backend, have_all_ended, 40)
    time.sleep(2)
    past = {each.job.id for each in make_backend().read_history()}
    return {label[each.job.id]: (each.run_s, each.job.id in past, each.job.user) for each in ended}


def observe_within(deadline_s: float) -> tuple[str, float]:
    """Return the kind of error of an observation, or "answered", and its time in seconds."""
    backend = make_backend(deadline_s)
    start_s = time.monotonic()
    try:
        backend.observe()
        return "answered", time.monotonic() - start_s
    except BackendError as error:
        return type(error).__name__, time.monotonic() - start_s


def stop_and_kill_child(deadline_s: float) -> tuple[list[str], float, int, int]:
    """Stop the pyslurm child, and kill the next one.

    Return the errors, the first wait in seconds, and the numbers of children and of nodes.
    """
    transport: Any = make_transport(Options(transport="pyslurm", deadline_s=deadline_s))
    backend = SlurmBackend(transport)
    backend.observe()
    first = transport.reader.client.pid
    os.kill(first, signal.SIGSTOP)
    start_s = time.monotonic()
    kinds = []
    try:
        backend.observe()
    except BackendError as error:
        kinds.append(type(error).__name__)
    waited_s = time.monotonic() - start_s
    backend.observe()
    second = transport.reader.client.pid
    os.kill(second, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (second, signal.SIGKILL)).start()
    try:
        backend.observe()
    except BackendError as error:
        kinds.append(type(error).__name__)
    seen = backend.observe()
    return kinds, waited_s, len({first, second, transport.reader.client.pid}), len(seen.cluster.node_names)


def run_checks() -> dict[str, tuple[bool, bool, str]]:
    """Return the doctor's checks: whether each is ok and required, and its remedy."""
    return {check.name: (check.ok, check.required, check.fix) for check in make_backend().run_checks()}


def read_priorities() -> dict[str, Any]:
    """Return the doctor's checks, and the priorities that the bridge computes for all pending jobs."""
    transport: Any = os.environ["CPSCHED_TRANSPORT"]
    with closing(connect(Options(transport=transport))) as backend:
        seen = backend.observe()
        checks = {check.name: (check.ok, check.detail) for check in backend.run_checks()}
        pending = {each.label: each.job.priority for each in seen.pending}
    return {"checks": checks, "priorities": pending, "notes": seen.notes}


def try_both_transports() -> tuple[str, str]:
    """Return what a backend with `transport: auto` reports before and after its trial."""
    transport_trial.MIN_JOBS = 0
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
