"""Record what the bridge reads of a running wide test cluster, for `tests.recordings`.

    SLURM=26.05 deploy/cluster wide 12 && python -m tests.slurm.record_cluster && python -m tests.recordings

Takes about three minutes. It fills the cluster with jobs of every kind and in every state, and records two moments.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence

from cpsched_sim.program_runner import FIXED_ENVIRONMENT
from tests.data.slurm.record import DUMP
from tests.recordings import FOLDER, Answer, Moment, Recording, Replay
from tests.slurm.harness import CONF, RELEASE, Slurm

WITH_LIBRARY = bool(RELEASE["pyslurm"])
"""Whether this release's pyslurm is recorded, too."""
SETTINGS = """\
Licenses=matlab:5,ansys:3,flex@server:7
AccountingStorageTRES=gres/gpu,gres/gpu:a100,license/matlab
PriorityWeightFairshare=2000
PriorityWeightJobSize=300
PriorityWeightPartition=500
PriorityWeightQOS=10000
PriorityWeightTRES=CPU=100,GRES/gpu=300
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=00:00:00
PrologSlurmctld=/etc/slurm/prolog
EpilogSlurmctld=/etc/slurm/epilog
NodeName=w[1-4] {node} Port=[20001-20004] Feature=cpu,rack1 Weight=1
NodeName=w[5-9] {node} Port=[20005-20009] Feature=cpu,rack2 Weight=5
NodeName=w[10-11] {node} Port=[20010-20011] Feature=gpu,rack1 Gres=gpu:a100:2 Weight=9
NodeName=w12 {node} Port=20012 Feature=gpu,rack2 Gres=gpu:a100:1,gpu:l40:1 Weight=9
PartitionName=main Nodes=w[1-9] Default=YES DefaultTime=60 MaxTime=1-00:00:00 State=UP
PartitionName=short Nodes=w[1-2] DefaultTime=5 MaxTime=30 MaxNodes=1 PriorityTier=2 PriorityJobFactor=10 State=UP
PartitionName=gpu Nodes=w[10-12] DefaultTime=60 MaxTime=UNLIMITED State=UP TRESBillingWeights=CPU=1.0,GRES/gpu=8
PartitionName=closed Nodes=w[1-4] MaxTime=60 AllowAccounts=unused State=DOWN
PartitionName=draining Nodes=w[1-4] MaxTime=60 State=UP
PartitionName=limited Nodes=w[1-9] MaxTime=60 MinNodes=2 MaxMemPerCPU=2000 MaxCPUsPerNode=8 DenyQos=pair State=UP
PartitionName=reserved Nodes=w[1-9] ReqResv=YES State=UP
PartitionName=shared Nodes=w9 OverSubscribe=YES:2 MaxTime=60 State=UP
PartitionName=staff Nodes=w[1-9] AllowGroups=root MaxTime=60 State=UP
"""
GRES = """\
NodeName=w[10-11] Name=gpu Type=a100 File=/run/fakegpu[0-1]
NodeName=w12 Name=gpu Type=a100 File=/run/fakegpu0
NodeName=w12 Name=gpu Type=l40 File=/run/fakegpu1
"""
SCRIPTS = {"prolog": "configuring", "epilog": "completing"}
"""Scripts of slurmctld that last long for a job of this name."""
QOS = ("low", "high set Preempt=low Priority=100", "capped set GrpJobs=1 MaxTRESPerJob=cpu=8 GrpTRES=license/matlab=2")

RESERVED_NOW = (
    "ReservationName=class StartTime=now Duration=300 Users=alice,bob Nodes=w6",
    "ReservationName=site StartTime=now Duration=300 Users=root Licenses=ansys:1 Flags=ANY_NODES",
)
RESERVED_LATER = (
    "ReservationName=later StartTime=now+3hours Duration=60 Users=root Nodes=ALL Flags=MAINT,IGNORE_JOBS",
    "ReservationName=cores StartTime=now+1day Duration=60 Users=alice,bob NodeCnt=1 CoreCnt=4",
    "ReservationName=licensed StartTime=now+20minutes Duration=60 Users=root Licenses=matlab:3 Flags=ANY_NODES",
)

