"""One rich reading as whole values: each word of Slurm's programs, and the field it becomes."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import ANY

import pytest

from cpsched.slurm_text.jobs import JobDependencies, NodeShare, SlurmJob
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from tests.unit.bridge.adapters.slurm.transport.cli.standin import CONFIG, RELEASES, Job, Programs

COLUMNS = {
    "Reason": "Resources", "PriorityLong": "4294901000", "Partition": "main,gpu", "QOS": "high",
    "EligibleTime": "1795379590", "StartTime": "1795380000", "EndTime": "1795383600", "NumNodes": "2", "MaxNodes": "4",
    "NumCPUs": "24", "NTPerNode": "3", "CPUsPerTask": "4", "MinCPUs": "12", "OverSubscribe": "YES",
    "tres-per-node": "gres/gpu:a100:2", "tres-per-task": "gres/gpu:1", "HetJobID": "9", "admin_comment": "by us",
    "RestartCnt": "3", "ReqNodes": "n1", "Dependency": "afterok:12(unfulfilled)", "Feature": "gpu&rack2",
    "ClusterFeature": "lab", "Reservation": "maint", "Licenses": "matlab:2", "BurstBuffer": "#BB x", "Network": "ib",
    "Deadline": "1795390000", "Contiguous": "1", "Reboot": "1", "ReqSwitch": "2", "CoreSpec": "3", "BoardsPerNode": "1",
    "SPerBoard": "2", "Sockets": "3", "Cores": "4", "Threads": "65535", "NTPerBoard": "6", "NTPerSocket": "7",
    "NTPerCore": "8", "tres-per-socket": "gres/gpu:1", "MinTmpDisk": "1G", "MCSLabel": "m", "Nice": "-10",
    "AccrueTime": "1795379600", "TimeLimit": "INVALID",
}  # fmt: skip
LINES = {
    "nodes": "2-4", "tasks": "6", "memory": "Node=4G", "required": "n1", "excluded": "n[2-3]",
    "limit": "400-02:00:00",
    "below": "SpreadJob=Yes\n   NtasksPerTRES=2\n   SegmentSize=4 SpreadSegments=Yes ConsolidateSegments=Yes\n   ",
    "requested": "cpu=24,mem=8G,node=2,billing=24,gres/gpu=4",
}  # fmt: skip
JOB = SlurmJob(
    id=5, state="PENDING", state_reason="Resources", priority=4294901000, name="a b", user_id=0, user_name="root",
    account="lab", partition="main,gpu", qos="high", submit_time=1795379580, eligible_time=1795379590,
    accrue_time=1795379600, start_time=1795380000, end_time=1795383600, time_limit=576120, num_nodes=2, max_nodes=4,
    cpus=24, ntasks=6, ntasks_per_node=3, ntasks_per_core=8, cpus_per_task=4, min_cpus_per_node=12,
    memory_per_node=4096, resource_sharing="YES", gres_per_node={"gpu:a100": 2}, tres_per_task={"gres/gpu": 1},
    requested_tres={"cpu": 24, "mem": 8192, "node": 2, "billing": 24, "gres/gpu": 4}, licenses=["matlab:2"],
    heterogeneous_id=9, admin_comment="by us", comment="for the paper", requeue_count=3, required_nodes="n1",
    excluded_nodes="n[2-3]", dependencies=JobDependencies((("afterok", "12(unfulfilled)"),)),
    constraints=["gpu&rack2"], reservation="maint", segment_size=4,
    spread_segments=True, consolidate_segments=True, nice=-10, is_requeueable=True, is_batch_job=True,
    special_requests=frozenset({
        "cluster_constraints", "burst_buffer", "network", "deadline", "requires_contiguous_nodes",
        "requires_node_reboot", "required_switches", "cores_reserved_for_system", "boards_per_node",
        "sockets_per_board", "sockets_per_node", "cores_per_socket", "ntasks_per_board", "ntasks_per_socket",
        "ntasks_per_core", "tres_per_socket", "temporary_disk_per_node", "mcs_label", "spreads_over_nodes",
        "ntasks_per_gpu",
    }),
)  # fmt: skip


def among(record: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Those fields of a record that are expected."""
    return {name: record[name] for name in expected}


def rich(**columns: str) -> Job:
    return Job(5, name="a b", comment="for the paper", columns={**COLUMNS, **columns}, lines=LINES)


@pytest.mark.parametrize("release", RELEASES)
def test_reads_complete_pending_job(release: str) -> None:
    (found,) = SlurmCliReader(programs=Programs([rich()], release)).read().jobs
    assert found == JOB


