"""Which queued jobs are considered, and the facts that the dispatchers of this family need of them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.cp import positions as kernels
from cpsched.dispatchers.cp.positions import Facts, Plan
from cpsched.model import IntArray, Snapshot

Scalar = TypeVar("Scalar", bound=np.generic)


def facts_of(snapshot: Snapshot) -> Facts:
    """The columns of `snapshot`, read-only; no job is considered yet."""
    table, cluster = snapshot.table, snapshot.cluster
    return Facts(
        snapshot.now_s,
        _fixed(np.empty(0, np.int64)),
        _fixed(snapshot.free),
        _fixed(cluster.capacity),
        _fixed(cluster.node_sets),
        _fixed(table.estimate_s),
        _fixed(table.units),
        _fixed(table.per_unit),
        _fixed(table.sharing),
        _fixed(table.node_set),
        _fixed(snapshot.running),
        _fixed(table.end_s),
        _fixed(table.place_at),
        _fixed(table.place_count),
        _fixed(table.place_node),
        _fixed(table.place_units),
    )


def _fixed(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only view: kernels are compiled for those."""
    view = array.view()
    view.setflags(write=False)
    return view


def consider(facts: Facts, jobs: IntArray) -> Facts:
    """The same facts with `jobs` (slots in priority order) considered."""
    return facts._replace(jobs=_fixed(jobs))


def startable(facts: Facts, queue: IntArray, most: int) -> IntArray:
    """The first `most` slots of `queue` that each could start now, were they alone (cp19 section 3)."""
    return kernels.startable(facts, _fixed(queue), most)


def empty_plan(facts: Facts) -> Plan:
    """A plan with room for every unit of the considered jobs."""
    J, R = len(facts.jobs), facts.capacity.shape[1]
    first = np.zeros(J + 1, np.int64)
    np.cumsum(facts.units[facts.jobs], out=first[1:])
    P = int(first[-1])
    return Plan(
        start_s=np.full(J, -1, np.int64),
        first=first,
        parts=np.zeros(J, np.int64),
        node=np.zeros(P, np.int64),
        units=np.zeros(P, np.int64),
        y=np.zeros((P, R), np.int64),
        dy=np.zeros((P, R), np.int64),
    )


def copy_of(plan: Plan) -> Plan:
    """The plan as it is now."""
    return Plan(*(column.copy() for column in plan))


def first_leaf(facts: Facts) -> Plan:
    """The first leaf of the paper's search, complete: every considered job has its start."""
    plan = empty_plan(facts)
    kernels.dive(facts, plan, np.arange(len(facts.jobs)), False)
    return plan