ENDED = r"""
cd; now() { sbatch --parsable --output=/dev/null "$@"; }
now -J completed --wrap 'sleep 2'; now -J completed_two_nodes -N2 -n6 --wrap 'sleep 2'
now -J failed --wrap 'exit 3'; now -J killed_by_signal --wrap 'kill -9 $$'
now -J ended_array --array=1-3 --wrap true; now -J ended_gpu -p gpu --gres=gpu:1 --wrap true
now -J ended_license -L matlab:2 --wrap true
scancel $(now -J cancelled_pending --hold --wrap true)
job=$(now -J cancelled_running --wrap 'sleep 600'); sleep 4; scancel "$job"
"""
RUNNING = r"""
cd; now() { sbatch --parsable --output=/dev/null -t 2:00:00 "$@" --wrap 'sleep 7000'; }
now -J run_core -n1; now -J run_license -n1 -L matlab:2; now -J run_two_licenses -n1 -L matlab:1,ansys:2
now -J run_memory -n1 --mem=4G; now -J run_memory_per_cpu -n2 -c2 --mem-per-cpu=500
now -J run_nodes -N2 -n6; now -J run_uneven -N2 -n5 -w w[3-4]; now -J run_exclusive -n1 --exclusive -w w5
now -J run_gpu -p gpu --gres=gpu:1; now -J run_typed_gpu -p gpu --gres=gpu:a100:1; now -J run_gpus -p gpu --gpus=2
now -J run_low -n4 --qos=low; now -J run_low_two -N2 -n8 --qos=low --requeue -L ansys:1
now -J run_no_requeue -n2 --qos=low --no-requeue; now -J run_capped -n2 --qos=capped -L matlab:1
now -J run_array --array=0-5%2 -n1; now -J run_short -n1 -p short -t 20; now -J run_shared -n2 -p shared -s -t 50
now -J run_unlimited -n1 -p gpu -t UNLIMITED; now -J run_comment -n1 --comment='State=DOWN, a=b'
now -J run_reserved -n1 --reservation=class; now -J to_suspend -n1 -L matlab:1; now -J on_down_node -n1 -w w7
now -J requeued -n1 -w w7 --requeue; now -J on_draining_node -n1 -w w8
now -J configuring -n1 -L flex@server:2; now -J completing -n1 -L flex@server:1
now -J run_either_license -n1 -L 'ansys:1|flex@server:1'
now -J to_requeue_held -n1; now -J to_cancel -n1 -L ansys:1
"""
RUNNING_OF_BOB = r"""
cd; for tasks in 2 8; do sbatch --output=/dev/null -t 2:00:00 -J of_bob -n $tasks --wrap 'sleep 7000'; done
"""
PENDING = r"""
cd; exec 2>&1
held() { sbatch --parsable --hold --output=/dev/null "$@" --wrap 'sleep 300'; }
now() { sbatch --parsable --output=/dev/null -t 30 "$@" --wrap 'sleep 300'; }
now -J full -N9 --exclusive; now -J core -n1 -N9 --exclusive; now -J tasks -n120; now -J range -N5-8 -n80 --exclusive
now -J per_node -N6 --ntasks-per-node=14; now -J memory -N9 --mem=15000; now -J memory_per_cpu -n100 --mem-per-cpu=900
now -J all_memory -n1 --mem=0; now -J cpus_per_task -n30 -c4; now -J excluded -n16 -N1 -x w[1-8]
now -J required -N1 -n16 -w w5; now -J feature -C 'cpu&rack2' -N5 --exclusive; now -J either -C 'rack1|rack2' -n1 -N9
now -J license -L matlab:2; now -J two_licenses -L matlab:2,ansys:1; now -J served -L flex@server:3
now -J other_license -L 'matlab:1|ansys:1'
now -J gpus -p gpu --gres=gpu:2 -N2; now -J typed -p gpu --gres=gpu:l40:1 -N1; now -J total -p gpu --gpus=5
now -J per_task -p gpu -n3 --gpus-per-task=1; now -J typed_total -p gpu --gpus=a100:2
now -J array -N9 --exclusive --array=0-9%3; now -J stepped -N9 --exclusive --array=1-9:4
now -J begin --begin=now+1hour; now -J deadline --deadline=now+1day -N9 --exclusive
now -J several -p main,short -N1 -n16 -w w1; now -J draining -p draining -N4 --exclusive
now -J reserved -p reserved --reservation=class -N2
now -J limited -p limited -N2 -n4; now -J staff -p staff -N9 --exclusive; now -J shared -p shared -s -n16
now -J high -N2 --exclusive --qos=high; now -J low -N9 --exclusive --qos=low; now -J capped --qos=capped
now -J pair --qos=pair -N9 --exclusive; now -J long --time-min=10 -N9 --exclusive; now -J nice --nice=77 -N9 --exclusive
now -J unlimited -p gpu -t UNLIMITED -N3 --exclusive; now -J user -N9 --exclusive=user
now -J contiguous --contiguous -N9; now -J switches --switches=1 -N9; held -J scratch --tmp=100M -N9 --exclusive
now -J threads --threads-per-core=1 -N9; held -J cores --sockets-per-node=2 --cores-per-socket=4 -N9
now -J mincpus --mincpus=12 -N9
now -J spread --spread-job -N8 -n20; now -J no_requeue --no-requeue -N9 --exclusive; now -J dependency_either \
 -d "afterok:$(held -J held)?afterany:$(held -J held_two)"
first=$(held -J held_first -N2 -n3); array=$(held -J held_array --array=0-7%3); scontrol hold "${array}_[2,5]"
for kind in after afterany afterok afternotok; do now -J "depends_$kind" -d "$kind:$first"; done
now -J singleton -d singleton; now -J singleton -d singleton; held -J held_license -L matlab:4
held -J held_gpu -p gpu --gpus-per-node=a100:1 -N2; held -J held_memory --mem-per-gpu=100 --gpus=1 -p gpu
held -J "$(printf 'x\n   UserId=root(0)\n   Priority=7')"; held -J '(null)'; held -J 'a b JobState=RUNNING'
held --comment="$(printf 'JobId=1 JobName=x\n   Licenses=matlab:5')" -J odd_comment; held -J é_%_"'"
sbatch --parsable -J het --begin=now+1hour -n1 : -J het_two -n2 --wrap 'sleep 1'
"""


