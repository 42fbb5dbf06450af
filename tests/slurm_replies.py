"""The output of Slurm's commands for a small site. Tests change single words of it."""

from __future__ import annotations

CONFIG = """\
Configuration data as of 2026-11-21T15:00:00
AccountingStorageEnforce = associations,limits,qos
AccountingStorageType   = accounting_storage/slurmdbd
PriorityParameters      = (null)
PriorityCalcPeriod      = 00:05:00
PriorityDecayHalfLife   = 7-00:00:00
PriorityFavorSmall      = No
PriorityFlags           =
PriorityMaxAge          = 7-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightAssoc     = 0
PriorityWeightFairShare = 10000
PriorityWeightJobSize   = 500
PriorityWeightPartition = 200
PriorityWeightQOS       = 2000
PriorityWeightTRES      = CPU=100,GRES/gpu=300
SLURM_VERSION           = 26.05.5

Slurmctld(primary) at slurmctld is UP
"""
PARTITIONS = """\
PartitionName=main AllowGroups=ALL AllowQos=ALL Default=YES QoS=N/A MaxTime=UNLIMITED Nodes=n[1-4] \
PriorityJobFactor=1 PriorityTier=1 State=UP TotalNodes=4 TRES=cpu=32,mem=64000M,node=4,billing=32,gres/gpu=4
PartitionName=fast AllowGroups=ALL QoS=part-fast PriorityJobFactor=10 PriorityTier=5 State=UP TRES=cpu=16,node=2
"""
_ASSOC = (
    "ClusterName=lab Account={account} UserName={user} Partition= Priority={priority} ID={id} "
    "SharesRaw/Norm/Level/Factor={shares}/0.50/100/0.50 UsageRaw/Norm/Efctv=0.00/0.00/0.00 ParentAccount={parent} "
    "Lineage=/x/ DefAssoc=No GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(1) GrpWall=N(12.50) "
    "GrpTRES=cpu={cpu}(4),mem=N(4000),node=N(1) GrpTRESMins=cpu={minutes}(40),mem=N(0) GrpTRESRunMins=cpu=N(0) "
    "MaxJobs={jobs} MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ={wall} MaxTRESPJ={per_job} MaxTRESPN= MaxTRESMinsPJ= "
    "MinPrioThresh= Comment=a word with = in it"
)


def association(account, user="", id=1, parent="", **words):
    """A line of an association."""
    facts = {"priority": 0, "shares": 1, "cpu": "N", "minutes": "N", "jobs": "", "wall": "", "per_job": ""}
    who = f"{user}(1001)" if user else ""
    return _ASSOC.format(account=account, user=who, id=id, parent=parent, **facts | words)


QOS_LINE = (
    "QOS={name}(1) UsageRaw=240.000000 GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(1) GrpWall=N(33.25) "
    "GrpTRES=cpu=N(4) GrpTRESMins=cpu=N(77),mem=N(0) GrpTRESRunMins=cpu=N(0) MaxWallPJ= MaxTRESPJ= MaxTRESPN= "
    "MaxTRESMinsPJ= MinPrioThresh= MinTRESPJ= PreemptMode=OFF Priority=10 Account Limits= physics={{MaxJobsPA=N(1) "
    "GrpTRESMins=cpu=N(999)}} User Limits= ada(1001)={{MaxJobsPU=2(1)}}"
)
STATE = "\n".join(
    [
        "Current Association Manager state", "", "Association Records", "",
        association("biology", id=5, parent="root(1)", shares=20, priority=40),
        association("root"),
        association("physics", id=2, parent="root(1)", shares=80, cpu=64, minutes=100),
        association("physics", "ada", 3, jobs="2(1)", wall=120, per_job="cpu=8"),
        association("biology", "bob", 6, shares=2147483647),
        "", "QOS Records", "", QOS_LINE.format(name="normal"), QOS_LINE.format(name="part-fast"),
    ]
)  # fmt: skip
QOS = """\
Name|Priority|Flags|UsageFactor|LimitFactor|UsageThreshold|GrpTRES|MaxTRESPU|MaxJobsPU|MaxWall
normal|10||1.000000||||cpu=16|2|
part-fast|0|OverPartQOS,DenyOnLimit|0.500000|2.000000|0.250000|||3|1-00:00:00
"""
SHARES = """\
{"shares": {"shares": [
  {"id": 1, "fairshare": {"factor": {"set": true, "number": 0.0}}},
  {"id": 3, "fairshare": {"factor": {"set": true, "infinite": false, "number": 0.25}}},
  {"id": 6, "fairshare": {"factor": 1.0}},
  {"id": 99, "fairshare": {"factor": 1.0}}]}}
"""
SHARES_TEXT = "ID|FairShare\n1|\n3|0.250000\n6|1.000000\n"

ALL = {"config": CONFIG, "partitions": PARTITIONS, "state": STATE, "qos": QOS, "shares": SHARES}
