"""Orders of the queue (debs24 Algorithm 1): each gives queue positions, remaining ties in arrival order.

E is the estimate, r the processors asked for: units times the amount of the cluster's first resource.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from cpsched.availability import ARRIVAL
from cpsched.model import IntArray, Snapshot

OrderName = Literal["reg", "shortest", "longest", "sjf", "ljf", "saf", "laf", "spf"]


def processors(snapshot: Snapshot) -> IntArray:
    """r of each queued job, int64[Q]."""
    table, queue = snapshot.table, snapshot.queue
    amounts: IntArray = table.units[queue] * table.per_unit[queue, 0]
    return amounts


def arrival(snapshot: Snapshot) -> IntArray:
    """REG: as they came."""
    return ARRIVAL


def shortest(snapshot: Snapshot) -> IntArray:
    """E alone, shortest first."""
    return np.argsort(snapshot.table.estimate_s[snapshot.queue], kind="stable")


def longest(snapshot: Snapshot) -> IntArray:
    """E alone, longest first."""
    return np.argsort(-snapshot.table.estimate_s[snapshot.queue], kind="stable")


def shortest_job(snapshot: Snapshot) -> IntArray:
    """SJF: (E, r)."""
    return np.lexsort((processors(snapshot), snapshot.table.estimate_s[snapshot.queue]))


def longest_job(snapshot: Snapshot) -> IntArray:
    """LJF: (-E, r)."""
    return np.lexsort((processors(snapshot), -snapshot.table.estimate_s[snapshot.queue]))


def smallest_area(snapshot: Snapshot) -> IntArray:
    """SAF: r * E."""
    return np.argsort(processors(snapshot) * snapshot.table.estimate_s[snapshot.queue], kind="stable")


def largest_area(snapshot: Snapshot) -> IntArray:
    """LAF: -r * E."""
    return np.argsort(-processors(snapshot) * snapshot.table.estimate_s[snapshot.queue], kind="stable")


def smallest_squared_area(snapshot: Snapshot) -> IntArray:
    """SPF: (r * E², r * E, submit)."""
    estimate, r = snapshot.table.estimate_s[snapshot.queue], processors(snapshot)
    return np.lexsort((snapshot.table.submit_s[snapshot.queue], r * estimate, r * estimate * estimate))


ORDERS: dict[OrderName, Callable[[Snapshot], IntArray]] = {
    "reg": arrival,
    "shortest": shortest,
    "longest": longest,
    "sjf": shortest_job,
    "ljf": longest_job,
    "saf": smallest_area,
    "laf": largest_area,
    "spf": smallest_squared_area,
}
