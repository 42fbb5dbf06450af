"""The site configurations of the live suite: their files, and the settings of real sites that they cover."""

import re

import pytest

from tests.slurm.harness import EndedJob, expand
from tests.slurm.site_configs import CONFIGS, NODES, Control, SiteConfig
from tests.slurm.sites import Figures, Result, chosen, figures, jobs_of, peak, run_of, shapes_of

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
        set(expand(re.search(r"Nodes=(\S+)", line)[1].replace("],w[", ",")))
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


def ended(job: str, nodes: str, start_s: int, end_s: int, state: str = "COMPLETED", restarts: int = 0) -> EndedJob:
    return EndedJob(job, state, expand(nodes), 14, 0, start_s, end_s, restarts, "standard")


def of(preempted: dict[str, int] | None = None, /, **jobs: EndedJob) -> Figures:
    config = CONFIGS[1]
    run = run_of(config)
    submitted = jobs_of(run, 1, 1)[0]
    return figures(
        config, run, {name[1:]: submitted for name in jobs}, {name[1:]: each for name, each in jobs.items()}, preempted
    )


def test_figures_count_lost_and_repeated_jobs():
    found = of(
        j1=ended("1", "w[1,7]", 2, 4), j2=ended("2", "w21", 4, 6, restarts=1), j3=ended("3", "w1", 1, 1, "NODE_FAIL")
    )
    assert (found.jobs, found.lost, found.twice) == (3, 1, 1)
    assert (found.weights, found.switches) == ((10 + 10 + 100) / 2, 1.5)
    assert (found.wait_s, found.longest_s) == (3, 4)


def test_preempted_jobs_run_again_but_not_twice():
    jobs = {"j1": ended("1", "w1", 2, 4, restarts=1), "j2": ended("2", "w1", 4, 6, restarts=2)}
    assert (of({"1": 1, "2": 2}, **jobs).twice, of({"1": 1, "2": 1}, **jobs).twice) == (0, 1)


def test_consecutive_jobs_may_use_node_up_to_its_limit():
    """14 CPUs a job, of at most 14 in the partition."""
    assert of(j1=ended("1", "w1", 0, 5), j2=ended("2", "w1", 5, 9)).exceeded == []
    assert of(j1=ended("1", "w1", 0, 5), j2=ended("2", "w1", 4, 9)).exceeded == ["MaxCPUsPerNode of standard"]


def test_peak_counts_end_before_start():
    assert peak([(0, 5, 2), (5, 9, 2), (4, 6, 1)]) == 3


def test_site_fails_if_control_is_unexpected_or_job_is_lost():
    config = CONFIGS[12]
    good = Figures(1, 0, 0, 1.0, 1.0, 1.0, 0.0, 0, [])
    lost = Figures(1, 1, 0, 1.0, 1.0, 1.0, 0.0, 0, [])
    assert not Result(config, Control.SERVED, [], [], slurm=good, bridge=good).bad
    assert Result(config, Control.SERVED, [], [], slurm=good, bridge=lost).bad
    assert Result(config, Control.REFUSED, ["preemption"], []).bad


def test_selects_few_sites_in_turn():
    assert [config.cluster for config in chosen((), 3, 24)] == ["site25", "site01", "site02"]
    assert [config.cluster for config in chosen(["site07"], None, 0)] == ["site07"]
