"""Define cluster configurations that resemble sampled public sites, each reduced to 24 nodes.

A `SiteConfig` contains the differences from the test cluster's `slurm.conf`. Its methods return the lines of
`slurm.conf`, `gres.conf` and `topology.conf`. `CONFIGS` is the table, and `python -m tests.slurm.sites` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NODES = 24
"""Number of nodes in each configuration, all in one container."""
FIRST_PORT = 20001
GPU_FILES = 8
"""Maximum number of GPUs per node."""
LEAF_NODES = 6
"""Number of nodes per leaf switch in configurations with a topology."""


class Control(StrEnum):
    """The result of control mode on a site."""

    SERVED = "served"
    LEFT = "left to Slurm"
    """Control mode is permitted, but leaves more than half of the jobs to Slurm."""
    REFUSED = "refused"
    FAILED = "not run"
    """The configuration's cluster did not start, or a command failed."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Consecutive nodes with equal properties."""

    count: int
    features: str = ""
    weight: int = 1
    gres: str = ""
    """Generic resources as in `slurm.conf`, for example `gpu:a100:4`."""
    memory_mib: int = 16384
    options: str = ""


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """One configuration. Settings and limits are written as Slurm writes them."""

    name: str
    groups: tuple[NodeGroup, ...]
    partitions: Mapping[str, str]
    """Node groups by their indices, then options: `01 PriorityTier=2`. The first partition is the default."""
    control: Control
    """Expected result of control mode."""
    settings: tuple[str, ...] = ()
    """Lines that replace the test cluster's lines with the same names; a line without a value only removes one."""
    qos: Mapping[str, str] = field(default_factory=dict)
    """`sacctmgr` options of each QOS, which jobs request equally often. If empty, jobs use `normal`."""
    topology: bool = False
    blocks: tuple[int, ...] = ()
    """Number of nodes of each base block in topology/block, which may be 0. Further nodes are in no block."""
    block_sizes: tuple[int, ...] = ()
    """Planned numbers of nodes of blocks (`BlockSizes`)."""
    threads: int = 1

    def __post_init__(self) -> None:
        count = sum(group.count for group in self.groups)
        if count != NODES:
            raise ValueError(f"groups={count} nodes: must be {NODES} in {self.name}")

    @property
    def cluster(self) -> str:
        """Return the cluster's name; each cluster has separate associations, jobs and state."""
        return "".join(self.name.split("-")[:2])

    @property
    def state_folder(self) -> str:
        return f"/var/spool/slurmctld/{self.cluster}"

    def nodes_of(self, group: int) -> tuple[int, int]:
        """Return the first and last number of a group's nodes."""
        first = 1 + sum(each.count for each in self.groups[:group])
        return first, first + self.groups[group].count - 1

    def weights(self) -> dict[str, int]:
        """Return each node's `Weight`."""
        return {
            f"w{number}": group.weight
            for at, group in enumerate(self.groups)
            for number in range(self.nodes_of(at)[0], self.nodes_of(at)[1] + 1)
        }

    def leaf_switches(self) -> dict[str, str]:
        """Return each node's leaf switch; without a topology, all nodes share one switch."""
        return {f"w{at + 1}": f"leaf{at // LEAF_NODES if self.topology else 0}" for at in range(NODES)}

    def base_blocks(self) -> dict[str, int]:
        """Return the position of each node's base block, or -1; without blocks, all nodes share one."""
        if not self.blocks:
            return {f"w{at + 1}": 0 for at in range(NODES)}
        found = [at for at, count in enumerate(self.blocks) for _ in range(count)]
        return {f"w{at + 1}": found[at] if at < len(found) else -1 for at in range(NODES)}

    def node_lines(self) -> list[str]:
        cores = 16 // 2 // self.threads
        shape = f"CPUs=16 Sockets=2 CoresPerSocket={cores} ThreadsPerCore={self.threads}"
        lines = []
        for at, group in enumerate(self.groups):
            first, last = self.nodes_of(at)
            where = f"NodeHostname=wide NodeAddr=wide Port=[{FIRST_PORT + first - 1}-{FIRST_PORT + last - 1}]"
            words = [f"NodeName=w[{first}-{last}] {where} {shape} RealMemory={group.memory_mib} Weight={group.weight}"]
            words += [f"Feature={group.features}"] if group.features else []
            words += [f"Gres={group.gres}"] if group.gres else []
            words += [group.options] if group.options else []
            lines.append(" ".join(words))
        return lines

    def partition_lines(self) -> list[str]:
        lines = []
        for at, (name, text) in enumerate(self.partitions.items()):
            groups, _, options = text.partition(" ")
            nodes = ",".join("w[{}-{}]".format(*self.nodes_of(int(group))) for group in groups)
            default = " Default=YES" if at == 0 else ""
            lines.append(f"PartitionName={name} Nodes={nodes}{default} DefaultTime=5 State=UP {options}".rstrip())
        return lines

    def slurm_conf(self) -> list[str]:
        """Return the lines that replace all lines with the same names in the test cluster's `slurm.conf`."""
        identity = [f"ClusterName={self.cluster}", f"StateSaveLocation={self.state_folder}"]
        kinds = sorted({each.split(":")[0] for group in self.groups for each in group.gres.split(",") if each})
        gres = [f"GresTypes={','.join(kinds)}"] if kinds else []
        topology = ["TopologyPlugin=topology/tree"] if self.topology else []
        topology += ["TopologyPlugin=topology/block"] if self.blocks else []
        return [*identity, *self.settings, *gres, *topology, *self.node_lines(), *self.partition_lines()]

    def gres_conf(self) -> list[str]:
        lines = []
        for at, group in enumerate(self.groups):
            nodes = "NodeName=w[{}-{}]".format(*self.nodes_of(at))
            for each in filter(None, group.gres.split(",")):
                name, *kind, count = each.split(":")
                typed = f" Type={kind[0]}" if kind else ""
                # GPUs need files; shards use the GPUs' files.
                amount = f"File=/run/fakegpu[0-{int(count) - 1}]" if name == "gpu" else f"Count={count}"
                lines.append(f"{nodes} Name={name}{typed} {amount}")
        return lines

    def topology_conf(self) -> list[str]:
        if self.blocks:
            lines, first = [], 1
            for at, count in enumerate(self.blocks):
                lines.append(f"BlockName=block{at}" + (f" Nodes=w[{first}-{first + count - 1}]" if count else ""))
                first += count
            return [*lines, f"BlockSizes={','.join(map(str, self.block_sizes))}"]
        if not self.topology:
            return []
        leaves = range(0, NODES, LEAF_NODES)
        lines = [f"SwitchName=leaf{at // LEAF_NODES} Nodes=w[{at + 1}-{at + LEAF_NODES}]" for at in leaves]
        return [*lines, f"SwitchName=root Switches=leaf[0-{len(leaves) - 1}]"]


