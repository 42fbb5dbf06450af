"""Job priorities as Slurm computes them: weighted factors of age, fair share, size and others.

The formulas follow `priority_multifactor.c` (22.05 to 26.05): terms are added in double precision and in a fixed order,
and the sum is truncated to an integer. Arrays have one entry per job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cpsched.errors import require
from cpsched.model import IntArray

FloatArray = npt.NDArray[np.float64]

MIN_PRIORITY, MAX_PRIORITY = 1, 0xFFFFFFFF
"""Bounds of a priority; 0 means that a job is held."""
FIRST_BASIC_PRIORITY = 0xFFFF0000
"""First priority that `priority/basic` assigns; each job gets a lower priority than all jobs before it."""


@dataclass(frozen=True, slots=True)
class PriorityWeights:
    """The weight of each factor (`PriorityWeight*`). A weight of 0 disables the factor.

    - `tres`: by trackable resource, such as {"cpu": 1000, "gres/gpu": 3000}.
    - `max_age_s`: age at which the age factor reaches 1 (`PriorityMaxAge`).
    - `favor_small`: the size factor is larger for smaller jobs (`PriorityFavorSmall`).
    - `size_over_time`: the size factor is divided by the time limit (`PriorityFlags=SMALL_RELATIVE_TO_TIME`).
    - `raw_partition`, `raw_qos`, `raw_association`, `raw_tres`: these factors are not normalized by the largest value
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
    """The reference for size factors: the active `nodes`, and the `cpus` of the whole cluster."""

    nodes: int
    cpus: int


@dataclass(frozen=True, slots=True, eq=False)
class PriorityInputColumns:
    """The jobs to rank, one column per input.

    - `accrue_s`: time at which age accrual began, s; 0 if it has not begun.
    - `fair_share`: factor of the job's association, 0 to 1 (`sshare`: FairShare).
    - `nodes`, `cpus`: minimum request; `limit_min`: time limit in minutes.
    - `partition`, `qos`, `association`: priority of each (see `normalized_priority`).
    - `tres`: sum of the weighted resources (see `tres_points`).
    - `site`, `nice`: points that the site adds, and points that the user subtracts.
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
    """The points that each factor adds to the priority, weights included: the columns of `sprio -l`."""

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
        """Return the priorities, truncated and bounded to 1 to 2^32 - 1."""
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
    """Return age / `max_age_s`, at most 1; 0 if the job does not yet accrue age."""
    age: FloatArray = np.minimum(1.0, np.maximum(0, now_s - accrue_s) / max_age_s)
    return np.where(accrue_s == 0, 0.0, age)


def size_factor(
    nodes: IntArray, cpus: IntArray, limit_min: IntArray, weights: PriorityWeights, machine: ClusterSize
) -> FloatArray:
    """Return the size factor of each job, 0 to 1: by nodes and processors, or by processors and time limit.

    If the number of processors is unknown (0), the factor depends on the nodes only.
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
    """Return a priority divided by the largest priority of its kind; unchanged if `raw`."""
    if raw:
        return float(value)
    return value / largest if largest > 0 else 0.0


def tres_points(requested: Mapping[str, int], present: Mapping[str, int], weights: PriorityWeights) -> float:
    """Return the points for requested trackable resources; `present` holds the totals of the job's partition."""
    total = 0.0
    for name, weight in weights.tres.items():
        amount = requested.get(name, 0)
        if weights.raw_tres:
            total += amount * weight
        elif amount and present.get(name):
            total += amount / present[name] * weight
    return total


def basic_priorities(nices: Sequence[int]) -> IntArray:
    """Return the priorities of `priority/basic` for jobs by arrival, each below all earlier ones minus its nice value.

    Slurm ranks a released job after all other jobs. This function keeps the order of arrival.
    """
    found, lowest = np.empty(len(nices), np.int64), FIRST_BASIC_PRIORITY
    for at, nice in enumerate(nices):
        found[at] = min(max(lowest - 1 - nice, MIN_PRIORITY), MAX_PRIORITY)
        lowest = min(lowest, int(found[at]))
    return found


@dataclass(frozen=True, slots=True)
class PriorityPolicy:
    """The site's ranking of jobs: by factors (`multifactor_priority`) or by arrival (`basic`).

    `always_accrues` selects when age accrual begins (see `age_start_s`).
    """

    kind: str = "multifactor"
    weights: PriorityWeights = field(default_factory=PriorityWeights)
    always_accrues: bool = False
    """`PriorityFlags=ACCRUE_ALWAYS`: age accrues from submission, whatever the job waits for."""


def age_start_s(submit_s: int, begin_s: int, free_since_s: int, always: bool) -> int:
    """Return when a job began to accrue age, as if the job had not been held.

    - `begin_s`: requested begin time (0: none).
    - `free_since_s`: when its dependencies were satisfied, as observed (0: none).
    - `always`: age accrues from submission.
    """
    return submit_s if always else max(submit_s, begin_s, free_since_s)
