"""Test more than thirty kinds of jobs that cannot start, together with another user's ordinary jobs.

There are 100 jobs that cannot start, or the number in CPSCHED_HOPELESS_JOBS. All ordinary jobs run, and the bridge
stays in control. Slurm accepts jobs that it will never start if EnforcePartLimits is NO (the default), and if the
submit plugin holds a job that Slurm would otherwise reject.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from cpsched_bridge.adapters.slurm.translation.pending_reasons import REASONS
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

PARTITIONS = {
    "allow-qos": "AllowQos=pair",
    "deny-qos": "DenyQos=normal",
    "allow-account": "AllowAccounts=other",
    "deny-account": "DenyAccounts=lab",
    "allow-group": "AllowGroups=daemon",
    "wide": "MinNodes=3",
    "narrow": "MaxNodes=1",
    "brief": "MaxTime=1",
    "lean": "MaxMemPerNode=100",
    "thin": "MaxCPUsPerNode=1",
    "down-now": "State=DOWN",
    "asleep": "State=INACTIVE",
    "elsewhere": "AllocNodes=n1",
}
QOS = {
    "nobody": "GrpJobs=0",
    "tiny": "GrpTRES=cpu=1",
    "small": "MaxTRESPerJob=cpu=1",
    "sparse": "MaxTRESPerNode=cpu=1",
    "large": "MinTRESPerJob=cpu=16",
    "hasty": "GrpTRESRunMins=cpu=1",
    "single": "MaxTRESPerUser=cpu=1",
    "shared": "MaxTRESPerAccount=cpu=1",
    "idle": "MaxJobsPerUser=0",
}
KINDS = (
    *(f"-p {name} -N1" for name in PARTITIONS if name not in ("narrow", "brief", "thin")),
    *("-p narrow -N2", "-p brief -t9", "-p thin -N1 -n4"),
    *(f"--qos={name} -N1 -n2" for name in QOS),
    *("--qos=quick -N1 -t9", "--qos=cores -N1 -n16 -t9 --begin=now+1day"),
    *("--begin=now+1day -N1", "-H -N1", "--dependency=afterok:{failed} -N1", "--dependency=afterok:{waits} -N1"),
    *("--reservation=later -N1", "-L matlab:1 -N1"),
    *("-N9", "-N1 -n99", "-N1 -c64", "-N1 --mem=1T", "-N1 --gres=gpu:9", "-N1 -C cpu --gres=gpu:1"),
    *("-N1 -x n[1-4]", "-N1 --mincpus=64", "-N1 --tmp=1T", "-N2 --ntasks-per-node=17", "-N1 -w n1 -n17"),
)
"""Options of sbatch. Kinds that Slurm rejects at submission never reach the bridge."""
COUNT = int(os.environ.get("CPSCHED_HOPELESS_JOBS", "100"))
"""Number of submitted jobs that cannot start."""


@pytest.fixture
def site(slurm: Slurm) -> Iterator[None]:
    """Create partitions and QOS that exclude users, and a reservation for tomorrow."""
    sacctmgr, before = ("sacctmgr", "--immediate"), ["normal", "pair", "cores", "quick"]
    of_alice = (*sacctmgr, "modify", "user", "where", "name=alice", "set")
    try:
        slurm.run(*sacctmgr, "add", "account", "other", "Description=other", "Organization=other")
        for name, rule in QOS.items():
            slurm.run(*sacctmgr, "add", "qos", name, "set", rule)
        slurm.run(*of_alice, f"QOS={','.join([*before, *QOS])}")
        for name, rule in PARTITIONS.items():
            slurm.scontrol("create", f"PartitionName={name}", "Nodes=n[1-4]", *rule.split())
        slurm.reserve("later", "Nodes=n1", start="now+1day", users="alice")
        yield
    finally:
        slurm.reset()
        for name in PARTITIONS:
            slurm.run("scontrol", "delete", f"PartitionName={name}", check=False)
        slurm.run(*of_alice, f"QOS={','.join(before)}", check=False)
        slurm.run(*sacctmgr, "delete", "qos", "where", f"name={','.join(QOS)}", check=False)
        slurm.run(*sacctmgr, "delete", "account", "where", "name=other", check=False)


def flood(slurm: Slurm, facts: dict[str, str]) -> dict[str, str]:
    """Submit jobs of all kinds as alice, and return the kind of each accepted job by its id."""
    options = [kind.format(**facts) for kind in KINDS]
    lines = [f"sbatch --parsable -o /dev/null -t5 {each} --wrap 'sleep 1' 2>/dev/null || echo" for each in options]
    turns = -(-COUNT // len(KINDS))
    script = f"for i in $(seq {turns}); do\n" + "\n".join(lines) + "\ndone"
    numbers = slurm.run("bash", "-c", script, user="alice", timeout_s=600).splitlines()
    return {number: KINDS[at % len(KINDS)] for at, number in enumerate(numbers) if number}


def ordinary(slurm: Slurm, count: int) -> list[str]:
    """Submit jobs of four shapes as bob, and return their ids."""
    shapes = ["-n1", "-n4", "-N2 -n4", "-N1 --mem=2G"]
    return [
        job for shape in shapes for job in slurm.burst(count // 4, *shape.split(), "-t1", script="sleep 2", user="bob")
    ]


def wait_until_completed(slurm: Slurm, jobs: list[str], timeout_s: float) -> None:
    """Wait until accounting shows all jobs as completed, because the controller purges jobs after five minutes."""

    def completed() -> bool:
        records = slurm.sacct(jobs)
        return len(records) == len(jobs) and all(each.state == "COMPLETED" for each in records.values())

    wait_until(completed, timeout_s, f"{len(jobs)} jobs are completed", every_s=1.0)


@pytest.mark.usefixtures("site")
def test_30_kinds_of_unstartable_jobs_delay_no_other_user(slurm: Slurm) -> None:
    slurm.run("sbatch", "--parsable", "-o", "/dev/null", "-L", "matlab:4", "-n1", "--wrap", "sleep 1200")  # as root
    failed = slurm.sbatch("-n1", script="exit 1")
    slurm.wait_for_state(failed, "FAILED", 30)
    slurm.plugin(on=True, begin_delay_s=0)  # Slurm rejects some of these kinds if it tests them
    with LiveBridge(slurm, "nobody-pays", start={"timeout_s": 6}) as bridge:
        waits = slurm.sbatch("-H", "-n1")
        kinds = flood(slurm, {"failed": failed, "waits": waits})
        beside = [job for _ in range(5) for job in ordinary(slurm, 20)]
        wait_until_completed(slurm, beside, 300)
        bridge.wait_for_rounds(40, timeout_s=300)
        wait_until_completed(slurm, ordinary(slurm, 40), 180)
        present = {job: each for job, each in slurm.squeue(states="PENDING").items() if job in kinds}
        print("reasons", Counter((kinds[job], each.reason) for job, each in present.items()))
        events = Counter(event.kind for event in bridge.events())
        started = {kind for job, kind in kinds.items() if job not in present}
        in_vain = [kind for kind in kinds.values() if kind not in started]
        assert len(in_vain) >= COUNT * 9 // 10
        assert len(set(in_vain)) >= 30
        assert "circuit_breaker_tripped" not in events
        assert bridge.metric('cpsched_mode{mode="control"}') == 1
        assert sum(events.values()) < 2 * len(kinds)
        for kind, name in (("-p allow-qos", "QOSNotAllowed"), ("-p deny-qos", "QOSNotAllowed"),
                           ("-p allow-account", "AccountNotAllowed"), ("-p deny-account", "AccountNotAllowed"),
                           ("-p brief", "PartitionTimeLimit")):  # fmt: skip
            job = next(job for job in present if kinds[job].startswith(kind))
            assert name in bridge.cpsched("why", job)


REASONS_OF_THE_LIBRARY = """
import ctypes, glob, json
library = ctypes.CDLL(sorted(glob.glob("/usr/lib/*/slurm*/libslurmfull.so") + glob.glob("/usr/lib/*/libslurm.so.*"))[0])
string = library.slurm_job_state_reason_string
string.restype = ctypes.c_char_p
print(json.dumps(sorted({(string(number) or b"").decode() for number in range(230)})))
"""


def test_every_slurm_reason_is_in_table(cluster: Slurm) -> None:
    names = set(cluster.python(REASONS_OF_THE_LIBRARY))
    assert len(names) > 200
    assert names - REASONS.keys() <= {"", "?", "InvalidReason", "Invalid"}


@pytest.mark.usefixtures("site")
def test_slurm_gives_no_reason_for_excluded_account_if_released(slurm: Slurm) -> None:
    """Only jobs that were never held show PartitionConfig, so the bridge must read AllowAccounts and DenyAccounts."""
    partitions = ("allow-account", "deny-account")
    never_held = [slurm.sbatch("-p", name, "-n1", "-t1") for name in partitions]
    slurm.plugin(on=True, begin_delay_s=0)
    released = [slurm.sbatch("-p", name, "-n1", "-t1") for name in partitions]
    before = [slurm.record(job)["LastSchedEval"] for job in released]
    slurm.scontrol("release", ",".join(released))
    for job, last in zip(released, before, strict=True):
        wait_until(lambda: slurm.record(job)["LastSchedEval"] not in ("Unknown", last), 60, "it was looked at")  # noqa: B023
    assert [slurm.job(job).reason for job in never_held] == ["PartitionConfig"] * 2
    assert [slurm.job(job).reason for job in released] == ["None"] * 2


@pytest.mark.usefixtures("site")
def test_readmitted_job_starts(slurm: Slurm) -> None:
    """A partition that allows an account also allows its child accounts. A QOS may be allowed later."""
    slurm.plugin(on=True)
    slurm.scontrol("update", "PartitionName=allow-account", "AllowAccounts=root")
    with LiveBridge(slurm, "let-in", start={"timeout_s": 6}):
        below = slurm.sbatch("-p", "allow-account", "-n1", "-t1")
        shut_out = slurm.sbatch("-p", "allow-qos", "-n1", "-t1")
        slurm.wait_for_state(below, "COMPLETED", 60)
        assert slurm.job(shut_out).held
        slurm.scontrol("update", "PartitionName=allow-qos", "AllowQos=pair,normal")
        wait_until(lambda: slurm.states([shut_out]) == {shut_out: "COMPLETED"}, 60, "it runs once it may")
