"""Collecting from a stand-in for Slurm's commands, and reading the resulting folder."""

import json
import os
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cpsched.site.site_policy import FairShareRules, PartitionPolicy
from cpsched_sim.cli import app
from cpsched_sim.errors import InputError
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.whatif.accounting_history import read_history
from cpsched_sim.whatif.slurm_collection import (
    JOB_FORMAT,
    collect_from_slurm,
    run_slurm_command_in_utc,
)
from cpsched_sim.whatif.slurm_collection_folder import SlurmCollectionFolder
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_io import WhatIfInputs, read_whatif_window
from cpsched_sim.whatif.whatif_replay import replay_window
from cpsched_sim.whatif.whatif_window import OUTAGE, WindowPeriodOptions
from tests import warm
from tests.unit.sim.whatif.accounting import FIRST_S

NOW = datetime.fromtimestamp(FIRST_S + 2 * 86_400, UTC)
NODES = "".join(
    f"NodeName=n{at} CPUTot=4 CPUEfctv=4 RealMemory=8000 Gres=(null) State=IDLE Partitions=main "
    f"Reason=zoe was here [root@x] Weight=1\n"
    for at in range(1, 4)
)
CONFIG = """Configuration data as of now
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightFairShare = 100000
PriorityDecayHalfLife   = 14-00:00:00
PriorityFlags           = NO_FAIR_TREE
PriorityMaxAge          = (null)
AccountingStorageEnforce = associations,limits
SchedulerParameters     = bf_interval=45
SchedulerType           = sched/backfill
SlurmUser               = zoe(64030)
"""


