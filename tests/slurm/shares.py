"""Two accounts with shares 80 : 20 and equal load: what each uses over time, under Slurm's own backfill and the bridge.

`make cluster`, then `python -m tests.slurm.shares [--minutes N] [--row NAME]...`: prints, from the accounting
records alone, the share of account `major` in all processor seconds since the beginning, every half minute.

Slurm looks at what was used once a minute (the shortest PriorityCalcPeriod), and whoever is behind then has the whole
cluster until the next look. The share is off by up to a minute's work of the cluster for Slurm; a bridge reads the
factors at the same pace, a little later. So it swings around 0.8, ever less as the time over which it is taken grows.
The exit code is 1 where it is farther off at the end than one such look can explain.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import EndedJob, Slurm

ACCOUNTS = {"alice": ("major", 80), "bob": ("minor", 20)}
DUE = 0.8
"""Of all use, to account `major`."""
WEIGHTS = (
    "PriorityWeightFairShare=100000",
    "PriorityWeightAge=0",
    "PriorityCalcPeriod=1",
    "PriorityDecayHalfLife=1:00:00",
)
RUN_S = 8
"""How long each job runs; every job takes a node, so that four run at a time."""
QUEUED = 8
"""Jobs that each account keeps waiting: enough for the seconds between two submissions."""
EVERY_S = 30
LOOK_S = 60 * (1 + 1)
"""Slurm's own pace, and the bridge's after it: for so long the cluster may work for whom nothing is due."""


@contextmanager
def two_accounts(slurm: Slurm) -> Iterator[None]:
    """Accounts with shares 80 : 20 and nothing used yet, and priorities that go by fair share alone."""
    for user, (account, shares) in ACCOUNTS.items():
        add = f"sacctmgr -i add account {account} Fairshare={shares}; sacctmgr -i add user {user} Account={account}"
        slurm.run("bash", "-c", f"{add}; sacctmgr -i modify account where name={account} set RawUsage=0", check=False)
    try:
        with slurm.configured(*WEIGHTS):
            yield
    finally:
        for user, (account, _) in ACCOUNTS.items():
            slurm.run("sacctmgr", "-i", "delete", "user", user, f"account={account}", check=False)
            slurm.run("sacctmgr", "-i", "delete", "account", account, check=False)


def load(slurm: Slurm, seconds: float) -> list[str]:
    """Keep both accounts' queues filled for so long; then what still waits is cancelled. Ids of all jobs."""
    jobs: list[str] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        waiting = [job.user for job in slurm.squeue(states="pending").values()]
        for user, (account, _) in ACCOUNTS.items():
            lacking = QUEUED - waiting.count(user)
            if lacking > 0:
                options = (f"-A{account}", "-N1", "-n16", "-t1")
                jobs += slurm.burst(lacking, *options, script=f"sleep {RUN_S}", user=user)
        time.sleep(1)
    slurm.run("bash", "-c", "squeue -h -t pending -o %A | xargs -r scancel")
    return jobs


def share(records: Sequence[EndedJob], major: set[str], until_s: int) -> float | None:
    """What part of all processor seconds until then the jobs `major` used; None where nobody used any."""
    used = [0, 0]
    for job in records:
        if job.start_s is not None and job.start_s < until_s:
            used[job.id in major] += job.cpus * (min(job.end_s or until_s, until_s) - job.start_s)
    return used[1] / sum(used) if sum(used) else None


def curve(slurm: Slurm, seconds: float) -> list[tuple[int, float]]:
    """Load the cluster for so long; (seconds since the first start, share of `major` since then)."""
    jobs = load(slurm, seconds)
    slurm.wait_until(lambda: not slurm.run("squeue", "-h").strip(), 60, "all jobs have ended", every_s=1.0)
    ran = slurm.sacct(jobs)
    users = slurm.run("sacct", "-anX", "-P", "-o", "JobID,Account", "-j", ",".join(jobs)).split()
    major = {line.partition("|")[0] for line in users if line.endswith("|major")}
    begin_s = min(job.start_s for job in ran.values() if job.start_s is not None)
    marks = range(EVERY_S, int(seconds) + 1, EVERY_S)
    found = [(mark, share(list(ran.values()), major, begin_s + mark)) for mark in marks]
    return [(mark, value) for mark, value in found if value is not None]


def under(slurm: Slurm, row: str, seconds: float) -> list[tuple[int, float]]:
    """The curve under Slurm's own backfill, in mode advise, or under a dispatcher of the bridge."""
    slurm.reset()
    with two_accounts(slurm):
        if row == "slurm":
            return curve(slurm, seconds)
        slurm.plugin(on=row != "advise")
        dispatcher = "lookahead" if row == "advise" else row
        weight = {"dispatcher_settings": {"site_weight": 1}} if dispatcher == "lookahead" else {}
        how = {"mode": "advise", "advise": {"every_s": 5.0}} if row == "advise" else {}
        with LiveBridge(slurm, "shares", policy={"dispatcher": dispatcher, **weight}, **how):
            return curve(slurm, seconds)


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=6, help="of load, under each")
    parser.add_argument(
        "--row", action="append", help="slurm, advise, or a dispatcher; default: with easy and lookahead"
    )
    wanted = parser.parse_args()
    slurm, seconds, far_off = Slurm(), 60 * wanted.minutes, False
    print("share of account major (80 of 100 shares) in all use since the beginning, after so many seconds", flush=True)
    try:
        for row in wanted.row or ["slurm", "advise", "easy", "lookahead"]:
            found = under(slurm, row, seconds)
            print(f"{row:24} {' '.join(f'{mark}: {value:.2f}' for mark, value in found)}", flush=True)
            far_off |= abs(found[-1][1] - DUE) > LOOK_S / seconds
    finally:
        slurm.close()
    sys.exit(far_off)


if __name__ == "__main__":
    main()
