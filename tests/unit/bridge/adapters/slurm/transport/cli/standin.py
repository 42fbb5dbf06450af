"""A stand-in for Slurm's programs: jobs as squeue, scontrol and sacct of a release print them, users' texts unescaped.

The forms are those of real answers of Slurm 22.05.8, 24.11.5 and 26.05.5. As real ones do, squeue shows waiting tasks
of an array that have records of their own together with the common record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.slurm_text.jobs import format_ranges, parse_task_ranges
from cpsched_bridge.errors import BackendError, BackendUnavailable

RELEASES = ("22.05.8", "24.11.5", "26.05.5")

COLUMNS = {
    "State": "PENDING", "Reason": "JobHeldAdmin", "PriorityLong": "0", "Name": "wrap", "UserID": "0", "Account": "lab",
    "Partition": "main", "QOS": "normal", "SubmitTime": "1795379580", "EligibleTime": "N/A", "StartTime": "N/A",
    "EndTime": "N/A", "NumNodes": "1", "MaxNodes": "1", "NumCPUs": "1", "NTPerNode": "0", "CPUsPerTask": "1",
    "cpus-per-tres": "N/A", "MinCPUs": "1", "OverSubscribe": "OK", "tres-per-node": "N/A", "tres-per-task": "N/A",
    "HetJobID": "N/A", "admin_comment": "(null)", "Comment": "(null)", "RestartCnt": "0", "TimeLimit": "1:00:00",
    "ReqNodes": "", "Dependency": "(null)", "Feature": "(null)", "Prefer": "(null)", "ClusterFeature": "(null)",
    "Reservation": "(null)",
    "Licenses": "(null)", "BurstBuffer": "(null)", "Network": "(null)", "Deadline": "N/A", "Contiguous": "0",
    "Reboot": "0", "ReqSwitch": "0", "CoreSpec": "N/A", "BoardsPerNode": "0", "SPerBoard": "0", "Sockets": "*",
    "Cores": "*", "Threads": "*", "NTPerBoard": "0", "NTPerSocket": "N/A", "NTPerCore": "N/A", "tres-per-socket": "N/A",
    "MinTmpDisk": "0", "MCSLabel": "(null)", "Nice": "0", "AccrueTime": "1795379580", "NodeList": "",
    "tres-alloc": "cpu=1,mem=1000M,node=1,billing=1", "Exclusive": "NO", "LicensesAlloc": "(null)",
    "Requeue": "1", "BatchFlag": "1",
}  # fmt: skip
"""What squeue prints of an ordinary job that is held."""

LINES = """\
UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A
Priority=0 Nice=0 Account=lab QOS=normal
JobState={state} Reason={reason} Dependency=(null)
Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
DerivedExitCode=0:0
RunTime=00:00:00 TimeLimit={limit} TimeMin=N/A
SubmitTime=1795379580 EligibleTime=Unknown
AccrueTime=1795379580
StartTime=Unknown EndTime=Unknown Deadline=N/A
SuspendTime=None SecsPreSuspend=0 LastSchedEval=1795379580 Scheduler=Main
Partition=main AllocNode:Sid=login:496
ReqNodeList={required} ExcNodeList={excluded}
NodeList=
NumNodes={nodes} NumCPUs=1 NumTasks={tasks} CPUs/Task=1 ReqB:S:C:T=0:0:*:*
{tres}
Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
{layout}MinCPUsNode=1 MinMemory{memory} MinTmpDiskNode=0
Features=(null) DelayBoot=00:00:00
{shared} Contiguous=0 Licenses=(null){licenses} Network=(null)
Command=(null)
{submit}WorkDir=/home/alice
{below}StdIn=/dev/null
StdOut=/home/alice/slurm-1_3.out"""
"""What scontrol prints below a job's name, each line indented."""