def ask_live(slurm: Slurm, command: Sequence[str], typed: str) -> Answer:
    """Run a command as the bridge would."""
    settings = [f"--env={name}={value}" for name, value in FIXED_ENVIRONMENT.items()]
    target = ["--interactive", "--user", "cpsched", slurm.container("slurmctld")]
    run = subprocess.run(
        ["docker", "exec", *settings, *target, *command],
        input=typed, capture_output=True, encoding="utf-8", errors="backslashreplace", timeout=120, check=False,
    )  # fmt: skip
    return Answer(run.returncode, run.stdout, run.stderr)


def configure(slurm: Slurm) -> None:
    """Give the cluster typed GPUs, partitions, QOS, limits and slow scripts."""
    lines = slurm.run("cat", CONF)
    node = re.search(r"^NodeName=\S+ (NodeHostname.*?) Port=\S+ (.*?) Feature", lines, re.MULTILINE)
    assert node is not None, "this is not a wide cluster"
    for name, job in SCRIPTS.items():
        script = f'#!/bin/sh\nif [ "$SLURM_JOB_NAME" = {job} ]; then sleep 120; fi\nexit 0\n'
        slurm.run("sh", "-c", f"cat >/etc/slurm/{name} && chmod 755 /etc/slurm/{name}", stdin=script)
    slurm.run("sh", "-c", "cat >/etc/slurm/gres.conf", stdin=GRES)
    slurm.start_as(*SETTINGS.format(node=f"{node[1]} {node[2]}").splitlines())
    for words in QOS:
        slurm.run("sacctmgr", "--immediate", "add", "qos", *words.split(), check=False)
    users = ("alice", "bob")
    for user in users:
        modify = ("sacctmgr", "--immediate", "modify", "user", "where", f"name={user}", "set")
        slurm.run(*modify, "QOS+=low,high,capped", check=False)
    slurm.limit("bob", MaxJobs="2", GrpTRES="cpu=8")
    slurm.wait_until(lambda: set(slurm.node_states().values()) == {"idle"}, 90, "all nodes idle")


