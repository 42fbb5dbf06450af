"""The site configurations of the live suite: their files, and the settings of real sites that they cover."""

import re

import pytest

from cpsched.slurm_text.hostlist import expand_hostlist
from tests.slurm.site_configs import CONFIGS, NODES, SiteConfig
from tests.slurm.sites import jobs_of, run_of, shapes_of

CONF_NAMES = {
    "ClusterName", "StateSaveLocation", "AccountingStorageEnforce", "PriorityType", "PriorityWeightFairshare",
    "SchedulerType", "SelectType", "SelectTypeParameters", "PreemptType", "PreemptMode", "SuspendProgram",
    "ResumeProgram", "SuspendTime", "SuspendTimeout", "ResumeTimeout", "Licenses", "GresTypes", "TopologyPlugin",
    "NodeName", "PartitionName", "SchedulerParameters",
}  # fmt: skip
NODE_NAMES = {
    "NodeName", "NodeHostname", "NodeAddr", "Port", "CPUs", "Sockets", "CoresPerSocket", "ThreadsPerCore",
    "RealMemory", "Weight", "Feature", "Gres",
}  # fmt: skip
PARTITION_NAMES = {
    "PartitionName", "Nodes", "Default", "DefaultTime", "State", "MaxTime", "PriorityTier", "OverSubscribe",
    "MaxNodes", "MinNodes", "AllowAccounts", "AllowQos", "MaxCPUsPerNode", "MaxMemPerCPU", "MaxMemPerNode",
    "DefCpuPerGPU", "PreemptMode",
}  # fmt: skip
QOS_NAMES = {"MaxJobsPerUser", "MaxTRESPerUser", "Priority", "Preempt"}
GRES_NAMES = {"NodeName", "Name", "Type", "File", "Count"}
TOPOLOGY_NAMES = {"SwitchName", "Nodes", "Switches", "BlockName", "BlockSizes"}

SETTINGS = """
01 multifactor tree memory gpu enforced qos weights features overlap exclusive sharing allow threads
02 multifactor tree memory gpu enforced qos weights features overlap allow threads node-limits
03 preemption multifactor memory licenses exclusive allow enforced features threads overlap
04 preemption multifactor memory gpu enforced features overlap allow
05 power gpu features cores-only overlap
06 preemption multifactor memory enforced qos features node-limits overlap
07 preemption multifactor memory gpu licenses enforced weights features overlap allow threads qos
08 preemption multifactor memory licenses enforced features overlap allow threads
09 preemption multifactor tree memory sockets exclusive allow overlap
10 multifactor memory gpu enforced overlap builtin qos
11 multifactor tree memory gpu overlap
12 linear threads memory overlap
13 memory enforced overlap qos
14 cores-only overlap
15 preemption multifactor tree memory gpu enforced qos weights features overlap
16 preemption multifactor memory gpu features threads overlap qos
17 cores-only gpu shard power features overlap allow
18 multifactor memory gpu enforced overlap qos
19 multifactor memory enforced overlap qos
20 memory gpu weights threads overlap
21 cores-only gpu threads overlap
22 linear memory overlap
23 multifactor memory enforced qos features overlap
24 multifactor memory gpu overlap
25 multifactor memory gpu blocks overlap
"""
"""The settings of the sampled sites that a configuration can show, by its number."""


def settings_of(config: SiteConfig) -> set[str]:
    """Return the settings that the files of a configuration have."""
    conf, text = config.slurm_conf(), "\n".join(config.slurm_conf())
    words = {
        "blocks": "topology/block",
        "preemption": "PreemptType=", "tree": "TopologyPlugin=topology/tree", "gpu": "Gres=gpu", "shard": "shard:",
        "features": "Feature=", "exclusive": "OverSubscribe=EXCLUSIVE", "sharing": "OverSubscribe=YES",
        "allow": "AllowAccounts=", "threads": "ThreadsPerCore=2", "node-limits": "MaxCPUsPerNode=",
        "power": "SuspendTime=", "licenses": "Licenses=", "linear": "select/linear", "sockets": "CR_Socket",
        "cores-only": "=CR_Core\n",
        "builtin": "sched/builtin", "enforced": "AccountingStorageEnforce=limits",
    }  # fmt: skip
    found = {name for name, word in words.items() if word in text}
    nodes = [
        set(expand_hostlist(re.search(r"Nodes=(\S+)", line)[1].replace("],w[", ",")))
        for line in conf
        if line.startswith("PartitionName")
    ]
    overlap = any(mine & other for at, mine in enumerate(nodes) for other in nodes[:at])
    derived = {
        "memory": "cores-only" not in found, "multifactor": "priority/basic" not in text, "overlap": overlap,
        "qos": bool(config.qos), "weights": len(set(config.weights().values())) > 1,
    }  # fmt: skip
    return found | {name for name, present in derived.items() if present}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.cluster)
def test_configuration_has_settings_of_its_site(config):
    rows = {line.split()[0]: set(line.split()[1:]) for line in SETTINGS.strip().splitlines()}
    assert settings_of(config) == rows[config.cluster.removeprefix("site")]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.cluster)
def test_configuration_names_only_known_parameters(config):
    """Slurm stops at an unknown name, and the live run with it."""

    def names(line: str) -> set[str]:
        return {word.partition("=")[0] for word in line.split(" ")}

    known = {"NodeName": NODE_NAMES, "PartitionName": PARTITION_NAMES}
    for line in config.slurm_conf():
        first = line.partition("=")[0]
        assert first in CONF_NAMES
        assert names(line) <= known.get(first, {first})
    assert all(names(line) <= GRES_NAMES for line in config.gres_conf())
    assert all(names(line) <= TOPOLOGY_NAMES for line in config.topology_conf())
    assert {word.partition("=")[0] for words in config.qos.values() for word in words.split()} <= QOS_NAMES


def test_there_are_25_sites_of_4_to_8_partitions():
    assert [config.cluster for config in CONFIGS] == [f"site{number:02}" for number in range(1, 26)]
    assert all(4 <= len(config.partitions) <= 8 for config in CONFIGS)
    assert all(len(config.weights()) == NODES for config in CONFIGS)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.cluster)
def test_workload_has_200_jobs_and_uses_only_site_features(config):
    run = run_of(config)
    jobs = jobs_of(run, 200, 1)
    text = " ".join(shape.options for shape in shapes_of(config))
    assert sum(4 if "--array" in run.shapes[job.shape].options else 1 for job in jobs) in range(200, 204)
    assert ("--gres=gpu" in text) == any("gpu" in group.gres for group in config.groups)
    assert ("-C " in text) == any(group.features for group in config.groups)
    assert ("-L " in text) == any(line.startswith("Licenses") for line in config.settings)
