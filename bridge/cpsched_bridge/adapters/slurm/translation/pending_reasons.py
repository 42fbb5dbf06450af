"""Define what Slurm's pending reasons mean for the job and for the bridge.

The names are those of Slurm 22.05 to 26.05 (`src/common/job_state_reason.c`). The table follows three rules:

- A reason for one user's job makes only that user's jobs back off. A job may hit a limit on a whole QOS, account or
  partition because it requests too much, while other jobs would be accepted. Each user's own jobs are therefore tried.
- If Slurm's reason shows that the job is not at fault, a start whose job does not run counts as failed.
- A reason that is not in the table concerns the job and equivalent jobs, which are retried less often. The start does
  not count as failed, because Slurm gave a reason. Since 26.05, topology plugins give their reasons as sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation.slurm_states import LAUNCH_FAILED_REASONS
from cpsched_bridge.backoff_groups import BackoffGroupKey
from cpsched_bridge.ports import ClusterReason


class PendingJobWithReason(NamedTuple):
    """A pending job, with the fields that identify its groups."""

    label: str
    slurm_job: SlurmJob
    alike: BackoffGroupKey
    """The backoff key of equivalent jobs."""


Group = Callable[[PendingJobWithReason], BackoffGroupKey]
"""A function that returns the backoff key of one of a job's groups."""


def make_job_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the job's own key."""
    return BackoffGroupKey("job", (job.label,))


def make_array_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the key of the job's array, or the job's own key if it has no array."""
    array = job.slurm_job.array_id
    return BackoffGroupKey("array", (str(array),)) if array else make_job_backoff_key(job)


def make_equivalence_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the key of jobs with the same user, account, partition, QOS and request."""
    return job.alike


def make_association_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the key of jobs with the same user and account."""
    return BackoffGroupKey("association", (_get_user(job), job.slurm_job.account))


def make_qos_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the key of jobs with the same user and QOS."""
    return BackoffGroupKey("qos", (job.slurm_job.qos, _get_user(job)))


def make_partition_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the key of jobs with the same user and partition."""
    return BackoffGroupKey("partition", (job.slurm_job.partition, _get_user(job)))


def make_access_backoff_key(job: PendingJobWithReason) -> BackoffGroupKey:
    """Return the key of jobs with the same user, partition, account and QOS."""
    slurm_job = job.slurm_job
    return BackoffGroupKey("access", (slurm_job.partition, _get_user(job), slurm_job.account, slurm_job.qos))


def _get_user(job: PendingJobWithReason) -> str:
    return job.slurm_job.user_name or str(job.slurm_job.user_id)


BACKOFF_KEY_MAKERS: tuple[Group, ...] = (
    make_job_backoff_key,
    make_array_backoff_key,
    make_equivalence_backoff_key,
    make_association_backoff_key,
    make_qos_backoff_key,
    make_partition_backoff_key,
    make_access_backoff_key,
)


@dataclass(frozen=True, slots=True)
class PendingReasonMeaning:
    """The meaning of a reason for a job that was released and does not run.

    - `group`: returns the key of the group that backs off, or None if the reason concerns none of the user's jobs.
    - `clears_on_end`: whether the reason may disappear when one of the group's jobs ends.
    - `transient`: whether Slurm may show the reason briefly after a release, until its scheduler has tried the job.
    - `refused`: whether Slurm refuses to start the job on its nodes. The start then counts as failed immediately.
    - `lower_priority`: whether other jobs go first. A slow start then does not indicate a broken cluster.
    """

    group: Group | None
    clears_on_end: bool = False
    transient: bool = False
    lower_priority: bool = False
    refused: bool = False


JOB = PendingReasonMeaning(make_job_backoff_key)
JOB_MOMENTARILY = PendingReasonMeaning(make_job_backoff_key, transient=True)
UNLISTED = PendingReasonMeaning(make_equivalence_backoff_key, transient=True)
"""Meaning of a reason that no table contains. Slurm may show it only until its scheduler has tried the job."""
EQUIVALENT_JOBS = PendingReasonMeaning(make_equivalence_backoff_key)
ACCESS = PendingReasonMeaning(make_access_backoff_key)
"""Meaning of reasons that concern the user's jobs with the same account, QOS and partition."""
PARTITION = PendingReasonMeaning(make_partition_backoff_key)
ARRAY = PendingReasonMeaning(make_array_backoff_key, clears_on_end=True)
ASSOCIATION = PendingReasonMeaning(make_association_backoff_key, clears_on_end=True)
"""Meaning of reasons that concern the user's jobs in the account."""
QOS = PendingReasonMeaning(make_qos_backoff_key, clears_on_end=True)
"""Meaning of reasons that concern the user's jobs in the QOS."""
PRIORITY_ORDER = PendingReasonMeaning(None, lower_priority=True)
REFUSED_NODES = PendingReasonMeaning(None, refused=True)
NO_GROUP = PendingReasonMeaning(None)
"""Meaning of reasons that concern the chosen nodes, all jobs, a held job, or a job that has run. No group backs off."""

