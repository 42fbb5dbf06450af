"""Compare computed priorities with those in `sprio` for jobs that are not held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cpsched.errors import escape_controls
from cpsched.site.multifactor_priority import ClusterSize, WeightedPriorityFactors
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.slurm.policy.priority_ranking import (
    JobEligibleTimes,
    compute_age_start_s,
    compute_priority_points,
)
from cpsched_bridge.adapters.slurm.translation import slurm_states

COLUMNS = {
    "priority": "Y", "age": "A", "association": "B", "fair_share": "F", "job_size": "J", "partition": "P", "qos": "Q",
    "nice": "N", "site": "S", "tres": "T",
}  # fmt: skip
"""Compared columns with sprio's letters. TRES is last, because it may consist of several fields or none."""
_LETTERS = ("i", *COLUMNS.values())
COMMAND = ("sprio", "-h", "-o", " ".join("%T" if letter == "T" else f"%.30{letter}" for letter in _LETTERS))


@dataclass(frozen=True, slots=True)
class PriorityDifference:
    """A job whose priority differs from Slurm's, and the factor that differs most."""

    job_id: int
    here: int
    slurm: int
    factor: str
    points_here: float
    points_slurm: float

    def __str__(self) -> str:
        return (
            f"job {self.job_id}: {self.here:,} instead of {self.slurm:,}, mainly because {self.factor} is "
            f"{self.points_here:,.1f} instead of {self.points_slurm:,.1f}"
        )


@dataclass(frozen=True, slots=True)
class SprioComparison:
    """The number of compared jobs, and those with a significant difference.

    Differences due to rounding or to the time between two readings are not significant.
    """

    jobs: int
    differences: tuple[PriorityDifference, ...]


class SprioRow(NamedTuple):
    """A job's priority in `sprio` and its parts, in the order of `COLUMNS`."""

    priority: float
    age: float
    association: float
    fair_share: float
    job_size: float
    partition: float
    qos: float
    nice: float
    site: float
    tres: float


def parse_sprio(text: str) -> dict[int, SprioRow]:
    """Return each job's values in the output of `COMMAND`, by job number.

    Jobs that name several partitions or QOS are omitted, because they have several priorities.
    """
    found: dict[int, SprioRow] = {}
    several = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) < len(COLUMNS) or not words[0].isdigit():
            continue
        number = int(words[0])
        if number in found:
            several.add(number)
        values = map(_parse_float_or_zero, words[1 : len(COLUMNS)])
        found[number] = SprioRow._make([*values, _sum_tres_points(words[len(COLUMNS) :])])
    return {number: row for number, row in found.items() if number not in several}


def _parse_float_or_zero(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _sum_tres_points(words: Sequence[str]) -> float:
    """Return the sum of the points in words such as `cpu=10.00,gres/gpu=30.00`."""
    return sum(_parse_float_or_zero(part.rpartition("=")[2]) for word in words for part in word.split(","))


def compare_with_sprio(
    shown: Mapping[int, SprioRow],
    records: Sequence[SlurmJob],
    reading: SitePolicyReading,
    machine: ClusterSize,
    now_s: int,
) -> SprioComparison:
    """Return a comparison of the jobs that `sprio` shows.

    The age factor may differ by its growth in one period. Fractions are truncated.
    """
    jobs = [
        job
        for job in records
        if job.state == slurm_states.PENDING and job.priority and job.id in shown
        and "," not in job.partition
    ]  # fmt: skip
    rules = reading.policy.priority
    accrued = [compute_age_start_s(job, rules, JobEligibleTimes()) for job in jobs]
    found = compute_priority_points(jobs, reading, machine, now_s, accrued) if jobs else None
    if found is None or rules.kind == "basic":
        return SprioComparison(0, ())
    drift = rules.weights.age * (rules.period_s + 60) / rules.weights.max_age_s
    totals = found.total().tolist()
    different = []
    for at, job in enumerate(jobs):
        slurm = shown[job.id]
        if not -1 <= totals[at] - slurm.priority <= drift + 1:
            different.append(_make_priority_difference(job.id, found, at, totals[at], slurm))
    return SprioComparison(len(jobs), tuple(different))


def _make_priority_difference(
    number: int, found: WeightedPriorityFactors, at: int, here: int, slurm: SprioRow
) -> PriorityDifference:
    mine = {name: float(getattr(found, name)[at]) for name in COLUMNS if name != "priority"}
    theirs = slurm._asdict()
    factor = max(mine, key=lambda name: abs(mine[name] - theirs[name]))
    return PriorityDifference(number, here, int(slurm.priority), escape_controls(factor), mine[factor], theirs[factor])
