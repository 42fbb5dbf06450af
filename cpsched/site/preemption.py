"""Which running jobs a pending job may preempt under Slurm's preemption plug-ins.

A job belongs to a *class*: its QOS with `preempt/qos`, its partition with `preempt/partition_prio`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cpsched.model import Job

PreemptionType = Literal["qos", "partition_prio"]
PreemptMode = Literal["off", "requeue", "cancel", "suspend"]
"""Action on a preempted job."""


@dataclass(frozen=True, slots=True)
class VictimOrder:
    """The order in which Slurm stops jobs (`PreemptParameters`)."""

    youngest_first: bool = False
    strict_order: bool = False
    reorder_count: int = 1


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Which jobs may preempt which running jobs, and how.

    - `mode`: the mode of classes without an entry in `modes` (`PreemptMode` in slurm.conf).
    - `preempts`: the QOSes that each QOS may preempt (a QOS's `Preempt`), for `qos` only.
    - `ranks`: each QOS's priority or each partition's tier. Victims with a low rank are stopped first. With
      `partition_prio`, jobs preempt those of partitions with a lower rank.
    - `modes`: the mode of each QOS or partition that sets its own `PreemptMode`.
    - `grace_s`: how long jobs of a class continue to run after they are preempted (`GraceTime`).
    - `exempt_s`: how long jobs run before they may be preempted, unless a QOS sets its own time
      (`PreemptExemptTime`).
    - `victim_order`: the order in which jobs are stopped, or None if an option of it is not modelled.
    - `kill_wait_s`: the time that a stopped job has to end (`KillWait`).
    """

    kind: PreemptionType
    mode: PreemptMode
    preempts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    modes: Mapping[str, PreemptMode] = field(default_factory=dict)
    grace_s: Mapping[str, int] = field(default_factory=dict)
    exempt_s: int = 0
    victim_order: VictimOrder | None = field(default_factory=VictimOrder)
    kill_wait_s: int = 30

    def class_of(self, job: Job) -> str:
        """Return a job's class, or "" if it has none."""
        return self.class_of_qos_or_partition(job.qos, job.queue)

    def class_of_qos_or_partition(self, qos: str, partition: str) -> str:
        """Return the class of jobs with this QOS in this partition."""
        return qos if self.kind == "qos" else partition

    def mode_of(self, victim: str) -> PreemptMode:
        """Return what happens to a preempted job of this class."""
        return self.modes.get(victim, self.mode)

    def may_preempt(self, preemptor: str, victim: str) -> bool:
        """Return whether jobs of one class may stop running jobs of another class."""
        if self.mode == "off" or self.mode_of(victim) == "off":
            return False
        if self.kind == "qos":
            return victim in self.preempts.get(preemptor, ())
        return victim in self.ranks and self.ranks[victim] < self.ranks.get(preemptor, 0)

    def preemptible_classes_of(self, preemptor: str) -> tuple[str, ...]:
        """Return the sorted classes whose jobs a job of this class may preempt."""
        return tuple(sorted(name for name in self.classes if self.may_preempt(preemptor, name)))

    def preempting_classes_of(self, victim: str) -> tuple[str, ...]:
        """Return the sorted classes whose jobs may preempt a job of this class."""
        return tuple(sorted(name for name in self.classes if self.may_preempt(name, victim)))

    @property
    def classes(self) -> frozenset[str]:
        """All classes that the rules name."""
        if self.kind == "qos":
            return frozenset(self.preempts).union(*self.preempts.values())
        return frozenset(self.ranks)
