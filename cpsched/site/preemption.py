"""Preemption: which running jobs a pending job may stop, by the rules of Slurm's plug-ins.

A job belongs to a *class*: its QOS with `preempt/qos`, its partition with `preempt/partition_prio`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cpsched.model import Job

PreemptionType = Literal["qos", "partition_prio"]
PreemptMode = Literal["off", "requeue", "cancel", "suspend"]
"""What happens to a preempted job."""


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Who preempts whom, and how.

    - `mode`: the mode of classes without an entry in `modes` (`PreemptMode` in slurm.conf).
    - `preempts`: the QOS that each QOS preempts (`Preempt=` of a QOS); for `qos` only.
    - `tiers`: the tier of each partition (`PriorityTier`); for `partition_prio` only. Higher tiers preempt lower ones.
    - `modes`: the mode of a QOS or partition (`PreemptMode` there).
    """

    kind: PreemptionType
    mode: PreemptMode
    preempts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    modes: Mapping[str, PreemptMode] = field(default_factory=dict)

    def class_of(self, job: Job) -> str:
        """Return the class of a job; "" if it has none."""
        return self.class_named(job.qos, job.queue)

    def class_named(self, qos: str, partition: str) -> str:
        """Return the class of jobs with this QOS in this partition."""
        return qos if self.kind == "qos" else partition

    def mode_of(self, victim: str) -> PreemptMode:
        """Return what happens to a preempted job of this class."""
        return self.modes.get(victim, self.mode)

    def may_preempt(self, preemptor: str, victim: str) -> bool:
        """Return whether jobs of class `preemptor` may stop running jobs of class `victim`."""
        if self.mode == "off" or self.mode_of(victim) == "off":
            return False
        if self.kind == "qos":
            return victim in self.preempts.get(preemptor, ())
        return victim in self.tiers and self.tiers[victim] < self.tiers.get(preemptor, 0)

    def victims_of(self, preemptor: str) -> tuple[str, ...]:
        """Return the classes whose jobs the jobs of a class may preempt, sorted."""
        return tuple(sorted(name for name in self.classes if self.may_preempt(preemptor, name)))

    def preemptors_of(self, victim: str) -> tuple[str, ...]:
        """Return the classes whose jobs may preempt jobs of this class, sorted."""
        return tuple(sorted(name for name in self.classes if self.may_preempt(name, victim)))

    @property
    def classes(self) -> frozenset[str]:
        """Every class that the rules name."""
        if self.kind == "qos":
            return frozenset(self.preempts).union(*self.preempts.values())
        return frozenset(self.tiers)
