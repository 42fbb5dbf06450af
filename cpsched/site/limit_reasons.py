"""Slurm's reason names for limits, as shown by `squeue` (`job_state_reason.c`)."""

from __future__ import annotations

from typing import Literal

Owner = Literal["QOS", "Assoc"]
Scope = Literal["group", "minutes", "running-minutes", "job", "job-minutes", "node", "user", "account", "least",
                "user-running-minutes", "account-running-minutes"]  # fmt: skip
"""Scope of a limit on a trackable resource: all jobs together, one job, a node of a job, a user's jobs, ..."""

_KINDS = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "energy": "Energy", "billing": "Billing"}
_FAMILIES = {"gres": "GRES", "license": "License", "bb": "BB"}

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

_IRREGULAR = {
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
"""Names that do not follow the pattern."""

JOBS = {
    ("QOS", "group"): "QOSGrpJobsLimit",
    ("QOS", "user"): "QOSMaxJobsPerUserLimit",
    ("QOS", "account"): "MaxJobsPerAccount",
    ("Assoc", "group"): "AssocGrpJobsLimit",
    ("Assoc", "job"): "AssocMaxJobsLimit",
}
"""Limits on the number of jobs; an association's MaxJobs has the scope `job`."""
WALL = {"QOS": "QOSMaxWallDurationPerJobLimit", "Assoc": "AssocMaxWallDurationPerJobLimit"}
GROUP_WALL = {"QOS": "QOSGrpWallLimit", "Assoc": "AssocGrpWallLimit"}


def reason_of(owner: Owner, scope: Scope, tres: str) -> str:
    """Return Slurm's reason name for a limit on a trackable resource.

    >>> reason_of("QOS", "user", "gres/gpu"), reason_of("Assoc", "group", "cpu")
    ('QOSMaxGRESPerUser', 'AssocGrpCpuLimit')
    """
    kind = _KINDS.get(tres) or _FAMILIES.get(tres.partition("/")[0], "Unknown")
    name = _PATTERNS[owner, scope].format(kind)
    return _IRREGULAR.get(name, name)
