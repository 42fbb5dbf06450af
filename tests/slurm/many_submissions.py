"""Measure what one user's thousands of submissions cost the others: `python -m tests.slurm.many_submissions`.

`make cluster` first. Alice submits `--jobs` jobs of one core from one shell, many more than the cluster runs, and bob
`--others` short jobs of a higher priority, one every two seconds. The same happens under Slurm alone and under the
bridge. Printed are the waits of bob's jobs, how many of alice's jobs were held, delayed or running in the course, how
each of them stood at the end, and how many were lost.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from cpsched.registry import DISPATCHERS
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import TRANSPORT, Slurm, wait_until

LOOK_EVERY_S = 20
MAX_RUN_S = 1800
STARTED = "select label from jobs where id in (select job_id from transitions where after = 'starting')"


def submit(slurm: Slurm, user: str, count: int, pause_s: float, options: str) -> subprocess.Popen[bytes]:
    """Submit `count` jobs from one shell, which writes their ids to a file."""
    once = f"sbatch --parsable -o /dev/null {options} || echo refused; sleep {pause_s}"
    words = ("bash", "-c", f"for i in $(seq {count}); do {once}; done >/tmp/{user}-ids")
    return subprocess.Popen(["docker", "exec", "--user", user, slurm.container("slurmctld"), *words])


def standing(slurm: Slurm) -> dict[str, str]:
    """Return how each of alice's listed jobs stands: its state, and for a pending one whether it is held or delayed."""
    found = {}
    for line in slurm.run("squeue", "-h", "-a", "-u", "alice", "-o", "%i|%T|%Q|%r").splitlines():
        job, state, priority, reason = line.split("|")
        if state == "PENDING":
            state = "held" if priority == "0" else "delayed" if reason == "BeginTime" else "pending"
        found[job] = state
    return found


def format_counts(counts: Counter[str]) -> str:
    """Format the number of each kind."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())) or "none"


def measure(slurm: Slurm, bridge: LiveBridge | None, jobs: int, others: int) -> list[str]:
    """Submit all jobs and return the lines to print."""
    began_s = time.monotonic()
    many = submit(slurm, "alice", jobs, 0, "-n1 -t5 --nice=1000 --wrap 'sleep 20'")
    time.sleep(20)
    few = submit(slurm, "bob", others, 2, "-n1 -t1 --wrap 'sleep 2'")
    with many, few:
        ids = {}
        for user, process in (("bob", few), ("alice", many)):
            while process.poll() is None:
                counts = format_counts(Counter(standing(slurm).values()))
                load = Path("/proc/loadavg").read_text().split()[0]
                print(f"  {time.monotonic() - began_s:5.0f} s: {counts}; load {load}", flush=True)
                time.sleep(LOOK_EVERY_S)
            ids[user] = slurm.run("cat", f"/tmp/{user}-ids").split()
    submitted_s = time.monotonic() - began_s
    wait_until(lambda: not slurm.run("squeue", "-h", "-u", "bob").strip(), MAX_RUN_S, "bob's jobs have ended", 1.0)
    wait_until(lambda: "delayed" not in standing(slurm).values(), 300, "no job is delayed any more", 2.0)
    refused = ids["alice"].count("refused") + ids["bob"].count("refused")
    lines = [f"submitted in {submitted_s:.0f} s, {refused} refused", f"bob's waits: {waits(slurm, ids['bob'])}"]
    now = standing(slurm)
    accounts = slurm.run("sacct", "-aXnP", "-S", "now-2hours", "-u", "alice", "-o", "JobID,Start").splitlines()
    rows = [line.split("|") for line in accounts]
    started = {job for job, start in rows if start not in ("Unknown", "None", "")} & set(ids["alice"])
    known = {line.partition("|")[0] for line in accounts} | now.keys()
    lines.append(f"alice's jobs: {len(started)} started; in the queue: {format_counts(Counter(now.values()))}")
    lines.append(f"lost: {len(set(ids['alice']) - {'refused'} - known)}")
    if bridge is not None:
        ledger = bridge.ledger()
        by_bridge = {label for (label,) in bridge.query("state", STARTED)}
        waiting = [job for job, state in now.items() if state in ("held", "pending")]
        states = Counter(ledger[job].state if job in ledger else "unknown" for job in waiting)
        lines.append(f"waiting jobs in the ledger: {format_counts(states)}")
        lines.append(f"started by Slurm, not by the bridge: {len(started - by_bridge)}")
        phases = sorted(sum(each["seconds"].values()) for each in bridge.round_figures())
        lines.append(f"{len(phases)} cycles, median {phases[len(phases) // 2]:.2f} s, longest {phases[-1]:.2f} s")
        lines.append(f"events: {format_counts(Counter(event.kind for event in bridge.events()))}")
    return lines


def waits(slurm: Slurm, ids: Sequence[str]) -> str:
    """Return the distribution of the waits of jobs that started."""
    records = slurm.wait_for_accounting(ids).values()
    waits_s = sorted(each.start_s - each.submit_s for each in records if each.start_s is not None)
    median_s, late_s = (waits_s[int(share * len(waits_s))] for share in (0.5, 0.95))
    return f"{len(waits_s)} of {len(ids)}, median {median_s} s, 95th percentile {late_s} s, longest {waits_s[-1]} s"


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--others", type=int, default=200)
    parser.add_argument("--row", action="append", choices=["slurm", "bridge"], help="default: both")
    parser.add_argument("--dispatcher", choices=DISPATCHERS.names(), metavar="NAME", default="lookahead")
    wanted = parser.parse_args()
    with closing(Slurm()) as slurm:
        for row in wanted.row or ["slurm", "bridge"]:
            slurm.reset()
            with slurm.configured("PriorityWeightPartition=2000"):  # so that alice's jobs can be lower by `--nice`
                settings = {"policy": {"dispatcher": wanted.dispatcher}, "options": {"transport": TRANSPORT}}
                slurm.plugin(on=row == "bridge")
                with LiveBridge(slurm, "many", **settings) if row == "bridge" else nullcontext() as bridge:
                    print(row, flush=True)
                    for line in measure(slurm, bridge, wanted.jobs, wanted.others):
                        print(f"  {line}", flush=True)
                    slurm.run("scancel", "-u", "alice")
                    wait_until(lambda: not standing(slurm), 300, "alice's jobs are gone", 2.0)


if __name__ == "__main__":
    main()