ENFORCED = "AccountingStorageEnforce=limits,qos"
OPEN = "AccountingStorageEnforce="
BASIC = "PriorityType=priority/basic"
NO_MEMORY = "SelectTypeParameters=CR_Core"
FAIR = "PriorityWeightFairshare=10000"
GPU_CLOUD = (
    "nohold_on_prolog_fail,extra_constraints,pack_serial_at_end,salloc_wait_nodes,sbatch_wait_nodes,defer_batch,"
    "max_rpc_cnt=100,bf_continue,bf_max_time=60,bf_max_job_test=1000,bf_max_job_part=300,bf_running_job_reserve,"
    "disable_job_shrink,sched_interval=5"
)
"""The parameters of a GPU cloud's operator (soperator), and two that let the bridge start jobs within seconds."""
BY_QOS = ("PreemptType=preempt/qos", "PreemptMode=REQUEUE")
BY_PARTITION = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")
POWER = (
    "SuspendProgram=/bin/true", "ResumeProgram=/home/wake", "SuspendTime=30", "SuspendTimeout=2", "ResumeTimeout=60",
)  # fmt: skip
USER_LIMITS = {"short": "MaxJobsPerUser=12 Priority=100", "normal": "", "large": "MaxTRESPerUser=cpu=96"}
LOW = {"normal": "Preempt=low", "low": "Priority=1"}
LICENSES = "Licenses=solver:4,viewer:2"
SERVED = Control.SERVED
PLAIN = (NodeGroup(24),)

