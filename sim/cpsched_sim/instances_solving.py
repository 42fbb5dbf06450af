"""Solves recorded instances with dispatchers: each dispatcher in a process of its own, one after the other."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cpsched import catalogue
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import CpschedError, DecisionFault, PluginFault
from cpsched.fit import verify
from cpsched.model import Decision, Snapshot
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched.whereabouts import CodePlace
from cpsched_sim.errors import NoProgress, SimError, SolvingFailed, Unusable
from cpsched_sim.files import read_json
from cpsched_sim.instances import Instance, Solved, read_instances
from cpsched_sim.patience import LIMIT_S, patience


def solve_all(
    path: Path,
    dispatchers: Sequence[str],
    settings: Mapping[str, Mapping[str, str]],
    most: int | None = None,
    limit_s: float = LIMIT_S,
) -> Iterator[list[Solved]]:
    """The rows of each dispatcher in turn. Raises `SolvingFailed` with what went wrong there, or `Unusable`."""
    for name in dispatchers:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            try:
                told = process.submit(_told, path, name, dict(settings.get(name, {})), most, limit_s).result()
            except BrokenProcessPool as error:
                raise SolvingFailed(f"{name}: its process died", None) from error
        if isinstance(told, Failure):
            raise (SolvingFailed(told.message, told.place) if told.of_plugin else Unusable(told.message))
        yield told


class Failure(NamedTuple):
    """What went wrong in the process of a dispatcher: not every exception survives the way to another one."""

    message: str
    place: CodePlace | None
    of_plugin: bool


def _told(
    path: Path, name: str, settings: Mapping[str, str], most: int | None, limit_s: float
) -> list[Solved] | Failure:
    try:
        with patience(limit_s) as patient:
            return solve_with(path, name, settings, most, patient.renew)
    except (CpschedError, SimError) as error:
        of_plugin = isinstance(error, PluginFault | NoProgress)
        return Failure(str(error), getattr(error, "place", None), of_plugin)


def solve_with(
    path: Path, name: str, settings: Mapping[str, str], most: int | None, progress: Callable[[], None] = lambda: None
) -> list[Solved]:
    """One dispatcher on the first `most` instances of a file. Raises `DecisionFault` where it fails."""
    rows: list[Solved] = []
    for instance in islice(read_instances(path), most):
        progress()
        dispatcher = catalogue.DISPATCHERS.build(name, settings, read_json)
        if not rows:  # compile kernels and import solvers outside of what is measured
            fresh = catalogue.DISPATCHERS.build(name, settings, read_json)
            Policy(WalltimePredictor(), fresh).decide(instance.snapshot, "plan")
        rows.append(solved(instance, name, dispatcher))
    return rows


def solved(instance: Instance, name: str, dispatcher: Dispatcher) -> Solved:
    """One dispatcher, new, on one instance. Raises `DecisionFault` where it fails, or breaks a rule."""
    snapshot, policy = instance.snapshot, Policy(WalltimePredictor(), dispatcher)
    wall, cpu = time.perf_counter(), time.process_time()
    decision = policy.decide(snapshot, "plan")
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if faults := verify(decision, snapshot):
        raise DecisionFault("dispatcher", dispatcher, f"instance {instance.number}: {faults[0]}")
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