_NAMES_BY_MEANING: tuple[tuple[PendingReasonMeaning, str], ...] = (
    (JOB, """
     BurstBufferOperation BurstBufferResources BurstBufferStageIn DeadLine DependencyNeverSatisfied JobHoldMaxRequeue
     Reservation ReservationDeleted ReservationInvalid"""),
    (JOB_MOMENTARILY, "BeginTime Dependency"),
    (EQUIVALENT_JOBS, """
     BadConstraints Constraints Licenses MaxMemPerLimit MpiPortsBusy NvidiaImexChannels PartitionNodeLimit
     PartitionTimeLimit
     AssocMaxBBMinutesPerJob AssocMaxBBPerJob AssocMaxBBPerNode AssocMaxBillingMinutesPerJob AssocMaxBillingPerJob
     AssocMaxBillingPerNode AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode
     AssocMaxEnergyMinutesPerJob AssocMaxEnergyPerJob AssocMaxEnergyPerNode AssocMaxGRESMinutesPerJob
     AssocMaxGRESPerJob AssocMaxGRESPerNode AssocMaxLicenseMinutesPerJob AssocMaxLicensePerJob
     AssocMaxMemMinutesPerJob AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxNodeMinutesPerJob AssocMaxNodePerJobLimit
     AssocMaxUnknownMinutesPerJob AssocMaxUnknownPerJob AssocMaxUnknownPerNode AssocMaxWallDurationPerJobLimit
     QOSMaxBBPerJob QOSMaxBBPerNode QOSMaxBillingMinutesPerJob QOSMaxBillingPerJob QOSMaxBillingPerNode
     QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxEnergyMinutesPerJob QOSMaxEnergyPerJob
     QOSMaxEnergyPerNode QOSMaxGRESMinutesPerJob QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxLicenseMinutesPerJob
     QOSMaxLicensePerJob QOSMaxMemoryMinutesPerJob QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxNodeMinutesPerJob
     QOSMaxNodePerJobLimit QOSMaxUnknownMinutesPerJob QOSMaxUnknownPerJob QOSMaxUnknownPerNode
     QOSMaxWallDurationPerJobLimit QOSMinBB QOSMinBilling QOSMinCpuNotSatisfied QOSMinEnergy QOSMinGRES QOSMinLicense
     QOSMinMemory QOSMinNode QOSMinUnknown"""),
    (ACCESS, """
     AccountNotAllowed AccountingPolicy InvalidAccount InvalidQOS PartitionConfig QOSNotAllowed QOSUsageThreshold"""),
    (PARTITION, "PartitionDown PartitionInactive"),
    (ARRAY, "JobArrayTaskLimit"),
    (ASSOCIATION, """
     AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes AssocGrpBilling AssocGrpBillingMinutes AssocGrpBillingRunMinutes
     AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpCpuLimit AssocGrpEnergy AssocGrpEnergyMinutes
     AssocGrpEnergyRunMinutes AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes AssocGrpJobsLimit AssocGrpLicense
     AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocGrpMemLimit AssocGrpMemMinutes AssocGrpMemRunMinutes
     AssocGrpNodeLimit AssocGrpNodeMinutes AssocGrpNodeRunMinutes AssocGrpSubmitJobsLimit AssocGrpUnknown
     AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes AssocGrpWallLimit AssocMaxJobsLimit AssocMaxSubmitJobLimit
     AssociationJobLimit AssociationResourceLimit AssociationTimeLimit"""),
    (QOS, """
     QOSGrpBB QOSGrpBBMinutes QOSGrpBBRunMinutes QOSGrpBilling QOSGrpBillingMinutes QOSGrpBillingRunMinutes
     QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpCpuLimit QOSGrpEnergy QOSGrpEnergyMinutes
     QOSGrpEnergyRunMinutes QOSGrpGRES QOSGrpGRESMinutes QOSGrpGRESRunMinutes QOSGrpJobsLimit QOSGrpLicense
     QOSGrpLicenseMinutes QOSGrpLicenseRunMinutes QOSGrpMemLimit QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes
     QOSGrpNodeLimit QOSGrpNodeMinutes QOSGrpNodeRunMinutes QOSGrpSubmitJobsLimit QOSGrpUnknown QOSGrpUnknownMinutes
     QOSGrpUnknownRunMinutes QOSGrpWallLimit QOSJobLimit QOSResourceLimit QOSTimeLimit
     MaxBBRunMinsPerUser MaxBillingRunMinsPerUser MaxCpuRunMinsPerUser MaxEnergyRunMinsPerUser MaxGRESRunMinsPerUser
     MaxLicenseRunMinsPerUser MaxMemoryRunMinsPerUser MaxNodeRunMinsPerUser MaxUnknownRunMinsPerUser QOSMaxBBPerUser
     QOSMaxBillingPerUser QOSMaxCpuPerUserLimit QOSMaxEnergyPerUser QOSMaxGRESPerUser QOSMaxJobsPerUserLimit
     QOSMaxLicensePerUser QOSMaxMemoryPerUser QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxUnknownPerUser
     MaxBBPerAccount MaxBBRunMinsPerAccount MaxBillingPerAccount MaxBillingRunMinsPerAccount MaxCpuPerAccount
     MaxCpuRunMinsPerAccount MaxEnergyPerAccount MaxEnergyRunMinsPerAccount MaxGRESPerAccount MaxGRESRunMinsPerAccount
     MaxJobsPerAccount MaxLicensePerAccount MaxLicenseRunMinsPerAccount MaxMemoryPerAccount MaxMemoryRunMinsPerAccount
     MaxNodePerAccount MaxNodeRunMinsPerAccount MaxSubmitJobsPerAccount MaxUnknownPerAccount
     MaxUnknownRunMinsPerAccount"""),
    (PRIORITY_ORDER, "Priority"),
    (REFUSED_NODES, "ReqNodeNotAvail"),
    (NO_GROUP, """
     NodeDown Resources
     Cleaning FedJobLock FrontEndDown JobLaunchFailure MaxPoweredUpNodes None PowerNotAvail PowerReserved Prolog
     SchedDefer SystemFailure
     JobHeldAdmin JobHeldUser
     InactiveLimit NonZeroExitCode OutOfMemory RaisedSignal TimeLimit"""),
)  # fmt: skip

