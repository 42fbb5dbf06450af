"""Define how the adapter uses each field that `scontrol show` prints.

The names come from the printing functions in Slurm 22.05, 24.11 and 26.05 (`src/api/*_info.c`,
`src/scontrol/info_job.c`). An unlisted field, or an unlisted value of a field, makes its object unusable,
because its effect in Slurm is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cpsched.slurm_text.output_values import parse_name_values

MAX_QUOTED_CHARS = 80
"""Maximum length of a value quoted in a message."""

_INDENT = "   "
"""Indentation of every line of a record except the first."""
Words = dict[str, str]


@dataclass(frozen=True, slots=True)
class KnownScontrolFields:
    """The fields of one kind of object.

    - `read`: fields on which the adapter's decisions depend.
    - `harmless`: fields on which no decision depends.
    - `text`: harmless fields that contain users' text. Their value is the rest of the line.
    - `only`: the values with which a field is harmless. With any other value, the object is unusable.
    """

    read: frozenset[str]
    harmless: frozenset[str]
    text: frozenset[str] = frozenset()
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def parse_fields(self, record: str) -> Words:
        """Return the values of a printed record by field.

        Values may contain spaces. If a field appears more than once, the first value counts. In a record on one line
        (`scontrol -o`), other fields may follow a user's text.
        """
        values: Words = {}
        text_names = self.text if "\n" in record.rstrip("\n") else ()
        for line in f"{_INDENT}{record}".split("\n"):
            if line.startswith(_INDENT):  # any other line continues the text of the previous line
                for name, value in parse_name_values(line, text_names).items():
                    values.setdefault(name, value)
        return values

    def find_unsupported_fields(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the fields that are not listed, or whose value is not listed."""
        known = self.read | self.harmless | self.text
        return {
            name: value[:MAX_QUOTED_CHARS]
            for name, value in values.items()
            if name not in known and value not in self.only.get(name, ())
        }

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all listed fields."""
        return self.read | self.harmless | self.text | self.only.keys()


def _split_names(names: str) -> frozenset[str]:
    return frozenset(names.split())


NODE = KnownScontrolFields(
    read=_split_names(
        "NodeName CPUAlloc CPUEfctv CPUTot ActiveFeatures Gres GresUsed Version RealMemory AllocMem MemSpecLimit State "
        "ThreadsPerCore Sockets CoresPerSocket Partitions AllocTRES Weight"
    ),
    harmless=_split_names(
        "Arch CpuBind CPULoad AvailableFeatures GresDrain NodeAddr NodeHostName BcastAddr Port "
        "FreeMem Boards CoreSpecCount CPUSpecList TmpDisk NextState BootTime SlurmdStartTime LastBusyTime "
        "ResumeAfterTime SuspendTime CfgTRES CapWatts CurrentWatts AveWatts ExtSensorsJoules ExtSensorsWatts "
        "ExtSensorsTemp Topology InstanceId InstanceType ReservationName TLSCertTokenSet TLSCertLastRenewal"
    ),
    text=_split_names("OS Reason Comment Extra Parameters"),
    only={
        "Owner": _split_names("N/A"),  # user with exclusive use of the node
        "MCS_label": _split_names("N/A"),
        "RestrictedCoresPerGPU": frozenset(),  # cores that only jobs with GPUs may use
    },
)
PARTITION = KnownScontrolFields(
    read=_split_names(
        "PartitionName AllowGroups AllowAccounts DenyAccounts AllowQos DenyQos QoS DefaultTime ExclusiveUser Exclusive "
        "MaxNodes MaxTime MinNodes MaxCPUsPerNode MaxCPUsPerSocket Nodes PriorityJobFactor PriorityTier RootOnly "
        "ReqResv OverSubscribe State MaxMemPerCPU MaxMemPerNode TRES JobDefaults ExclusiveTopo Topology "
        "PreemptMode GraceTime"
    ),
    harmless=_split_names(
        "AllocNodes Alternate Default CpuBind DisableRootJobs Hidden NodeSets OverTimeLimit "
        "TotalCPUs TotalNodes DefMemPerCPU DefMemPerNode TRESBillingWeights ResumeTimeout SuspendTimeout SuspendTime "
        "PowerDownOnIdle"
    ),
    only={
        "LLN": _split_names("NO"),  # with any other value, Slurm chooses the least loaded nodes
        "SelectTypeParameters": _split_names("NONE"),  # any other value overrides the configuration
    },
)
RESERVATION = KnownScontrolFields(
    read=_split_names(
        "ReservationName StartTime EndTime Nodes NodeName CoreIDs CoreCnt TRES PartitionName Flags Users Groups "
        "Accounts QOS AllowedPartitions Licenses"
    ),
    harmless=_split_names("Duration NodeCnt Features State BurstBuffer Watts MaxStartDelay"),
    text=_split_names("Comment"),
)
JOB = KnownScontrolFields(
    read=_split_names(
        "JobId ArrayJobId ArrayTaskId ArrayTaskThrottle HetJobId HetJobOffset HetJobIdSet JobName UserId MCS_label "
        "Priority Nice Account QOS JobState Reason Dependency Restarts Reboot TimeLimit TimeMin SubmitTime "
        "EligibleTime AccrueTime StartTime EndTime Deadline CronJob Partition ReqNodeList ExcNodeList NodeList "
        "BatchFeatures NumNodes NumCPUs NumTasks CPUs/Task ReqB:S:C:T TRES ReqTRES AllocTRES Socks/Node "
        "NtasksPerN:B:S:C CoreSpec ThreadSpec Nodes CPU_IDs Mem GRES MinCPUsNode MinMemoryCPU MinMemoryNode "
        "MinTmpDiskNode Features ClusterFeatures Prefer Reservation OverSubscribe Exclusive Contiguous Licenses "
        "Network AdminComment Comment SegmentSize Switches BurstBuffer SpreadJob CpusPerTres TresPerNode "
        "TresPerJob TresPerSocket TresPerTask NtasksPerTRES GresEnforceBind"
    ),
    harmless=_split_names(
        "SLUID GroupId WCKey FailedNode Requeue BatchFlag ExitCode DerivedExitCode RunTime ResizeTime CrontabSpec "
        "PreemptEligibleTime PreemptTime SuspendTime SecsPreSuspend LastSchedEval Scheduler AllocNode:Sid "
        "SchedNodeList BatchHost StepMgrEnabled JOB_GRES MemUpdate DelayBoot LicensesAlloc SpreadSegments "
        "ConsolidateSegments BurstBufferState Power GresAllowTaskSharing GresOneTaskPerSharing "
        "KillOInInvalidDependent KillOnInvalidDependent ExpeditedRequeue OOMKillStep MemPerTres TresBind TresFreq "
        "MailUser MailType ContainerType Runtime Container ContainerID SELinuxContext ResvPorts"
    ),
    text=_split_names("Command SubmitLine WorkDir SystemComment Extra StdErr StdIn StdOut"),
    only=dict.fromkeys(("FedOrigin", "FedViableSiblings", "FedActiveSiblings", "MinMemoryTRES"), frozenset()),
)
KNOWN_FIELDS_BY_KIND: Mapping[str, KnownScontrolFields] = {
    "node": NODE,
    "partition": PARTITION,
    "reservation": RESERVATION,
    "job": JOB,
}
"""Known fields by the word that follows `scontrol show`."""
KNOWN_COLUMNS: Mapping[str, frozenset[str]] = {
    "squeue": _split_names(
        "Account AccrueTime admin_comment AllocNodes AllocSID ArrayJobId ArrayTaskId AssocId BatchFlag BatchHost "
        "BoardsPerNode BurstBuffer BurstBufferState Cluster ClusterFeature Command Comment Container ContainerId "
        "ContainerType Contiguous Cores CoreSpec cpus-per-task cpus-per-tres CPUsPerTask CronJob Deadline "
        "DelayBoot Dependency DerivedEC EligibleTime EndTime Exclusive ExcNodes exit_code Feature GroupId "
        "GroupName HetJobId HetJobIdSet HetJobOffset JobArrayId JobId LastSchedEval Licenses LicensesAlloc "
        "MaxCPUs MaxNodes MCSLabel mem-per-tres MinCPUs MinMemory MinTime MinTmpDisk Name Network Nice NodeList "
        "NTPerBoard NTPerCore NTPerNode NTPerSocket NumCPUs NumNodes NumTasks Origin OriginRaw OverSubscribe "
        "Partition PendingTime PreemptTime Prefer Priority PriorityLong Profile QOS Reason ReasonList Reboot "
        "ReqNodes ReqSwitch Requeue Reservation ResizeTime RestartCnt SchedNodes SCT SegmentSize SiblingsActive "
        "SiblingsActiveRaw SiblingsViable SiblingsViableRaw SLUID Sockets SPerBoard StartTime State StateCompact "
        "StdErr StdIn StdOut SubmitTime system_comment Threads TimeLeft TimeLimit TimeUsed tres-alloc tres-bind "
        "tres-freq tres-per-job tres-per-socket tres-per-task UserId UserName Wait4Switch WCKey WorkDir"
    ),
    "sinfo": _split_names(
        "AllocMem AllocNodes Available Cluster Comment Cores CPUs CPUsLoad CPUsState DefaultTime Disk Extra "
        "Features features_act FreeMem Gres GresUsed Groups MaxCPUsPerNode Memory NodeAddr NodeAI NodeAIOT "
        "NodeHost NodeList Nodes OverSubscribe Partition PartitionName Port PreemptMode PriorityJobFactor "
        "PriorityTier Reason Reservation Root Size SocketCoreThread Sockets StateCompact StateComplete StateLong "
        "Threads Time TimeStamp User UserLong Version Weight"
    ),
}
"""Columns that `--helpFormat` lists in 24.11 and 26.05, by program (22.05 lists none).

The values of these columns are not checked, because scontrol's record contains every field on which a decision depends.
Other columns are derived from these fields (PendingTime, TimeLeft), or no decision depends on them (AssocId, Profile).
"""
