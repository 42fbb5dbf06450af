"""Odd but legal objects of a Slurm cluster, as scontrol prints them, each with its expected record.

Slurm has few rules for names: slurm.conf and gres.conf accept any word, and words with blanks in quotes. Users' texts
(reasons, comments) may look like fields. A seed is repeatable.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

NAME_SIGNS = "abzAZ019_.-+@#%/~é"
TYPES = ("2080ti", "1g.10gb", "3g.40gb+me", "a100", "80gb_pcie", "H100-SXM", "1080_ti", "nvidia_a100_80gb", "mi250x@0")
TEXTS = (
    "State=DOWN", "disk broken\nGres=none State=DOWN", "a=b, c(d", "Nodes=n1 Users=eve", "100% full", "[root@2026]",
    "NodeName=x", "É“odd”", "tab\there",
)  # fmt: skip


@dataclass(frozen=True)
class Odd:
    """One object: its printed text, and the expected fields of its record."""

    text: str
    record: dict[str, Any]


class OddSlurm:
    """Generates objects from one seed, with unique names."""

    def __init__(self, seed: int, release: tuple[int, int] = (26, 5)) -> None:
        self.draw = random.Random(seed)
        self.release = release
        self._names = 0

    def name(self, blanks: bool = False) -> str:
        """Return a name of characters without a meaning to Slurm."""
        self._names += 1
        signs = "".join(self.draw.choices(NAME_SIGNS, k=self.draw.randint(0, 12)))
        middle = " " if blanks and self.draw.random() < 0.3 else ""
        return f"{self.draw.choice('xX7_')}{signs}{middle}{self._names}"

    def text(self) -> str:
        """Return a text that an administrator may write."""
        return self.draw.choice(TEXTS)

    def gres(self) -> tuple[str, dict[str, int]]:
        """Return generic resources of a node, in Slurm's form and as in the record."""
        items, found = [], {}
        for name in self.draw.sample(("gpu", "shard", "mic", "nic-0", "5g", "tape.drive"), self.draw.randint(0, 3)):
            for kind in self.draw.sample(("", *TYPES), self.draw.randint(1, 2)):
                count, unit = self.draw.choice([(1, ""), (8, ""), (200, ""), (3, "K"), (1, "M")])
                shared = self.draw.random() < 0.2
                sockets = self.draw.choice(["", "(S:0)", "(S:0-1)", "(S:0,2-3)"])
                key = ":".join(filter(None, (name, kind, "no_consume" if shared else "")))
                items.append(f"{key}:{count}{unit}{sockets}")
                found[key] = count * {"": 1, "K": 1024, "M": 1024**2}[unit]
        return ",".join(items) or "(null)", found

    def node(self) -> Odd:
        """Return a node as `scontrol show node` prints it."""
        draw, name = self.draw, self.name().replace("/", "-")
        cpus, memory_mib = draw.choice([1, 8, 16, 256]), draw.randint(1, 4_000_000)
        used = draw.choice([0, cpus])
        gres, configured = self.gres()
        features = [self.name() + draw.choice(["", "=epyc"]) for _ in range(draw.randint(0, 3))]
        partitions = [self.name(blanks=True) for _ in range(draw.randint(0, 2))]
        reserved_mib = draw.choice([None, 7])
        base = "ALLOCATED" if used else "IDLE"
        flags = draw.choice(["", "+PLANNED", "+DRAIN", "+CLOUD+POWERED_DOWN"])
        lines = [
            f"NodeName={name} Arch=x86_64 CoresPerSocket={cpus} ",
            f"CPUAlloc={used} CPUEfctv={cpus} CPUTot={cpus} CPULoad={draw.choice(['0.00', 'N/A'])}",
            f"AvailableFeatures={','.join(features) or '(null)'}",
            f"ActiveFeatures={','.join(features) or '(null)'}",
            f"Gres={gres}",
            *draw.choice([[], ["GresDrain=N/A", f"GresUsed={gres.replace('(S:', '(IDX:')}"]]),
            f"NodeAddr=10.0.0.1 NodeHostName={name} Port=27001 Version=26.05.5",
            "OS=Linux 6.18 CPUTot=9 #1 SMP PREEMPT_DYNAMIC @0 ",
            f"RealMemory={memory_mib} AllocMem={used} FreeMem={draw.choice(['17423', 'N/A'])} Sockets=1 Boards=1",
            *([f"CoreSpecCount=1 CPUSpecList=0-1 MemSpecLimit={reserved_mib}"] if reserved_mib else []),
            f"State={base}{flags} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
            *draw.choice([[], ["NextState=RESUME"]]),
            *([f"Partitions={','.join(partitions)} "] if partitions else []),
            "BootTime=None SlurmdStartTime=2026-11-01T10:00:00",
            "LastBusyTime=Unknown ResumeAfterTime=None" if self.release > (22, 5) else "LastBusyTime=Unknown",
            f"CfgTRES=cpu={cpus},mem={memory_mib}M,billing={cpus}",
            f"AllocTRES={f'cpu={used},gres/gpu:1g.10gb+me=1' if used else ''}",
            "CurrentWatts=0 AveWatts=0",
            *draw.choice([[], [f"Reason={self.text()} [slurm@now]"]]),
            *draw.choice([[], [f"Comment={self.text()}"], [f"Comment={self.text()}", f"Extra={self.text()}"]]),
            *draw.choice([[], ["InstanceId=i-7 InstanceType=m5=x", "ReservationName=maint"]]),
        ]
        record = {
            "name": name, "state": f"{base}{flags}", "effective_cpus": cpus, "allocated_cpus": used,
            "threads_per_core": 1, "real_memory": memory_mib, "memory_reserved_for_system": reserved_mib,
            "allocated_memory": used, "configured_gres": configured,
            "allocated_tres": {"cpu": used, "gres/gpu:1g.10gb+me": 1} if used else {},
            "active_features": features, "partitions": partitions, "slurm_version": "26.05.5",
        }  # fmt: skip
        return Odd("\n   ".join(lines) + "\n\n", record)

    def partition(self, nodes: str) -> Odd:
        """Return a partition as `scontrol show partition` prints it."""
        draw, name = self.draw, self.name(blanks=True)
        groups = [self.name(blanks=True) for _ in range(draw.randint(0, 2))]
        accounts, qos = ([self.name() for _ in range(draw.randint(0, 2))] for _ in range(2))
        most, most_min = draw.choice([("UNLIMITED", None), ("00:30:00", 30), ("100-00:01:00", 144_001)])
        default, default_min = draw.choice([("NONE", None), ("UNLIMITED", None), ("1-00:00:00", 1440)])
        sharing = draw.choice(["NO", "FORCE:4", "YES:2"])
        verb = draw.choice(["Allow", "Deny"])
        whole = "Exclusive=NO" if self.release >= (26, 5) else "ExclusiveUser=NO"
        lines = [
            f"PartitionName={name}",
            f"AllowGroups={','.join(groups) or 'ALL'} {verb}Accounts={','.join(accounts) or 'ALL'} AllowQos="
            f"{','.join(qos) or 'ALL'}",
            f"AllocNodes=ALL {draw.choice(['', f'Alternate={self.name()} '])}Default=NO "
            f"{draw.choice(['', 'CpuBind=cores  '])}QoS={draw.choice(['N/A', self.name()])}",
            f"DefaultTime={default} DisableRootJobs=NO {whole} GraceTime=0 Hidden=NO",
            f"MaxNodes=UNLIMITED MaxTime={most} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
            *draw.choice([[], [f"NodeSets={self.name()}"]]),
            f"Nodes={nodes}",
            f"PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe={sharing}",
            "OverTimeLimit=NONE PreemptMode=OFF",
            "State=UP TotalCPUs=64 TotalNodes=4 SelectTypeParameters=NONE",
            "JobDefaults=(null)",
            "DefMemPerCPU=1000 MaxMemPerNode=UNLIMITED",
            *draw.choice([[], ["TRES=cpu=4,gres/gpu:1g.10gb+me=2", "TRESBillingWeights=CPU=1.0,GRES/gpu:2080ti=4"]]),
            *draw.choice([[], ["ResumeTimeout=GLOBAL SuspendTimeout=GLOBAL SuspendTime=GLOBAL PowerDownOnIdle=NO"]]),
        ]
        accounts_allowed, accounts_denied = (accounts, []) if verb == "Allow" else ([], accounts)
        record = {
            "name": name, "state": "UP", "nodes": nodes, "max_time": most_min, "default_time": default_min,
            "oversubscribe": sharing, "allowed_groups": groups or ["ALL"], "allowed_qos": qos or ["ALL"],
            "allowed_accounts": accounts_allowed or ["ALL"], "denied_accounts": accounts_denied or ["ALL"],
        }  # fmt: skip
        return Odd("\n   ".join(lines) + "\n\n", record)

    def reservation(self, nodes: str) -> Odd:
        """Return a reservation as `scontrol show reservation` prints it."""
        draw, name = self.draw, self.name()
        users, accounts = ([self.name() for _ in range(draw.randint(0, 2))] for _ in range(2))
        comment = draw.choice([None, self.text().replace("\n", " ")])
        start_s = draw.randint(1, 2_000_000_000)
        lines = [
            f"ReservationName={name} StartTime={start_s} EndTime={start_s + 3600} Duration=01:00:00",
            f"Nodes={nodes} NodeCnt=4 CoreCnt=8 Features={draw.choice(['(null)', self.name()])} PartitionName="
            f"{draw.choice(['(null)', self.name(blanks=True)])} Flags={draw.choice(['', 'MAINT,SPEC_NODES', 'FLEX'])}",
            *draw.choice([[], ["  NodeName=n1 CoreIDs=0-1", "  NodeName=n2 CoreIDs=0-1,3"]]),
            f"TRES={draw.choice(['(null)', 'cpu=8', 'cpu=8,gres/gpu:2080ti=1'])}",
            *(["AllowedPartitions=(null) QOS=(null)"] if self.release >= (26, 5) else []),
            f"Users={','.join(users) or '(null)'} Groups=(null) Accounts={','.join(accounts) or '(null)'} "
            f"Licenses={draw.choice(['(null)', 'matlab@srv:10'])} State=INACTIVE BurstBuffer=(null)"
            f"{'' if self.release > (22, 5) else ' Watts=n/a'}",
            "MaxStartDelay=(null)",
            *([f"Comment={comment}"] if comment else []),
        ]
        record = {
            "name": name, "nodes": nodes, "start_time": start_s, "end_time": start_s + 3600, "users": users,
            "accounts": accounts, "comment": comment,
        }  # fmt: skip
        return Odd("\n   ".join(lines) + "\n\n", record)