CONFIGS = (
    SiteConfig(
        "site-01-weights-tree-qos-gpu",
        (
            NodeGroup(14, "thin,amd", 100), NodeGroup(4, "fat,amd", 500, memory_mib=32768),
            NodeGroup(3, "gpu", 1000, "gpu:4"), NodeGroup(3, "serial,amd", 200),
        ),
        {
            "standard": "01 OverSubscribe=EXCLUSIVE MaxTime=1-00:00:00", "fat": "1 OverSubscribe=EXCLUSIVE",
            "gpu": "2 AllowQos=normal,short,large", "serial": "3 OverSubscribe=YES:2 MaxNodes=1",
            "quick": "0 PriorityTier=5 MaxTime=30 AllowAccounts=lab,chem OverSubscribe=EXCLUSIVE",
        },
        SERVED, (ENFORCED, FAIR), USER_LIMITS, topology=True, threads=2,
    ),
    SiteConfig(
        "site-02-node-limits-tree-weights",
        (NodeGroup(16, "thin", 10), NodeGroup(4, "fat", 50), NodeGroup(4, "gpu,volta", 100, "gpu:4")),
        {
            "standard": "01 MaxCPUsPerNode=14 AllowAccounts=lab,chem", "fat": "1 MaxMemPerCPU=2048",
            "gpu": "2 MaxCPUsPerNode=12 DefCpuPerGPU=2", "quick": "0 MaxCPUsPerNode=14 PriorityTier=5 MaxTime=30",
        },
        SERVED, (ENFORCED, FAIR), USER_LIMITS, topology=True, threads=2,
    ),
    SiteConfig(
        "site-03-preempt-partition-licenses",
        (NodeGroup(16, "intel"), NodeGroup(8, "amd")),
        {
            "normal": "01 PriorityTier=10 PreemptMode=OFF", "owner": "0 PriorityTier=20 AllowAccounts=lab",
            "scavenge": "01 PriorityTier=1 PreemptMode=REQUEUE", "whole": "1 PriorityTier=10 OverSubscribe=EXCLUSIVE",
        },
        SERVED, (ENFORCED, FAIR, LICENSES, *BY_PARTITION), threads=2,
    ),
    SiteConfig(
        "site-04-preempt-partition-gpu",
        (NodeGroup(18, "cpu"), NodeGroup(6, "gpu", gres="gpu:2")),
        {
            "normal": "0 PriorityTier=10", "gpu": "1 PriorityTier=10", "all": "01 PriorityTier=1",
            "condo": "0 PriorityTier=20 AllowAccounts=chem",
        },
        SERVED, (ENFORCED, *BY_PARTITION),
    ),
    SiteConfig(
        "site-05-power-saving-gpu",
        (NodeGroup(12, "cpu"), NodeGroup(8, "v100", gres="gpu:v100:4"), NodeGroup(4, "a100", gres="gpu:a100:8")),
        {"cpu": "0", "gpu": "1", "large": "2", "test": "0 MaxTime=10"},
        SERVED, (OPEN, NO_MEMORY, BASIC, *POWER),
    ),
    SiteConfig(
        "site-06-preempt-qos-node-limits",
        (NodeGroup(20, "cluster"), NodeGroup(4, "transfer")),
        {
            "regular": "0 MaxCPUsPerNode=14 MaxMemPerNode=15000", "transfer": "1 MaxCPUsPerNode=8",
            "test": "01 MaxTime=30", "guest": "0 MaxCPUsPerNode=14",
        },
        SERVED, (ENFORCED, FAIR, *BY_QOS), LOW | {"short": "MaxJobsPerUser=12"},
    ),
    SiteConfig(
        "site-07-preempt-qos-weights-gpu-licenses",
        (
            NodeGroup(8, "sse,avx", 10), NodeGroup(8, "avx,avx2", 20), NodeGroup(4, "gpu", 100, "gpu:a30:2"),
            NodeGroup(4, "gpu", 200, "gpu:a100:4"),
        ),
        {
            "shared": "0123 PriorityTier=1", "group": "01 PriorityTier=10 AllowAccounts=lab",
            "gpu": "23 PriorityTier=10", "quick": "0 PriorityTier=20 MaxTime=15",
        },
        SERVED, (ENFORCED, FAIR, LICENSES, *BY_QOS), LOW, threads=2,
    ),
    SiteConfig(
        "site-08-preempt-partition-many-owners",
        (NodeGroup(12, "intel"), NodeGroup(6, "amd"), NodeGroup(6, "ib,intel")),
        {
            "general": "01 PriorityTier=5", "serial": "0 PriorityTier=5 MaxNodes=1", "parallel": "2 PriorityTier=5",
            "owner1": "0 PriorityTier=20 AllowAccounts=lab", "owner2": "1 PriorityTier=20 AllowAccounts=chem",
            "requeue": "012 PriorityTier=1", "quick": "0 PriorityTier=10 MaxTime=30",
        },
        SERVED, (ENFORCED, FAIR, LICENSES, *BY_PARTITION), threads=2,
    ),
    SiteConfig(
        "site-09-preempt-sockets-tree",
        (NodeGroup(16), NodeGroup(4), NodeGroup(4)),
        {
            "compute": "0 OverSubscribe=EXCLUSIVE PriorityTier=5", "memory": "1 PriorityTier=5",
            "gpu": "2 PriorityTier=5 AllowAccounts=lab", "idle": "012 PriorityTier=1",
            "devel": "0 MaxTime=30 PriorityTier=9",
        },
        SERVED, (OPEN, "SelectTypeParameters=CR_Socket_Memory", *BY_PARTITION), topology=True,
    ),
    SiteConfig(
        "site-10-builtin-gpu",
        (NodeGroup(16), NodeGroup(8, gres="gpu:4")),
        {"long": "0", "short": "0 MaxTime=60 PriorityTier=2", "gpus": "1", "now": "0 MaxTime=30 PriorityTier=4"},
        SERVED, (ENFORCED, FAIR, "SchedulerType=sched/builtin"), {"normal": "", "short": "MaxJobsPerUser=12"},
    ),
    SiteConfig(
        "site-11-tree-gpu",
        (NodeGroup(18), NodeGroup(6, gres="gpu:2")),
        {"main": "0", "gpu": "1", "test": "0 MaxTime=30", "large": "0 MinNodes=2"},
        SERVED, (OPEN, FAIR), topology=True,
    ),
    SiteConfig(
        "site-12-linear-threads",
        PLAIN,
        {"batch": "0", "quick": "0 MaxTime=30", "long": "0", "test": "0 MaxNodes=2"},
        SERVED, (OPEN, BASIC, "SelectType=select/linear", "SelectTypeParameters=CR_Memory"), threads=2,
    ),
    SiteConfig(
        "site-13-memory-limits",
        PLAIN,
        {"full": "0", "half": "0 MaxNodes=12", "single": "0 MaxNodes=1", "quick": "0 MaxTime=30"},
        SERVED, (ENFORCED, BASIC), {"normal": "", "short": "MaxJobsPerUser=12"},
    ),
    SiteConfig(
        "site-14-cores-only",
        PLAIN,
        {"std": "0", "fast": "0 MaxTime=30", "long": "0", "test": "0 MaxNodes=2"},
        SERVED, (OPEN, BASIC, NO_MEMORY),
    ),
    SiteConfig(
        "site-15-preempt-qos-tree-weights",
        (NodeGroup(10, "cpu-a", 1), NodeGroup(8, "cpu-b", 20), NodeGroup(6, "gpu,v100", 100, "gpu:2")),
        {"general": "012", "debug": "0 MaxTime=60 PriorityTier=5", "scavenger": "012 AllowQos=low", "industry": "1"},
        SERVED, (ENFORCED, FAIR, *BY_QOS), LOW | {"short": "MaxJobsPerUser=12"}, topology=True,
    ),
    SiteConfig(
        "site-16-preempt-qos-gpu-lab",
        (NodeGroup(12, "old"), NodeGroup(12, "new", gres="gpu:rtx:4")),
        {"cpu": "0", "gpu": "1", "long": "0", "debug": "0 MaxTime=30"},
        SERVED, (OPEN, *BY_QOS), LOW, threads=2,
    ),
    SiteConfig(
        "site-17-power-saving-shards",
        (NodeGroup(14, "cpu"), NodeGroup(6, "gpu", gres="gpu:2"), NodeGroup(4, "shard", gres="gpu:2,shard:8")),
        {
            "cpu": "0 AllowAccounts=lab,chem", "gpu": "1", "shared": "2", "all": "012 PriorityTier=1",
            "quick": "0 PriorityTier=5 MaxTime=15",
        },
        SERVED, (OPEN, NO_MEMORY, BASIC, *POWER),
    ),
    SiteConfig(
        "site-18-gpu-limits",
        (NodeGroup(8), NodeGroup(8, gres="gpu:2"), NodeGroup(8, gres="gpu:8")),
        {"p0": "0", "p1": "1", "p2": "2", "p3": "0 MaxTime=30"},
        SERVED, (ENFORCED, FAIR), {"normal": "", "short": "MaxTRESPerUser=gres/gpu=4"},
    ),
    SiteConfig(
        "site-19-overlapping-tiers",
        PLAIN,
        {
            "batch": "0", "short": "0 MaxTime=240 PriorityTier=5", "test": "0 MaxTime=15 PriorityTier=10",
            "big": "0 MinNodes=2",
        },
        SERVED, (ENFORCED, FAIR), {"normal": "", "short": "MaxJobsPerUser=12"},
    ),
    SiteConfig(
        "site-20-weights-gpu-cloud",
        (NodeGroup(12, weight=10), NodeGroup(6, weight=50, memory_mib=32768), NodeGroup(6, weight=100, gres="gpu:4")),
        {"nodes": "012", "fat": "1", "gpu": "2", "quick": "0 MaxTime=30"},
        SERVED, (OPEN, BASIC), threads=2,
    ),
    SiteConfig(
        "site-21-gpu-cores-only",
        (NodeGroup(16), NodeGroup(8, gres="gpu:8")),
        {"cpu": "0", "gpu": "1", "long": "0", "debug": "0 MaxTime=30"},
        SERVED, (OPEN, BASIC, NO_MEMORY), threads=2,
    ),
    SiteConfig(
        "site-22-linear",
        PLAIN,
        {"main": "0", "queue1": "0", "queue2": "0 MaxTime=240", "test": "0 MaxNodes=2"},
        SERVED, (OPEN, BASIC, "SelectType=select/linear", "SelectTypeParameters=CR_Memory"),
    ),
    SiteConfig(
        "site-23-features-qos",
        (NodeGroup(20, "compute,tmp02"), NodeGroup(4, "transfer,tmp02")),
        {"regular": "0", "transfer": "1", "test": "0 MaxTime=30", "guest": "0 MaxNodes=4"},
        SERVED, (ENFORCED, FAIR), USER_LIMITS,
    ),
    SiteConfig(
        "site-24-gpu-cloud",
        (NodeGroup(24, gres="gpu:8"),),
        {"main": "0", "hidden": "0 PriorityTier=10", "background": "0 PriorityTier=1", "test": "0 MaxTime=30"},
        SERVED, (OPEN, FAIR, f"SchedulerParameters={GPU_CLOUD}"),
    ),
    SiteConfig(
        "site-25-blocks-segments-gpu",
        (NodeGroup(24, gres="gpu:4"),),
        {"batch": "0", "long": "0", "interactive": "0 MaxTime=30 PriorityTier=5", "test": "0 MaxNodes=2"},
        SERVED, (OPEN, FAIR), blocks=(6, 6, 6, 0, 5), block_sizes=(5, 10),
    ),
)  # fmt: skip
BY_CLUSTER = {config.cluster: config for config in CONFIGS}