def fill(slurm: Slurm) -> None:
    """Create jobs, reservations and unavailable nodes."""
    for words in RESERVED_NOW:
        slurm.scontrol("create", "reservation", *words.split())
    slurm.run("bash", "-c", ENDED, user="alice", timeout_s=300)
    slurm.run("bash", "-c", RUNNING, user="alice", timeout_s=300)
    slurm.run("bash", "-c", RUNNING_OF_BOB, user="bob")
    time.sleep(8)
    jobs = {job.name: identity for identity, job in slurm.squeue().items()}
    slurm.scontrol("suspend", jobs["to_suspend"])
    slurm.scontrol("requeuehold", jobs["to_requeue_held"])
    slurm.run("scancel", jobs["completing"])
    print(slurm.run("bash", "-c", PENDING, user="alice", timeout_s=300), file=sys.stderr)
    slurm.run("bash", "-c", "cd; sbatch --output=/dev/null -J waits_of_bob -n1 --wrap 'sleep 9'", user="bob")
    slurm.plugin(on=True, begin_delay_s=0)
    slurm.sbatch("-J", "by_plugin", "-n3", "-L", "ansys:1")
    slurm.sbatch("-J", "by_plugin_array", "--array=0-3%2")
    slurm.sbatch("-J", "by_plugin_user_hold", "--hold")
    pinned = slurm.sbatch("-J", "by_plugin_pinned", "-N2", "-n6")
    slurm.scontrol("update", f"JobId={pinned}", "ReqNodeList=w[1-2]", "NumNodes=2-2", user="cpsched")
    slurm.plugin(on=False)
    admin = slurm.sbatch("-J", "held_by_admin")
    slurm.scontrol("hold", admin)
    slurm.scontrol("update", "PartitionName=draining", "State=DRAIN")
    slurm.drain("w8", "fan broken")
    slurm.drain("w2", "State=DOWN a=b")
    slurm.scontrol("update", "NodeName=w7", "State=DOWN", "Reason=disk")
    for words in RESERVED_LATER:
        slurm.scontrol("create", "reservation", *words.split())
    time.sleep(12)  # one cycle of Slurm's backfill, which marks planned nodes


def record_moment(slurm: Slurm, replays: Sequence[Replay], moments: list[Moment]) -> None:
    """Let each transport read the cluster, and record all that it asks for."""
    moments.append(Moment(int(slurm.run("date", "+%s")), {}))
    if WITH_LIBRARY:
        moments[-1].pyslurm = slurm.python(DUMP)
    for replay in replays:
        replay.read(moments[-1])


def read_users(slurm: Slurm) -> dict[str, dict[str, object]]:
    """Return uid and groups of each user of the cluster."""
    found = {}
    for name in ("root", "slurm", "alice", "bob", "cpsched"):
        groups = [int(word) for word in slurm.run("id", "-G", name).split()]
        found[name] = {"uid": int(slurm.run("id", "-u", name)), "groups": groups}
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    slurm = Slurm()
    moments: list[Moment] = []

    def ask(moment: Moment, command: Sequence[str], typed: str) -> Answer:
        answer = ask_live(slurm, command, typed)
        moment.record(command, typed, answer)
        return answer

    try:
        slurm.reset()
        configure(slurm)
        fill(slurm)
        groups = {line.split(":")[0]: int(line.split(":")[2]) for line in slurm.run("getent", "group").splitlines()}
        version = slurm.run("scontrol", "--version").split()[-1]
        recording = Recording(version, read_users(slurm), groups, moments)
        replays = [Replay(ask, name) for name in (("cli", "pyslurm") if WITH_LIBRARY else ("cli",))]
        with recording.as_host():
            record_moment(slurm, replays, moments)
            jobs = {job.name: identity for identity, job in slurm.squeue().items()}
            slurm.run("scancel", jobs["to_cancel"], jobs["run_memory"])
            slurm.scontrol("release", jobs["held_license"], user="root")
            slurm.resume("w2")
            time.sleep(12)
            record_moment(slurm, replays, moments)
        path = FOLDER / f"{RELEASE['slurm']}.json.xz"
        recording.save(path)
        counts = [len(moment.answers) for moment in moments]
        print(f"{path.name}: {path.stat().st_size} bytes, {counts} answers", file=sys.stderr)
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