@pytest.mark.parametrize("release", RELEASES)
def test_reads_complete_running_job(release: str) -> None:
    """A running job has the fields of a waiting job, except dependencies."""
    layout = "JOB_GRES=(null)\n     Nodes=n[1-2] CPU_IDs=0-11 Mem=500 GRES=\n   "
    placed = rich(
        State="RUNNING", Reason="None", NodeList="n[1-2]", Requeue="0", **{"tres-alloc": "cpu=24,mem=8G,node=2"}
    )
    placed.lines = {**LINES, "layout": layout, "nodes": "2"}
    (found,) = SlurmCliReader(programs=Programs([placed], release)).read().jobs
    assert found == JOB._replace(
        state="RUNNING", state_reason="None", allocated_nodes="n[1-2]", max_nodes=None, is_requeueable=False,
        dependencies=None,
        requested_tres={} if release == "22.05.8" else JOB.requested_tres,
        allocated_tres={"cpu": 24, "mem": 8192, "node": 2} if release == "22.05.8" else {},
        layout=(NodeShare("n[1-2]", 12, 500, {}),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"NumCPUs": "0", "CPUsPerTask": "N/A"}, {"cpus": 1, "cpus_per_task": 1}),
        ({"cpus-per-tres": "gres:gpu:4"}, {"cpus_per_task": 0}),
        ({"UserID": "4000111222"}, {"user_id": 4000111222, "user_name": "4000111222"}),
        ({"Nice": "x"}, {"nice": 0, "unreadable": ("nice",)}),
        ({"Deadline": "x"}, {"unreadable": ("deadline",), "special_requests": ANY}),
        ({"CoreSpec": "2 Threads"}, {}),
        ({"CoreSpec": "N/A", "NTPerSocket": "N/A", "Sockets": "*", "NTPerCore": "1"}, {
            "ntasks_per_core": 1,
            "special_requests": JOB.special_requests - {
                "cores_reserved_for_system", "ntasks_per_socket", "sockets_per_node", "ntasks_per_core",
            },
        }),
    ],
)  # fmt: skip
def test_reads_each_differing_value(columns: dict[str, str], expected: dict[str, Any]) -> None:
    (found,) = SlurmCliReader(programs=Programs([rich(**columns)])).read().jobs
    assert found == JOB._replace(**expected)


NODE = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8 
   CPUAlloc=6 CPUEfctv=14 CPUTot=16 CPULoad=0.30
   AvailableFeatures=gpu,rack2
   ActiveFeatures=gpu,rack2
   Gres=gpu:a100:2(S:0-1)
   NodeAddr=n1 NodeHostName=n1 Version=26.05.5
   RealMemory=16384 AllocMem=3000 FreeMem=17423 Sockets=2 Boards=1
   MemSpecLimit=1000
   State=IDLE+RESERVED ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main,gpu 
   CfgTRES=cpu=14,mem=16G,billing=16,gres/gpu=2
   AllocTRES=cpu=6,mem=3000M,gres/gpu=1
   Reason=said State=DOWN CPUTot=1 [root@2026-11-20T10:00:00]

"""  # noqa: W291  as printed
PARTITION = """\
PartitionName=gpu
   AllowGroups=ml,vis DenyAccounts=guests AllowQos=high,low
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=YES GraceTime=0 Hidden=NO
   MaxNodes=8 MaxTime=1-00:00:00 MinNodes=2 LLN=NO MaxCPUsPerNode=12 MaxCPUsPerSocket=6
   Nodes=n[1-4]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=YES ReqResv=YES OverSubscribe=FORCE:2
   State=DRAIN TotalCPUs=64 TotalNodes=4 SelectTypeParameters=NONE
   DefMemPerNode=UNLIMITED MaxMemPerCPU=2000

PartitionName=long
   AllowGroups=ALL AllowAccounts=lab DenyQos=low
   DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 MaxCPUsPerNode=UNLIMITED
   Nodes=(null)
   RootOnly=NO ReqResv=NO OverSubscribe=NO Exclusive=USER
   State=UP MaxMemPerNode=64000

"""
RESERVATION = """\
ReservationName=maint StartTime=1795400000 EndTime=1795403600 Duration=01:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT
   TRES=cpu=16
   Users=alice,bob Groups=(null) Accounts=lab Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null) Comment=said Users=eve Nodes=n9

