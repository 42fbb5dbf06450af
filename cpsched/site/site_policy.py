"""A site's policy: priorities, fair share, limits, QOS and preemption.

The bridge reads it from Slurm (`cpsched.slurm_text`), and the simulator from a policy file. Defaults are Slurm's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from cpsched.site.accounts import AssociationTree, PartitionLimit, Qos, Tres
from cpsched.site.multifactor_priority import PriorityPolicy, normalized_priority
from cpsched.site.preemption import PreemptionRules, PreemptMode

FairShareAlgorithm = Literal["fair-tree", "classic", "depth-oblivious"]


@dataclass(frozen=True, slots=True)
class PartitionPolicy:
    """The properties of a partition that affect job order, limits and preemption.

    - `tier`, `factor`: `PriorityTier` and `PriorityJobFactor`.
    - `qos`: the QOS whose limits apply to the partition's jobs, or "".
    - `tres`: amount of each trackable resource in the partition.
    - `preempt_mode`: what happens to preempted jobs (`PreemptMode`). None means the cluster's mode.
    - `grace_s`: how long jobs continue to run after they are preempted (`GraceTime`).
    """

    tier: int = 1
    factor: int = 1
    qos: str = ""
    tres: Tres = field(default_factory=dict)
    preempt_mode: PreemptMode | None = None
    grace_s: int = 0


DEFAULT_PARTITION = PartitionPolicy()


@dataclass(frozen=True, slots=True)
class FairShareRules:
    """How fair-share factors follow from shares and usage.

    - `algorithm`: Slurm's Fair Tree, or the formula of `PriorityFlags=NO_FAIR_TREE` or `DEPTH_OBLIVIOUS`.
    - `half_life_s`: half-life of past usage (`PriorityDecayHalfLife`). 0 means that usage does not decay.
    - `dampening`: `FairShareDampeningFactor`, which Fair Tree does not use.
    """

    algorithm: FairShareAlgorithm = "fair-tree"
    half_life_s: float = 7 * 86_400.0
    dampening: float = 1.0


class NormalizedPriorities(NamedTuple):
    """The priorities of a job's partition, QOS and association as factors (see `normalized_priority`)."""

    partition: float
    qos: float
    association: float


@dataclass(frozen=True)
class SitePolicy:
    """A site's policy.

    - `limits_hold`: whether limits are enforced (`AccountingStorageEnforce=limits`).
    - `safe`: whether a job starts only if the remaining minutes last until the job's end (`safe`).
    - `licenses`: how many of each license running jobs may hold in total. Slurm skips a job whose licenses are in use
      (`license_job_test` in slurmctld/licenses.c), so each license is another limit on a sum.
    - `preemption`: which jobs may preempt which, or None if no job is preempted.
    """

    accounts: AssociationTree = field(default_factory=AssociationTree)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    partitions: Mapping[str, PartitionPolicy] = field(default_factory=dict)
    limits_hold: bool = True
    safe: bool = False
    licenses: Mapping[str, int] = field(default_factory=dict)
    priority: PriorityPolicy = field(default_factory=PriorityPolicy)
    fair_share: FairShareRules = field(default_factory=FairShareRules)
    preemption: PreemptionRules | None = None

    @cached_property
    def highest_qos_priority(self) -> int:
        """The highest QOS priority."""
        return max((qos.priority for qos in self.qos.values()), default=0)

    @cached_property
    def highest_partition_factor(self) -> int:
        """The highest priority factor among the partitions."""
        return max((partition.factor for partition in self.partitions.values()), default=1)

    @cached_property
    def partition_limit_exemptions(self) -> dict[str, frozenset[PartitionLimit]]:
        """The limits of partitions that do not apply to the jobs of a QOS, by QOS."""
        return {name: qos.exempt_from for name, qos in self.qos.items() if qos.exempt_from}

    def partition(self, name: str) -> PartitionPolicy:
        """Return a partition's properties, or Slurm's defaults for an unlisted partition."""
        return self.partitions.get(name, DEFAULT_PARTITION)

    def qos_by_precedence(self, job_qos: str, partition: str) -> tuple[Qos, ...]:
        """Return the QOSes whose limits apply to a job, in order of precedence."""
        of_job, of_partition = self.qos.get(job_qos), self.qos.get(self.partition(partition).qos)
        order: Sequence[Qos | None] = (of_partition, of_job)
        if of_job is not None and of_job.over_partition:
            order = (of_job, of_partition)
        return tuple({qos.name: qos for qos in order if qos is not None}.values())

    def normalized_priorities(self, association: int | None, partition: str, qos: str) -> NormalizedPriorities:
        """Return the factors of a job with this association (by index), partition and QOS."""
        weights, of_job = self.priority.weights, self.qos.get(qos)
        factor = self.partition(partition).factor
        of_user = 0 if association is None else self.accounts.associations[association].priority
        return NormalizedPriorities(
            normalized_priority(factor, self.highest_partition_factor, weights.raw_partition),
            normalized_priority(of_job.priority, self.highest_qos_priority, weights.raw_qos) if of_job else 0.0,
            normalized_priority(of_user, self.accounts.highest_priority, weights.raw_association),
        )

    def preempt_exempt_s(self, qos: str, partition: str) -> int:
        """Return how long a job runs before it may be preempted, in seconds."""
        times = (each.preempt_exempt_s for each in self.qos_by_precedence(qos, partition))
        of_cluster = 0 if self.preemption is None else self.preemption.exempt_s
        return next((time_s for time_s in times if time_s is not None), of_cluster)

    def with_preemption(self, cluster: PreemptionRules, preempts_within: bool = False) -> SitePolicy:
        """Return the policy with the cluster's rules, and those of its QOSes or partitions.

        `preempts_within` is whether jobs of all QOSes may preempt jobs of the same QOS.
        """
        if cluster.kind == "partition_prio":
            rules = replace(
                cluster,
                ranks={name: each.tier for name, each in self.partitions.items()},
                modes={name: each.preempt_mode for name, each in self.partitions.items() if each.preempt_mode},
                grace_s={name: each.grace_s for name, each in self.partitions.items() if each.grace_s},
            )
            return replace(self, preemption=rules)

        preempts = {
            name: each.preempts | {name} if preempts_within or each.preempts_within else each.preempts
            for name, each in self.qos.items()
        }
        rules = replace(
            cluster,
            preempts={name: victims for name, victims in preempts.items() if victims},
            ranks={name: each.priority for name, each in self.qos.items()},
            # Slurm takes `off` for a QOS without a mode (`job_preempt_mode` in preempt_qos.c)
            modes={n: each.preempt_mode for n, each in self.qos.items() if each.preempt_mode not in (None, "off")},
            grace_s={name: each.grace_s for name, each in self.qos.items() if each.grace_s},
        )
        return replace(self, preemption=rules)