@dataclass
class Job:
    """One record of a job; texts are the owner's."""

    number: int
    name: str = "wrap"
    comment: str = "(null)"
    submit: str = "sbatch --wrap x"
    array: int | None = None
    tasks: str = ""
    """Those that wait in this record, "0-2,5%3"."""
    task: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)

    def column(self, name: str) -> str:
        """What squeue prints."""
        if name == "JobID":
            return str(self.number)
        if name == "JobArrayID":
            if self.array is None:
                return str(self.number)
            return f"{self.array}_[{self.tasks}]" if self.tasks else f"{self.array}_{self.task}"
        own = {"Name": self.name, "Comment": self.comment}
        return self.columns.get(name) or own.get(name) or COLUMNS[name]

    def shown(self, release: str) -> str:
        """What scontrol prints."""
        new, newest = release >= "24", release >= "26"
        lines = {
            "state": self.column("State"), "reason": self.column("Reason").replace(" ", "_"), "limit": "01:00:00",
            "required": "(null)", "excluded": "(null)", "nodes": "1-1", "tasks": "1", "memory": "CPU=1000M",
            "layout": "", "below": "", **self.lines,
        }  # fmt: skip
        requested = lines.pop("requested", "cpu=1,mem=1000M,node=1,billing=1")
        lines |= {
            "tres": f"ReqTRES={requested}\n   AllocTRES=(null)" if new else f"TRES={requested}",
            "shared": "OverSubscribe=NO Exclusive=NO" if newest else "OverSubscribe=OK",
            "licenses": " LicensesAlloc=(null)" if newest else "",
            "submit": f"SubmitLine={self.submit}\n   " if new else "",
            "below": (f"Comment={self.comment}\n   " if self.comment != "(null)" else "") + lines["below"],
        }
        array = f"ArrayJobId={self.array} ArrayTaskId={self.tasks or self.task} " if self.array is not None else ""
        throttle = f"ArrayTaskThrottle={self.tasks.partition('%')[2]} " if "%" in self.tasks else ""
        form = LINES.replace("\n", "\n   ").replace("{layout}", "{layout}")
        return f"JobId={self.number} {array}{throttle}JobName={self.name}\n   {form.format(**lines)}\n\n"


NODE = """\
NodeName={name} Arch=x86_64 CoresPerSocket=8 
   CPUAlloc=0 CPUEfctv=16 CPUTot=16 CPULoad=0.30
   AvailableFeatures=gpu,rack2
   ActiveFeatures=gpu,rack2
   Gres=gpu:2
   NodeAddr={name} NodeHostName={name} Version=26.05.5
   OS=Linux 6.18 #1 SMP PREEMPT_DYNAMIC @0 
   RealMemory=16384 AllocMem=0 FreeMem=17423 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main 
   CfgTRES=cpu=16,mem=16G,billing=16,gres/gpu=2
   AllocTRES=

"""  # noqa: W291  as printed
PARTITION = """\
PartitionName=main
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-4]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=64 TotalNodes=4 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED

"""
CONFIG = """\
Configuration data as of 1795379700
AccountingStorageEnforce = associations,limits,qos
AccountingStorageTRES   = cpu,mem,energy,node,billing,gres/gpu
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = lab
GresTypes               = gpu
JobSubmitPlugins        = {plugins}
MinJobAge               = 300 sec
PreemptMode             = OFF
PreemptType             = preempt/none
SchedulerParameters     = batch_sched_delay=0,default_queue_depth=10000,disable_job_shrink
SchedulerType           = sched/backfill
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
SlurmUser               = slurm(64030)
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at slurmctld is UP
"""
TOPOLOGIES = """\
%YAML 1.1
---
- topology: default
  cluster_default: false
  block: {}
  flat: {}
  ring: {}
  torus3d: {}
  tree: {}
...
"""
"""What scontrol prints without a topology.yaml."""


