"""What one reading of the cluster costs, by transport: `make cluster` or `make cluster-wide`, then
`python -m tests.slurm.reading_cost --queued 100 1000 10000`.

Prints wall and CPU time of the bridge's side, bytes that come over the network, and what `sdiag` says of the calls that
slurmctld answers for it: how many, by type, and the time that they take there. Nothing is asserted: these are
measurements. Jobs wait held, each submitted by itself, so that each is a record of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from tests.slurm.figures import clean
from tests.slurm.harness import Slurm

SUBMIT = """
import sys
from pyslurm import JobSubmitDescription
wish = JobSubmitDescription(name="wrap", script="#!/bin/sh\\nsleep 1\\n", working_directory="/tmp", ntasks=1,
    time_limit=5, standard_output="/dev/null", environment={"A": "b"})
for _ in range(int(sys.argv[1])):
    wish.submit()
"""
"""Jobs by the library: sbatch would be thousands of processes."""

READINGS = """
import json, os, re, resource, subprocess, sys, time
from cpsched_bridge.adapters.slurm.transport.cli.transport import CliTransport

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

def children_s():
    total = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            total += (int(fields[11]) + int(fields[12])) * TICK_S
    return total

def cpu_s():
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + children_s()

def received():
    return int(open("/sys/class/net/eth0/statistics/rx_bytes").read())

def calls():
    text = subprocess.run(["sdiag"], capture_output=True, text=True, check=True).stdout
    by_type, _, rest = text.partition("Remote Procedure Call statistics by user")
    types = {name: (int(count), int(us)) for name, count, us in
             re.findall(r"(REQUEST_[A-Z_]+)\\s*\\(.*count:(\\d+).*total_time:(\\d+)", by_type)}
    mine = re.search(r"cpsched\\s*\\(.*count:(\\d+).*total_time:(\\d+)", rest)
    return types, (int(mine[1]), int(mine[2])) if mine else (0, 0)

def measured(transport, rounds):
    transport.read()
    took, (types, mine), bytes_before, cpu = [], calls(), received(), cpu_s()
    for _ in range(rounds):
        began = time.perf_counter()
        seen = transport.read()
        took.append(time.perf_counter() - began)
    cpu, bytes_after, (later, mine_later) = cpu_s() - cpu, received(), calls()
    answered = {name: (count - types.get(name, (0, 0))[0]) / rounds for name, (count, _) in later.items()}
    transport.close()
    return {
        "jobs": len(seen.jobs), "nodes": len(seen.nodes), "took_s": took, "cpu_s": cpu / rounds,
        "bytes": (bytes_after - bytes_before) / rounds,
        "calls": (mine_later[0] - mine[0] - 1) / rounds, "there_s": (mine_later[1] - mine[1]) / rounds / 1e6,
        "types": {name: times for name, times in answered.items() if times >= 0.5},
    }

which, rounds = sys.argv[1], int(sys.argv[2])
if which == "pyslurm":
    from cpsched_bridge.adapters.slurm.transport.pyslurm.transport import PyslurmTransport
    transport = PyslurmTransport(deadline_s=60.0)
else:
    transport = CliTransport(deadline_s=60.0)
print(json.dumps(measured(transport, rounds)))
"""


def told(which: str, found: dict[str, Any]) -> str:
    """One transport's row, and the calls by type below it."""
    median, worst = np.percentile(np.array(found["took_s"]), [50, 100])
    types = ", ".join(f"{name} {times:.1f}" for name, times in sorted(found["types"].items()))
    return (
        f"| {found['jobs']:,} | {found['nodes']:,} | {which} | {1000 * median:.0f} ({1000 * worst:.0f}) "
        f"| {1000 * found['cpu_s']:.0f} | {found['bytes'] / 1e6:.2f} | {found['calls']:.1f} "
        f"| {1000 * found['there_s']:.1f} |\n    {types}"
    )


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--transports", nargs="+", default=["pyslurm", "cli"])
    wanted = parser.parse_args()
    slurm = Slurm()
    clean(slurm)
    slurm.plugin(on=True)
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"load average {load}; median (longest) of {wanted.rounds} readings")
    print("| jobs | nodes | transport | wall, ms | CPU, ms | MB received | calls | time in slurmctld, ms |")
    print("|---|---|---|---|---|---|---|---|")
    present = 0
    for queued in sorted(wanted.queued):
        while present < queued:
            part = min(1000, queued - present)
            slurm.python(SUBMIT, str(part), user="alice", timeout_s=300)
            present += part
        for which in wanted.transports:
            print(told(which, slurm.python(READINGS, which, str(wanted.rounds), timeout_s=600)), flush=True)
    clean(slurm)


if __name__ == "__main__":
    main()
