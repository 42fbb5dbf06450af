"""Solves recorded instances with dispatchers: each dispatcher in a process of its own, one after the other."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from cpsched import catalogue
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CpschedError
from cpsched.fit import verify
from cpsched.model import Decision, Snapshot
from cpsched_sim.errors import SimError, Unusable
from cpsched_sim.files import read_json
from cpsched_sim.instances import Instance, Solved, read_instances


def solve_all(
    path: Path, dispatchers: Sequence[str], settings: Mapping[str, Mapping[str, str]], most: int | None = None
) -> Iterator[list[Solved]]:
    """The rows of each dispatcher in turn. Raises `Unusable` with what went wrong, in the file or with a dispatcher."""
    for name in dispatchers:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            rows, error = process.submit(_told, path, name, dict(settings.get(name, {})), most).result()
        if error:
            raise Unusable(error)
        yield rows


def _told(path: Path, name: str, settings: Mapping[str, str], most: int | None) -> tuple[list[Solved], str]:
    """The rows, or what went wrong: not every exception survives the way to another process."""
    try:
        return solve_with(path, name, settings, most), ""
    except (CpschedError, SimError) as error:
        return [], str(error)


def solve_with(path: Path, name: str, settings: Mapping[str, str], most: int | None) -> list[Solved]:
    """One dispatcher on the first `most` instances of a file."""
    rows: list[Solved] = []
    for instance in islice(read_instances(path), most):
        dispatcher = catalogue.DISPATCHERS.build(name, settings, read_json)
        if not rows:  # compile kernels and import solvers outside of what is measured
            catalogue.DISPATCHERS.build(name, settings, read_json).decide(instance.snapshot, "plan")
        rows.append(solved(instance, name, dispatcher))
    return rows


def solved(instance: Instance, name: str, dispatcher: Dispatcher) -> Solved:
    """One dispatcher, new, on one instance."""
    snapshot = instance.snapshot
    wall, cpu = time.perf_counter(), time.process_time()
    decision = dispatcher.decide(snapshot, "plan")
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if faults := verify(decision, snapshot):
        raise Unusable(f"{name}, instance {instance.number}: {faults[0]}")
    effort = decision.effort
    gap = None
    if effort.objective is not None and effort.bound is not None:
        gap = max(0.0, effort.objective - effort.bound) / max(abs(effort.objective), 1e-12)
    return Solved(
        instance=instance.number,
        dispatcher=name,
        queued=len(snapshot.queue),
        considered=effort.considered,
        variables=effort.variables,
        path=effort.path,
        status=effort.status,
        starts=len(decision.starts),
        unplaced=effort.unplaced,
        objective=effort.objective,
        bound=effort.bound,
        gap=gap,
        slowdown=_slowdown(decision, snapshot),
        wall_ms=wall * 1000,
        cpu_ms=cpu * 1000,
        first_ms=effort.first_s * 1000,
        best_ms=effort.best_s * 1000,
        memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _slowdown(decision: Decision, snapshot: Snapshot) -> float:
    """The mean slowdown that the starts of this round have if estimates hold; comparable between objectives."""
    slots = decision.starts.slots
    if len(slots) == 0:
        return 0.0
    estimate_s = snapshot.table.estimate_s[slots]
    waited_s = snapshot.now_s - snapshot.table.submit_s[slots]
    return float(np.mean((waited_s + estimate_s) / estimate_s))