def at(hours):
    return (datetime.fromtimestamp(FIRST_S, UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")


def a_job(id, hour, user="ada", runs=1.0, wait=0.0):
    row = {
        "JobID": id, "JobIDRaw": id, "User": user, "Account": "phys", "Partition": "main", "QOS": "normal",
        "Submit": at(hour), "Eligible": at(hour), "Start": at(hour + wait), "End": at(hour + wait + runs),
        "State": "COMPLETED", "NNodes": 1, "NCPUS": 4, "ReqTRES": "cpu=4,mem=1G,node=1",
        "AllocTRES": "cpu=4,mem=1G,node=1", "Timelimit": "02:00:00", "NodeList": "n1", "JobName": f"{user}|secret",
    }  # fmt: skip
    return "|".join(str(row.get(name, "")) for name in JOB_FORMAT.split(","))


def answers(command):
    """Slurm's answers; sacct reports each job whose hour is requested."""
    words = command.split()
    if words[0] == "sacct":
        since, until = (words[words.index(name) + 1] for name in ("--starttime", "--endtime"))
        rows = [
            a_job(n, n, "zoe" if n % 5 == 0 else "ada") for n in range(1, 40) if since <= at(n + 1) and at(n) < until
        ]
        return "\n".join([JOB_FORMAT.replace(",", "|"), *rows, ""])
    said = {
        "scontrol -o show node": NODES,
        "scontrol show config": CONFIG,
        "scontrol -o show partition": "PartitionName=main PriorityTier=3 GraceTime=90 QoS=fast Nodes=n[1-3]\n",
        "scontrol -o show license": "LicenseName=matlab Total=2 Used=0 Free=2 Reserved=0 Remote=no\n",
        "sshare --all --long --parsable2": "Account|User|RawUsage\nphys|zoe|5\nphys|ada|1000\n",
    }
    if command in said:
        return said[command]
    what = words[words.index("show") + 1]
    if what == "event":
        return (f"NodeName|TimeStart|TimeEnd|State|Duration\n|{at(0)}|Unknown||\nn2|{at(3)}|{at(9)}|DOWN*|\n"
                f"n3|{at(1)}|Unknown|DRAIN|\ngone|{at(1)}|{at(2)}|DOWN|\nn1|{at(1)}|{at(2)}|IDLE|\n")  # fmt: skip
    if what == "association":
        head = "Account|User|Partition|ParentName|Share|Priority|DefaultQOS|MaxJobs"
        return f"{head}\nroot||||1|||\nphys|||root|10|||\nphys|ada|||1||normal|2\n"
    if what == "qos":
        return "Name|Priority|Flags|UsageFactor\nnormal|5||1\nfast|9||1\n"
    raise InputError(f"{command}: no such table")


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site"


@pytest.fixture
def collect(site):
    """Collect from Slurm's answers, and note the commands if `asked` is a list."""

    def run(ask=answers, days=2.0, anonymous=False, asked=None):
        noting = ask if asked is None else lambda command: asked.append(command) or ask(command)
        return collect_from_slurm(days, site, anonymous, noting, NOW)

    return run


@pytest.fixture
def folder(site, collect):
    collect()
    return site


def test_keeps_each_job_once_and_reports_missing_data(site, collect):
    found = collect()
    assert found.lines["jobs.txt"] == 40, "39 jobs; a job in two days counts once"
    assert list(found.lacking) == ["reservations.txt"]
    assert json.loads((site / "collected.json").read_text())["until"] == "2026-09-23T00:00:00"
    with pytest.raises(InputError, match="choose another folder"):
        collect()


def test_queries_accounting_day_by_day_without_gaps(collect):
    """A day of which sacct prints nothing at all loses no other day."""
    asked, day = [], f"--endtime {at(48)}"
    found = collect(
        lambda command: "" if command.startswith("sacct ") and day in command else answers(command), asked=asked
    )
    words = [command.split() for command in asked if command.startswith("sacct ")]
    days = [tuple(each[each.index(name) + 1] for name in ("--starttime", "--endtime")) for each in words]
    assert days == [(at(0), at(24)), (at(24), at(48))]
    assert found.lines["jobs.txt"] > 20


def test_queries_slurm_in_utc(tmp_path, monkeypatch):
    program = tmp_path / "sacct"
    program.write_text('#!/bin/sh\necho "$TZ $SLURM_TIME_FORMAT $SLURM_CLUSTERS"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    assert run_slurm_command_in_utc("sacct") == "UTC0 standard \n"


def test_commands_only_read_and_have_whole_seconds(collect):
    """sacct refuses fractions: "Invalid time specification"."""
    collect(days=0.012345678, asked=(asked := []))
    assert all(command.split()[0] in ("sacct", "sshare") or " show " in command for command in asked), asked
    begins = [word for command in asked for word in command.replace("=", " ").split() if word.startswith("2026-")]
    assert ["." in word for word in begins] == [False] * len(begins) != []


def test_replaces_names_if_requested(site, collect):
    collect(anonymous=True)
    text = {path.name: path.read_text() for path in site.iterdir()}
    assert not [name for name in ("ada", "zoe", "secret") if name in "".join(text.values())]
    assert {line.split("|")[2] for line in text["jobs.txt"].splitlines()[1:]} == {"u1", "u2"}
    assert text["shares.txt"] == "Account|User|RawUsage\nphys|u2|5\nphys|u1|1000\n", "the same number everywhere"
    users = [row.split("|")[1] for row in text["associations.txt"].splitlines()[1:]]
    assert users == ["", "", "u1"], "accounts have no user"
    assert "bf_interval=45" in text["config.txt"]


def test_policy_is_that_of_site(folder):
    found = load_site_policy_file(folder / "policy.yaml")
    weights = found.policy.priority.weights
    assert (weights.age, weights.fair_share, weights.max_age_s) == (1000, 100_000, 7 * 86_400), "(null) says nothing"
    assert found.policy.partitions["main"] == PartitionPolicy(3, 1, "fast", grace_s=90)
    assert found.policy.fair_share == FairShareRules("classic", 14 * 86_400)
    assert found.used_s == {("phys", "ada"): 1000.0, ("phys", "zoe"): 5.0}


def test_collects_preemption_unless_jobs_are_suspended(tmp_path):
    def policy(mode):
        config = CONFIG.replace("bf_interval=45", "bf_interval=30,preempt_reorder_count=3")
        config += f"PreemptType = preempt/qos\nPreemptMode = {mode}\nPreemptParameters = youngest_first\n"
        collect_from_slurm(2, tmp_path / mode, False, replied({"scontrol show config": config}), NOW)
        return load_site_policy_file(tmp_path / mode / "policy.yaml")

    entry = policy("REQUEUE").file.preemption
    assert (entry.type, entry.mode, entry.youngest_first, entry.reorder_count) == ("qos", "requeue", True, 3)
    assert policy("SUSPEND,GANG").policy.preemption is None


def test_names_settings_that_replay_does_not_have(site, collect):
    """Recorded forms of `scontrol show config`, `scontrol -o show partition` and `sacctmgr -P show qos`."""
    config = CONFIG.replace("= NO_FAIR_TREE", "= DEPTH_OBLIVIOUS,ACCRUE_ALWAYS,NO_NORMAL_QOS").replace(
        "associations,limits", "all"
    ) + (
        "PreemptType = preempt/partition_prio\nPreemptMode = GANG,REQUEUE\nPreemptParameters = min_exempt_priority=5\n"
        "PriorityUsageResetPeriod = MONTHLY\nPriorityWeightTRES = CPU=5,Mem=much\nPriorityCalcPeriod = 00:01:00\n"
        "FairShareDampeningFactor = 3\nPrioritySiteFactorPlugin = site_factor/ours\n"
        "SlurmctldParameters = enable_configless,max_powered_nodes=7,later_option\nTopologyParam = TopoOptional\n"
    )
    partitions = (
        "PartitionName=main PriorityTier=3 QoS=fast PreemptMode=GANG,CANCEL MaxTime=7-00:00:00 LLN=NO\n"
        "PartitionName=low PriorityTier=1 QoS=gone PreemptMode=SUSPEND OverSubscribe=YES:4 Later=1\n"
    )
    qos = (
        "Name|Priority|Flags|UsageFactor|PreemptMode|MaxJobsAccruePU\n"
        "normal|5|DenyOnLimit,NoReserve|1|cluster|\nfast|9||1|within,requeue|7\n"
    )
    associations = (
        "Account|User|Partition|ParentName|Share|Priority|DefaultQOS|MaxJobs|MaxJobsAccrue|GrpJobsAccrue|MinPrioThres\n"
        "root||||||||||\nphys|||root|1||||||5\nphys|ada||||||3|4||5\n"
    )
    said = {
        "scontrol show config": config, "scontrol -o show partition": partitions, "sacctmgr --parsable2 show qos": qos,
        "sacctmgr --parsable2 show association": associations,
    }  # fmt: skip
    found = collect(replied(said))
    assert set(found.notes) == {
        "PreemptMode of the cluster: GANG is not simulated",
        "PreemptMode of partition main: GANG is not simulated",
        "PreemptMode of partition low: suspend is not simulated, so its jobs are not preempted",
        "PreemptMode of QOS fast: WITHIN is not simulated",
        "PreemptParameters: min_exempt_priority is not simulated",
        "PriorityFlags: ACCRUE_ALWAYS is not simulated",
        "PriorityUsageResetPeriod=MONTHLY is not simulated: usage only decays",
        "PriorityWeightTRES: Mem=much must be NAME=WEIGHT",
        "PrioritySiteFactorPlugin: the priorities that site_factor/ours sets are unknown",
        "partition low: its QOS gone is unknown",
        "QOS normal: flag NoReserve is not simulated",
        "QOS fast: MaxJobsAccruePU=7 is not simulated",
        "SlurmctldParameters: max_powered_nodes is not modelled: Slurm starts no job that would power up more nodes",
        "SlurmctldParameters: later_option is unknown here, and Slurm ignores unknown options",
        "limit MinPrioThres of 2 associations is not simulated",
        "limit MaxJobsAccrue of 1 association is not simulated",
        "partition low: OverSubscribe=YES:4 is not simulated",
        "partition low: Later=1 is not simulated",
    }
    assert SlurmCollectionFolder.of(site).notes == found.notes
    policy = load_site_policy_file(site / "policy.yaml").policy
    assert (policy.preemption.mode, policy.preemption.modes) == ("requeue", {"main": "cancel", "low": "off"})
    assert (policy.fair_share.algorithm, policy.fair_share.dampening) == ("depth-oblivious", 3)
    assert (policy.priority.period_s, policy.priority.weights.tres) == (60, {"cpu": 5.0})
    assert (policy.priority.weights.raw_qos, policy.priority.weights.raw_tres) == (True, False)
    assert (policy.limits_hold, policy.safe) == (True, True)


def test_reads_usage_without_decay_and_omits_missing_qos(site, collect):
    def ask(command):
        if command.startswith("sshare"):
            raise InputError("no shares")
        return answers(command).replace("14-00:00:00", "00:00:00").replace("QoS=fast", "QoS=gone")

    collect(ask)
    found = load_site_policy_file(site / "policy.yaml")
    assert (found.policy.fair_share.half_life_s, found.used_s, found.policy.partitions["main"].qos) == (0, {}, "")


def test_outages_hold_whole_nodes_for_their_time(folder):
    there = SlurmCollectionFolder.of(folder)
    outages, strange = there.outages(there.system())
    assert strange == 1, "a node that is not there any more"
    assert [(o.begin_s - FIRST_S, o.end_s - FIRST_S) for o in outages] == [(3 * 3600, 9 * 3600), (3600, 48 * 3600)]
    window, digests = read_whatif_window(
        WhatIfInputs(source=folder, period=WindowPeriodOptions(from_=at(0)), site=there.policy())
    )
    away = window.role == OUTAGE
    assert away.sum() == digests["outages"] == 2
    found = replay_window(window, ReplaySpec(WhatIfCase.parse("slurm").spec).build())
    assert found.processors[away].tolist() == [4, 4]
    assert sorted((found.start_s[away] - FIRST_S).tolist()) == [3600, 3 * 3600]


def test_rejects_other_folder(tmp_path):
    with pytest.raises(InputError, match="was not written by `cpsched whatif collect`"):
        SlurmCollectionFolder.of(tmp_path)
    (tmp_path / "collected.json").write_text('{"until": "nonsense"}')
    with pytest.raises(InputError, match="was not written by"):
        SlurmCollectionFolder.of(tmp_path)


def test_rejects_accounting_with_other_columns(site, collect):
    with pytest.raises(InputError, match="instead of the requested columns"):
        collect(lambda command: "Slurm accounting storage is disabled\n")
    assert not site.exists()


def test_collects_and_reports_on_slurm_host(tmp_path, site, monkeypatch):
    """Stand-ins of the commands on the PATH, as a host with Slurm has them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    code = f"import sys; from {__name__} import answers; print(answers(' '.join(sys.argv[1:])), end='')"
    server = warm.server(__name__)
    for name in ("sacct", "sacctmgr", "sshare", "scontrol"):
        words = [sys.executable, str(Path(warm.__file__)), server, "-c", code, name]
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    days = max(1, (datetime.now(UTC) - datetime.fromtimestamp(FIRST_S, UTC)).days + 2)
    monkeypatch.setattr("cpsched_sim.whatif.slurm_collection.HOURS_PER_REQUEST", 24 * 400)
    said = CliRunner().invoke(app, ["whatif", "collect", "--days", str(days), "--out", str(site)])
    assert said.exit_code == 0, said.output
    assert "note: without reservations.txt" in said.stderr
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app,
        ["whatif", "run", str(site), "--from", at(0), "--with", "easy", "--out", str(out), "--no-sessions", "--anyway"],
    )
    assert done.exit_code in (0, 3), done.output
    found = json.loads((out / "findings.json").read_text())
    told = found["system"]["guessed_by"], found["window"]["jobs"]["outages of nodes"], found["twin"]
    assert (*told, found["cases"][0]["name"]) == ("", 2, "slurm", "easy")


def test_missing_slurm_names_how_to_collect(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        InputError, match="sacct is not installed on this machine: run collect on a host with Slurm, then copy"
    ):
        run_slurm_command_in_utc("sacct")


# ------------------------------------------------------------------------------------------ what users and sites write


def replied(said, between=None):
    """`answers`, but for what begins with one of these commands; sacct's fields may be between `between`."""

    def ask(command):
        for begin, text in said.items():
            if command.startswith(begin):
                mark = command.split()[command.split().index("--delimiter") + 1] if begin == "sacct " else ""
                return text.replace("\0", mark if between is None else between)
        return answers(command)

    return ask


def told(*names):
    """What sacct prints of jobs with these names; each field ends in the mark that stands between fields."""
    rows = [[*a_job(n, n).split("|")[: JOB_FORMAT.count(",")], name] for n, name in enumerate(names, start=1)]
    return "\n".join("\0".join(row) for row in (JOB_FORMAT.split(","), *rows)) + "\n"


FORGED = "x\n8|8|zoe|" + "|".join(a_job(8, 1).split("|")[3:])


@pytest.mark.parametrize("between", [None, "|"])
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("first\nsecond", "first second"), ("a\fb\vc\x85d\u2028e", "a b c d e"), ("a\n\nb|c", "a b|c"),
        ("\x1c", ""), ("", ""),
    ],
)  # fmt: skip
def test_job_name_may_contain_any_line_break(site, collect, name, kept, between):
    collect(replied({"sacct ": told(name, "next")}, between), days=1)
    lines = (site / "jobs.txt").read_bytes().decode().splitlines()
    assert [line.split("|", JOB_FORMAT.count(","))[-1] for line in lines] == ["JobName", kept, "next"]
    assert [job.id for job in read_history(site / "jobs.txt").ran] == [1, 2]


def test_job_name_cannot_forge_job(site, collect):
    collect(replied({"sacct ": told(FORGED)}), days=1)
    (job,) = read_history(site / "jobs.txt").ran
    assert (job.id, job.user, job.name) == (1, "ada", FORGED.replace("\n", " "))


def test_queries_this_cluster_only(collect):
    collect(replied({"scontrol show config": "ClusterName = lab\n" + CONFIG}), days=1, asked=(asked := []))
    shows = {command.split()[3]: " Cluster=lab " in command for command in asked if command.startswith("sacctmgr")}
    assert shows == {"association": True, "event": True, "reservation": True, "qos": False}
    assert all("--local" in command for command in asked if command.startswith("sacct "))


def test_reports_and_omits_associations_of_several_clusters(site, collect):
    root = "root||||1|||\nphys|||root|10|||\nphys|ada|||1|||\n"
    head = "Account|User|Partition|ParentName|Share|Priority|DefaultQOS|MaxJobs\n"
    found = collect(replied({"sacctmgr --parsable2 show assoc": head + root + root}), days=1)
    assert "more than one cluster" in found.lacking["associations.txt"]
    assert not (site / "associations.txt").exists()
    assert load_site_policy_file(site / "policy.yaml").file.dumps.associations == ""


def test_reports_that_sacct_hides_jobs_of_other_users(collect):
    found = collect(lambda command: "".join(row for row in answers(command).splitlines(True) if "|zoe|" not in row))
    assert list(found.lacking) == ["the jobs of other users", "reservations.txt"]
    assert "PrivateData=jobs" in found.lacking["the jobs of other users"]


def test_collects_without_policy_if_a_setting_cannot_be_read(site, collect):
    found = collect(replied({"scontrol show config": CONFIG + "PriorityCalcPeriod = soon\n"}), days=1)
    assert found.lacking["policy.yaml"].startswith("PriorityCalcPeriod=soon: must be minutes")
    assert SlurmCollectionFolder.of(site).policy() is None