"""


def test_reads_complete_nodes_partitions_and_reservations() -> None:
    """The reason of a node and the comment of a reservation come last, and change nothing that stands before."""
    broken = {"scontrol --all show nodes": NODE, "scontrol --all show partitions": PARTITION}
    programs = Programs([Job(5)], broken={**broken, "scontrol --all show reservations": RESERVATION})
    looking = SlurmCliReader(programs=programs)
    seen = looking.read()
    node = {
        "name": "n1", "state": "MIXED+RESERVED", "effective_cpus": 14, "allocated_cpus": 6, "threads_per_core": 2,
        "real_memory": 16384, "memory_reserved_for_system": 1000, "allocated_memory": 3000,
        "configured_gres": {"gpu:a100": 2}, "allocated_tres": {"cpu": 6, "mem": "3000M", "gres/gpu": 1},
        "active_features": ["gpu", "rack2"], "partitions": ["main", "gpu"], "slurm_version": "26.05.5",
    }  # fmt: skip
    gpu = {
        "name": "gpu", "state": "DRAIN", "nodes": "n[1-4]", "max_time": 1440, "default_time": 60, "max_nodes": 8,
        "min_nodes": 2, "max_cpus_per_node": 12, "max_cpus_per_socket": 6, "max_memory_per_node": None,
        "max_memory_per_cpu": 2000, "oversubscribe": "FORCE:2", "allowed_accounts": ["ALL"], "priority_tier": 1,
        "denied_accounts": ["guests"], "allowed_qos": ["high", "low"], "denied_qos": ["ALL"],
        "allowed_groups": ["ml", "vis"], "is_root_only": True, "is_user_exclusive": True, "requires_reservation": True,
    }  # fmt: skip
    long = {
        "name": "long", "state": "UP", "nodes": None, "max_time": None, "default_time": None,
        "max_nodes": None, "min_nodes": 0, "max_cpus_per_node": None, "max_cpus_per_socket": None,
        "max_memory_per_node": 64000, "max_memory_per_cpu": None, "oversubscribe": "NO", "allowed_accounts": ["lab"],
        "denied_accounts": ["ALL"], "allowed_qos": ["ALL"], "denied_qos": ["low"], "allowed_groups": ["ALL"],
        "is_root_only": False, "is_user_exclusive": True, "requires_reservation": False,
    }  # fmt: skip
    maint = {
        "name": "maint", "nodes": "n[1-2]", "start_time": 1795400000, "end_time": 1795403600, "users": ["alice", "bob"],
        "accounts": ["lab"], "comment": "said Users=eve Nodes=n9",
    }  # fmt: skip
    records = (*seen.nodes, *seen.partitions, *seen.reservations)
    found = [among(dataclasses.asdict(r), e) for r, e in zip(records, (node, gpu, long, maint), strict=True)]
    assert found == [node, gpu, long, maint]
    assert looking.read().nodes[0] is seen.nodes[0]


@pytest.mark.parametrize(
    ("allocated", "state", "expected"),
    [(0, "IDLE", "IDLE"), (1, "IDLE", "MIXED"), (16, "ALLOCATED+DRAIN", "ALLOCATED+DRAIN"), (15, "DOWN", "MIXED")],
)
def test_partly_used_node_is_mixed(allocated: int, state: str, expected: str) -> None:
    printed = NODE.replace("CPUAlloc=6 CPUEfctv=14", f"CPUAlloc={allocated}").replace(
        "State=IDLE+RESERVED", f"State={state}"
    )
    seen = SlurmCliReader(programs=Programs([Job(5)], broken={"scontrol --all show nodes": printed})).read()
    assert (seen.nodes[0].effective_cpus, seen.nodes[0].state) == (16, expected)


def test_reads_complete_configuration() -> None:
    more = "JobDefaults = DefCpuPerGPU=4\n"
    more += "PrioritySiteFactorPlugin = site_factor/ours\nPriorityType = priority/multifactor\nSLURM_VERSION = 9\n"
    printed = CONFIG.format(plugins="lua,require_timelimit").replace("\n\nSlurmctld", f"\n{more}\nSlurmctld")
    expected = {
        "accounting_storage_enforce": ["ASSOCIATIONS", "LIMITS", "QOS"],
        "accounting_storage_tres": ["cpu", "mem", "energy", "node", "billing", "gres/gpu"],
        "accounting_storage_type": "accounting_storage/slurmdbd", "cluster_name": "lab", "gres_types": ["gpu"],
        "job_defaults": "DefCpuPerGPU=4",
        "job_submit_plugins": ["lua", "require_timelimit"], "min_job_age": 300, "preempt_mode": "OFF",
        "preempt_type": None, "priority_site_factor_plugin": "site_factor/ours",
        "priority_type": "priority/multifactor",
        "scheduler_parameters": "batch_sched_delay=0,default_queue_depth=10000,disable_job_shrink",
        "scheduler_type": "sched/backfill", "select_type": "select/cons_tres",
        "select_type_parameters": ["CR_CORE_MEMORY"], "slurm_user_name": "slurm", "version": "22.05.8",
    }  # fmt: skip
    found = SlurmCliReader(programs=Programs(broken={"scontrol show config": printed})).read_config()
    assert among(dataclasses.asdict(found), expected) == expected
    bare = printed.replace("associations,limits,qos", "none").replace("preempt/none", "preempt/qos")
    found = SlurmCliReader(programs=Programs(broken={"scontrol show config": bare})).read_config()
    assert (found.accounting_storage_enforce, found.preempt_type) == ([], "preempt/qos")