REASONS: dict[str, PendingReasonMeaning] = {
    **{name: meaning for meaning, names in _NAMES_BY_MEANING for name in names.split()},
    **dict.fromkeys(sorted(LAUNCH_FAILED_REASONS), JOB),
}
"""Meanings of the reasons that Slurm can show, by name or, for a failed launch, by sentence."""

REASON_FAMILIES: tuple[tuple[str, PendingReasonMeaning], ...] = (
    (r"(Assoc|QOS)(Max\w+Per(Job|Node)|Min)\w*", EQUIVALENT_JOBS),
    (r"Assoc\w+", ASSOCIATION),
    (r"(QOS|Max)\w+", QOS),
)
"""Name patterns and meanings of limits that later Slurm releases may add. The first match counts."""

SENTENCE_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"Job's QOS not (known|permitted)", "QOSNotAllowed"),
    (r"Job's account not (known|permitted)|uid \d+ not in group", "AccountNotAllowed"),
    (r"ReqNodeNotAvail, May be reserved", "Priority"),
    (r"ReqNodeNotAvail\b", "ReqNodeNotAvail"),
    (r"Nodes required for job are DOWN", "Resources"),
    (r"Reservation \S+ was deleted", "ReservationDeleted"),
    (r"Reservation \S+ is invalid", "ReservationInvalid"),
    *((re.escape(sentence.replace("_", " ")), sentence) for sentence in sorted(LAUNCH_FAILED_REASONS)),
    (r"job requeued in ", "JobHeldUser"),
    (r"License request .* is no longer valid", "JobHeldAdmin"),
    (r"burst.buffer/", "BurstBufferOperation"),
    (r"Job is at or exceeds ", "TimeLimit"),
)
"""Patterns for the beginnings of sentences that Slurm shows instead of a reason's name, with that name."""


@lru_cache(maxsize=1024)
def normalize_reason_name(reason: str) -> str:
    """Return the name of a reason, which Slurm may show as a sentence.

    An unknown sentence is returned unchanged.
    """
    if reason in REASONS:
        return reason
    sentence = reason.replace("_", " ")  # scontrol replaces blanks with underscores
    return next((name for begins, name in SENTENCE_PATTERNS if re.match(begins, sentence)), reason)


@lru_cache(maxsize=1024)
def get_reason_meaning(reason: str) -> PendingReasonMeaning:
    """Return the meaning of a reason, which may be a name or a sentence."""
    name = normalize_reason_name(reason)
    if name in REASONS or not name:
        return REASONS.get(name, NO_GROUP)
    return next((meaning for pattern, meaning in REASON_FAMILIES if re.fullmatch(pattern, name)), UNLISTED)


def find_cluster_reason(job: PendingJobWithReason) -> ClusterReason | None:
    """Return a pending job's reason if it concerns the job or its user's jobs."""
    reason = job.slurm_job.state_reason
    meaning = get_reason_meaning(reason)
    if meaning.group is None:
        return None
    return ClusterReason(normalize_reason_name(reason), meaning.group(job), meaning.transient, meaning.clears_on_end)


def list_backoff_keys(job: PendingJobWithReason) -> tuple[BackoffGroupKey, ...]:
    """Return the distinct keys of all groups that a reason for this job may concern."""
    return tuple(dict.fromkeys(group(job) for group in BACKOFF_KEY_MAKERS))
