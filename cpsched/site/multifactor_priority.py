"""Compute job priorities as Slurm does, from weighted factors such as age.

The formulas follow `priority_multifactor.c` (22.05 to 26.05). Terms are added in double precision and in a fixed order,
and the sum is truncated to an integer. Arrays have one entry per job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.model import IntArray

FloatArray = npt.NDArray[np.float64]

MIN_PRIORITY, MAX_PRIORITY = 1, 0xFFFFFFFF
"""Bounds of a priority. A priority of 0 means that the job is held."""
FIRST_BASIC_PRIORITY = 0xFFFF0000
"""Value from which `priority/basic` counts down, by one for each job with a nice value of 0."""


@dataclass(frozen=True, slots=True)
class PriorityWeights:
    """The weights of the factors (`PriorityWeight*`). A weight of 0 disables a factor.

    - `tres`: weights by trackable resource, such as {"cpu": 1000, "gres/gpu": 3000}.
    - `max_age_s`: age at which the age factor reaches 1 (`PriorityMaxAge`).
    - `favor_small`: whether the size factor is larger for smaller jobs (`PriorityFavorSmall`).
    - `size_over_time`: whether the size is divided by the time limit (`PriorityFlags=SMALL_RELATIVE_TO_TIME`).
    - `raw_partition`, `raw_qos`, `raw_association`, `raw_tres`: whether these factors are used without normalization
      (`PriorityFlags=NO_NORMAL_*`).
    """

    age: int = 0
    fair_share: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    association: int = 0
    tres: Mapping[str, float] = field(default_factory=dict)
    max_age_s: int = 7 * 86400
    favor_small: bool = False
    size_over_time: bool = False
    raw_partition: bool = False
    raw_qos: bool = False
    raw_association: bool = False
    raw_tres: bool = False

    def __post_init__(self) -> None:
        for name in ("age", "fair_share", "job_size", "partition", "qos", "association"):
            require(getattr(self, name) >= 0, f"weights.{name}", getattr(self, name), "must not be negative")
        require(self.max_age_s > 0, "weights.max_age_s", self.max_age_s, "must be positive")
        for name, weight in self.tres.items():
            require(weight >= 0, f"weights.tres.{name}", weight, "must not be negative")


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The cluster's active nodes and total CPUs, which size factors refer to."""

    nodes: int
    cpus: int


@dataclass(frozen=True, slots=True, eq=False)
class PriorityInputColumns:
    """The jobs to rank, with one column per input.

    - `accrue_s`: time in seconds at which age accrual began, or 0 if it has not begun.
    - `fair_share`: factor of the job's association, from 0 to 1 (`sshare`: FairShare).
    - `nodes`, `cpus`, `limit_min`: requested minimum nodes and CPUs, and the time limit in minutes.
    - `partition`, `qos`, `association`: their priorities (see `normalized_priority`).
    - `tres`: sum of the weighted resources (see `tres_points`).
    - `site`, `nice`: points that the site adds and points that the user subtracts.
    """

    accrue_s: IntArray
    fair_share: FloatArray
    nodes: IntArray
    cpus: IntArray
    limit_min: IntArray
    partition: FloatArray
    qos: FloatArray
    association: FloatArray
    tres: FloatArray
    site: FloatArray
    nice: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPriorityFactors:
    """The weighted points that each factor adds to the priority, as in `sprio -l`."""

    age: FloatArray
    association: FloatArray
    fair_share: FloatArray
    job_size: FloatArray
    partition: FloatArray
    qos: FloatArray
    tres: FloatArray
    site: FloatArray
    nice: FloatArray
    """Points subtracted from the sum."""

    def total(self) -> IntArray:
        """Return the priorities, truncated to integers from 1 to 2^32 - 1."""
        plus = (self.age, self.association, self.fair_share, self.job_size, self.partition, self.qos, self.tres)
        total = np.zeros_like(self.age)
        for term in plus:
            total = total + term
        return np.clip(total + self.site - self.nice, MIN_PRIORITY, MAX_PRIORITY).astype(np.int64)


