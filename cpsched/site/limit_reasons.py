"""Slurm's reason names for limits, as `squeue` shows them (`job_state_reason.c`)."""

from __future__ import annotations

from typing import Literal

Owner = Literal["QOS", "Assoc"]
Scope = Literal["group", "minutes", "running-minutes", "job", "job-minutes", "node", "user", "account", "least",
                "user-running-minutes", "account-running-minutes"]  # fmt: skip
"""Scope of a trackable resource limit, such as all jobs together, one job or a user's jobs."""

LICENSES_REASON = "Licenses"
"""Slurm's reason for a job that waits for licenses."""
_RESOURCE_WORDS = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "energy": "Energy", "billing": "Billing"}
_RESOURCE_FAMILIES = {"gres": "GRES", "license": "License", "bb": "BB"}

_PATTERNS: dict[tuple[str, Scope], str] = {
    ("QOS", "group"): "QOSGrp{}",
    ("QOS", "minutes"): "QOSGrp{}Minutes",
    ("QOS", "running-minutes"): "QOSGrp{}RunMinutes",
    ("QOS", "job"): "QOSMax{}PerJob",
    ("QOS", "job-minutes"): "QOSMax{}MinutesPerJob",
    ("QOS", "node"): "QOSMax{}PerNode",
    ("QOS", "user"): "QOSMax{}PerUser",
    ("QOS", "account"): "Max{}PerAccount",
    ("QOS", "least"): "QOSMin{}",
    ("QOS", "user-running-minutes"): "Max{}RunMinsPerUser",
    ("QOS", "account-running-minutes"): "Max{}RunMinsPerAccount",
    ("Assoc", "group"): "AssocGrp{}",
    ("Assoc", "minutes"): "AssocGrp{}Minutes",
    ("Assoc", "running-minutes"): "AssocGrp{}RunMinutes",
    ("Assoc", "job"): "AssocMax{}PerJob",
    ("Assoc", "job-minutes"): "AssocMax{}MinutesPerJob",
    ("Assoc", "node"): "AssocMax{}PerNode",
}

_IRREGULAR_REASONS = {
    "QOSGrpCpu": "QOSGrpCpuLimit",
    "QOSGrpMem": "QOSGrpMemLimit",
    "QOSGrpNode": "QOSGrpNodeLimit",
    "QOSGrpCpuMinutes": "QOSGrpCPUMinutesLimit",
    "QOSGrpCpuRunMinutes": "QOSGrpCPURunMinutesLimit",
    "QOSGrpMemMinutes": "QOSGrpMemoryMinutes",
    "QOSGrpMemRunMinutes": "QOSGrpMemoryRunMinutes",
    "QOSMaxCpuPerJob": "QOSMaxCpuPerJobLimit",
    "QOSMaxNodePerJob": "QOSMaxNodePerJobLimit",
    "QOSMaxMemPerJob": "QOSMaxMemoryPerJob",
    "QOSMaxCpuMinutesPerJob": "QOSMaxCpuMinutesPerJobLimit",
    "QOSMaxMemMinutesPerJob": "QOSMaxMemoryMinutesPerJob",
    "QOSMaxMemPerNode": "QOSMaxMemoryPerNode",
    "QOSMaxCpuPerUser": "QOSMaxCpuPerUserLimit",
    "QOSMaxNodePerUser": "QOSMaxNodePerUserLimit",
    "QOSMaxMemPerUser": "QOSMaxMemoryPerUser",
    "QOSMinCpu": "QOSMinCpuNotSatisfied",
    "QOSMinMem": "QOSMinMemory",
    "MaxMemPerAccount": "MaxMemoryPerAccount",
    "MaxMemRunMinsPerUser": "MaxMemoryRunMinsPerUser",
    "MaxMemRunMinsPerAccount": "MaxMemoryRunMinsPerAccount",
    "AssocGrpCpu": "AssocGrpCpuLimit",
    "AssocGrpMem": "AssocGrpMemLimit",
    "AssocGrpNode": "AssocGrpNodeLimit",
    "AssocGrpCpuMinutes": "AssocGrpCPUMinutesLimit",
    "AssocGrpCpuRunMinutes": "AssocGrpCPURunMinutesLimit",
    "AssocMaxCpuPerJob": "AssocMaxCpuPerJobLimit",
    "AssocMaxNodePerJob": "AssocMaxNodePerJobLimit",
    "AssocMaxCpuMinutesPerJob": "AssocMaxCpuMinutesPerJobLimit",
}
"""Reason names that do not follow the pattern."""

JOB_COUNT_REASONS = {
    ("QOS", "group"): "QOSGrpJobsLimit",
    ("QOS", "user"): "QOSMaxJobsPerUserLimit",
    ("QOS", "account"): "MaxJobsPerAccount",
    ("Assoc", "group"): "AssocGrpJobsLimit",
    ("Assoc", "job"): "AssocMaxJobsLimit",
}
"""Reason names for limits on the number of jobs. An association's MaxJobs has the scope `job`."""
WALL_REASONS = {"QOS": "QOSMaxWallDurationPerJobLimit", "Assoc": "AssocMaxWallDurationPerJobLimit"}
GROUP_WALL_REASONS = {"QOS": "QOSGrpWallLimit", "Assoc": "AssocGrpWallLimit"}


def slurm_limit_reason(owner: Owner, scope: Scope, tres: str) -> str:
    """Return Slurm's reason name for a limit on a trackable resource.

    >>> slurm_limit_reason("QOS", "user", "gres/gpu"), slurm_limit_reason("Assoc", "group", "cpu")
    ('QOSMaxGRESPerUser', 'AssocGrpCpuLimit')
    """
    kind = _RESOURCE_WORDS.get(tres) or _RESOURCE_FAMILIES.get(tres.partition("/")[0], "Unknown")
    name = _PATTERNS[owner, scope].format(kind)
    return _IRREGULAR_REASONS.get(name, name)