@dataclass
class Programs:
    """Slurm's programs on one host; `asked` lists the commands that were run."""

    jobs: Sequence[Job] = ()
    release: str = "26.05.5"
    plugins: str = "lua"
    asked: list[list[str]] = field(default_factory=list)
    broken: dict[str, str | BackendError] = field(default_factory=dict)
    """What a program says instead, by the first words of its command."""
    silent: set[int] = field(default_factory=set)
    """Jobs that squeue shows and scontrol does not."""

    def __call__(
        self,
        commands: Mapping[str, Sequence[str]],
        deadline_s: float,
        typed: Mapping[str, str] | None = None,
        most_s: float = 0.0,
    ) -> Answers:
        """As `ProgramRunner.start`."""
        found: dict[str, str] = {}
        error: BackendError | None = None
        for name, command in commands.items():
            self.asked.append(list(command))
            try:
                found[name] = self._says(list(command), (typed or {}).get(name))
            except BackendError as failed:
                error = failed
        return Answers(found, error)

    def counted(self, *words: str) -> int:
        """How often a command with all of these words was run."""
        return sum(all(word in command for word in words) for command in self.asked)

    def _says(self, command: list[str], typed: str | None) -> str:
        line = " ".join(command)
        for start, instead in self.broken.items():
            if line.startswith(start):
                if isinstance(instead, BackendError):
                    raise instead
                return instead
        if command[1:] == ["--version"]:
            return f"slurm-wlm {self.release}\n"
        if command[0] == "squeue":
            return self._squeue(command)
        if typed is not None:
            numbers = [int(words.split()[-1]) for words in typed.splitlines()]
            return "".join(f"scontrol: show job {n}\n{self._job(n)}" for n in numbers) + "scontrol: \n"
        if command[-1] == "job":
            seen = [job for job in self.jobs if job.number not in self.silent]
            return "".join(job.shown(self.release) for job in seen) or "No jobs in the system\n"
        others = {
            "nodes": NODE.format(name="n1"),
            "partitions": PARTITION,
            "config": CONFIG.format(plugins=self.plugins),
            "topoconf": TOPOLOGIES,
        }
        return others.get(command[-1], "No reservations in the system\n")

    def _job(self, number: int) -> str:
        found = [job.shown(self.release) for job in self.jobs if number in (job.number, job.array)]
        if found and number not in self.silent:
            return "".join(found)
        raise BackendUnavailable("slurm_load_jobs error: Invalid job id specified")

    def _squeue(self, command: list[str]) -> str:
        form = [token.partition(":") for token in command[command.index("--Format") + 1].split(",")]
        jobs = list(self.jobs)
        if "--jobs" in command:
            wanted = set(map(int, command[command.index("--jobs") + 1].split(",")))
            jobs = [job for job in jobs if not wanted.isdisjoint((job.number, job.array))]
        return "".join(
            "".join(self._merged(job, jobs).column(name) + suffix for name, _, suffix in form) + "\n"
            for job in jobs
            if not self._is_hidden(job, jobs)
        )

    @staticmethod
    def _common(job: Job, jobs: Sequence[Job]) -> Job | None:
        """The common record that squeue shows a waiting task with."""
        same = (each for each in jobs if each.array == job.array and each.tasks and each.name == job.name)
        waits = job.array is not None and not job.tasks and job.column("State") == "PENDING"
        return next(same, None) if waits else None

    def _is_hidden(self, job: Job, jobs: Sequence[Job]) -> bool:
        return self._common(job, jobs) is not None

    def _merged(self, job: Job, jobs: Sequence[Job]) -> Job:
        if not job.tasks:
            return job
        hidden = [each for each in jobs if self._common(each, jobs) is job]
        if not hidden:
            return job
        waiting = [task for some in parse_task_ranges(job.tasks.partition("%")[0]) for task in some]
        tasks = format_ranges([*waiting, *(each.task or 0 for each in hidden)])
        return Job(
            job.number, job.name, job.comment, job.submit, job.array, tasks, None, {**job.columns, "Reason": "X"}
        )


@dataclass
class Answers:
    """As `RunningPrograms`."""

    found: dict[str, str]
    error: BackendError | None = None
    waits: int = 0
    """Number of requests that fail."""

    def wait_for_outputs(self, wait_s: float) -> bool:
        self.waits -= 1
        return self.waits < 0

    def collect_outputs(self) -> dict[str, str]:
        if self.error is not None:
            raise self.error
        return self.found

    def close(self) -> None:
        pass