def priority_points(
    jobs: PriorityInputColumns, weights: PriorityWeights, machine: ClusterSize, now_s: int
) -> WeightedPriorityFactors:
    """Return the points that each factor adds to each job's priority at `now_s`."""
    return WeightedPriorityFactors(
        age=weights.age * age_factor(now_s, jobs.accrue_s, weights.max_age_s),
        association=weights.association * jobs.association,
        fair_share=weights.fair_share * jobs.fair_share,
        job_size=weights.job_size * size_factor(jobs.nodes, jobs.cpus, jobs.limit_min, weights, machine),
        partition=weights.partition * jobs.partition,
        qos=weights.qos * jobs.qos,
        tres=jobs.tres,
        site=jobs.site,
        nice=jobs.nice,
    )


def age_factor(now_s: int, accrue_s: IntArray, max_age_s: int) -> FloatArray:
    """Return min(1, age / `max_age_s`), or 0 if age accrual has not begun."""
    age: FloatArray = np.minimum(1.0, np.maximum(0, now_s - accrue_s) / max_age_s)
    return np.where(accrue_s == 0, 0.0, age)


def size_factor(
    nodes: IntArray, cpus: IntArray, limit_min: IntArray, weights: PriorityWeights, machine: ClusterSize
) -> FloatArray:
    """Return the size factor of each job, from 0 to 1.

    It depends on the nodes, the CPUs and, with `size_over_time`, the time limit. An unknown number of CPUs (0) is
    ignored.
    """
    if machine.nodes <= 0 or machine.cpus <= 0:
        return np.zeros(len(nodes))
    if weights.size_over_time:
        average = nodes * machine.cpus / machine.nodes
        relative = np.maximum(average, cpus) / np.maximum(1, limit_min) / machine.cpus
        return np.clip(1.0 - relative if weights.favor_small else relative, 0.0, 1.0)
    if weights.favor_small:
        by_nodes, by_cpus = np.maximum(0, machine.nodes - nodes) / machine.nodes, (machine.cpus - cpus) / machine.cpus
    else:
        by_nodes, by_cpus = nodes / machine.nodes, cpus / machine.cpus
    return np.clip(np.where(cpus > 0, (by_nodes + by_cpus) / 2, by_nodes), 0.0, 1.0)


def normalized_priority(value: int, largest: int, raw: bool = False) -> float:
    """Return a priority divided by the largest of its kind, or unchanged if `raw`."""
    if raw:
        return float(value)
    return value / largest if largest > 0 else 0.0


def tres_points(requested: Mapping[str, int], present: Mapping[str, int], weights: PriorityWeights) -> float:
    """Return the points for requested resources, given the partition's totals."""
    total = 0.0
    for name, weight in weights.tres.items():
        amount = requested.get(name, 0)
        if weights.raw_tres:
            total += amount * weight
        elif amount and present.get(name):
            total += amount / present[name] * weight
    return total


def basic_priorities(nices: Sequence[int]) -> IntArray:
    """Return the priorities that `priority/basic` assigns in order of arrival.

    Each job's priority is one below the lowest earlier priority, minus the job's nice value. Slurm ranks a released job
    after all other jobs, but this function keeps the order of arrival.
    """
    found, lowest = np.empty(len(nices), np.int64), FIRST_BASIC_PRIORITY
    for at, nice in enumerate(nices):
        found[at] = min(max(lowest - 1 - nice, MIN_PRIORITY), MAX_PRIORITY)
        lowest = min(lowest, int(found[at]))
    return found


@dataclass(frozen=True, slots=True)
class PriorityPolicy:
    """How the site ranks jobs: by factors (`multifactor`) or by arrival (`basic`)."""

    kind: Literal["multifactor", "basic"] = "multifactor"
    weights: PriorityWeights = field(default_factory=PriorityWeights)
    always_accrues: bool = False
    """Whether age accrues from submission, whatever the job waits for (`PriorityFlags=ACCRUE_ALWAYS`)."""
    period_s: int = 300
    """Interval in seconds at which priorities are computed again (`PriorityCalcPeriod`)."""


def age_accrual_start_s(submit_s: int, begin_s: int, free_since_s: int, always: bool) -> int:
    """Return when a job began to accrue age, as if the job had not been held.

    - `begin_s`: requested begin time, or 0 if there is none.
    - `free_since_s`: time at which the job's dependencies were observed to be satisfied, or 0 without dependencies.
    - `always`: whether age accrues from submission.
    """
    return submit_s if always else max(submit_s, begin_s, free_since_s)
