"""Measure on a wide cluster: `make cluster-wide`, then `python -m tests.slurm.figures`.

Print the time until all jobs in a burst of released jobs run, and the cost of a cycle with a long queue: once with jobs
whose begin time is later, which are read but not planned, and once with jobs of many sizes that are planned and started
while others end. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.registry import DISPATCHERS
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, docker, wait_until
from tests.slurm.inside import adapter

Policy = dict[str, Any]
"""The section `policy` of a bridge's settings."""

AT_ONCE = 350
"""Number of jobs of many sizes that start before the measured cycles."""


def burst(slurm: Slurm, count: int) -> None:
    """Release `count` held jobs in one batch, and print the time until all are seen running."""
    slurm.plugin(on=True, begin_delay_s=0)
    slurm.burst(count, "-n1", "-t5", script="sleep 120")
    running, commands_s, all_s, failed = slurm.call(adapter.start_burst, count)
    print(f"{running} of {count} jobs RUNNING {all_s:.2f} s after the decision ({commands_s:.2f} s for the commands)")
    if failed:
        print(f"  {failed} commands were not taken")
    clean(slurm)


def long_queue(slurm: Slurm, queued: int, rounds: int, policy: Policy, cpus: float) -> None:
    """Measure a cycle with `queued` held jobs whose begin time is later."""
    slurm.plugin(on=True, begin_delay_s=0)
    slurm.burst(queued, "-n1", "-t5", "--begin=now+1hour", script="sleep 1")
    print(f"{queued} jobs whose begin time is later, ", end="")
    cycles(slurm, rounds, policy, cpus, 3)
    clean(slurm)


def busy_queue(slurm: Slurm, queued: int, rounds: int, policy: Policy, cpus: float) -> None:
    """Measure a cycle with about `queued` jobs of many sizes, on a full cluster where jobs end and others start."""
    slurm.plugin(on=True, begin_delay_s=0)
    choose = random.Random(1)
    shapes = ["-n1", "-n4", "-n16", "-N4 -n64", "-N16 -n256", "-N64 -n1024", "-n32 --gres=gpu:1"]
    lines = []
    for _ in range(queued + AT_ONCE):
        run_s, shape = choose.choice([30, 60, 120, 240]), choose.choices(shapes, [6, 5, 5, 4, 3, 1, 2])[0]
        options = f"--parsable --chdir=/tmp --output=/dev/null {shape} -t{choose.choice([5, 10, 30, 60])}"
        lines.append(f"runuser -u {choose.choice(['alice', 'bob'])} -- sbatch {options} --wrap 'sleep {run_s}'")
    slurm.run("bash", "-s", user="root", stdin="\n".join(lines), timeout_s=900)
    print("jobs of many sizes, ", end="")
    cycles(slurm, rounds, policy, cpus, 20)
    clean(slurm)


def cycles(slurm: Slurm, rounds: int, policy: Policy, cpus: float, skipped: int) -> None:
    """Print the phase durations of `rounds` cycles after the first `skipped` cycles."""
    with LiveBridge(slurm, "figures", metrics={"enabled": False}, policy=policy) as bridge:
        bridge.wait_for_rounds(skipped, timeout_s=300)
        if cpus:
            docker("update", f"--cpus={cpus}", bridge.container)
        first, before = bridge.rounds(), bridge.cpu_s()
        began_s = time.monotonic()
        bridge.wait_for_rounds(rounds, timeout_s=600)
        took_s, load = time.monotonic() - began_s, Path("/proc/loadavg").read_text().split()[0]
        last, after = bridge.rounds(), bridge.cpu_s()
        measured = bridge.round_figures()[first:last]
    phases = [each["seconds"] for each in measured]
    print(f"{len(slurm.node_states())} nodes, {len(phases)} cycles, milliseconds, median, p99 (max):")
    for name in ("observe", "reconcile", "decide", "verify", "apply"):
        print(f"  {name:20} {spread([p.get(name, 0.0) for p in phases])}")
    print(f"  {'cycle':20} {spread([sum(p.values()) for p in phases])}")
    print(f"  {'without the decision':20} {spread([sum(p.values()) - p.get('decide', 0.0) for p in phases])}")
    spent = {name: 1000 * (after[name] - before[name]) / len(phases) for name in after}
    print("  CPU time of a cycle: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in spent.items()))
    paths = [each["path"] for each in measured]
    starts = sum(each["starts"] for each in measured)
    print(
        f"  queued {measured[0]['queued']} to {measured[-1]['queued']}, {starts} starts; "
        f"{', '.join(f'{path} {paths.count(path)}' for path in sorted(set(paths)))}; "
        f"a cycle every {took_s / len(phases):.2f} s; load average {load}"
    )
    allowed = [each["work"] for each in measured if each["work"] is not None]
    if allowed:
        print(f"  work allowed: median {statistics.median(allowed):.0f}, {min(allowed)} to {max(allowed)}")
        print(f"  round by round: {' '.join(map(str, allowed))}")


def spread(seconds: list[float]) -> str:
    """Format median, 99th percentile and maximum in milliseconds."""
    median, late = np.percentile(np.array(seconds), [50, 99])
    return f"{1000 * median:7.1f} {1000 * late:7.1f} ({1000 * max(seconds):.1f})"


def clean(slurm: Slurm) -> None:
    """Empty the queue."""
    cancel = "squeue --noheader --all --Format=jobid | xargs --no-run-if-empty scancel --quiet"
    slurm.run("bash", "-c", cancel, check=False)
    wait_until(lambda: not slurm.run("squeue", "-h").strip(), 120, "an empty queue", every_s=0.5)


def setting(text: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE."""
    name, value = text.split("=", 1)
    return name, value


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burst", type=int, default=200)
    parser.add_argument("--queued", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy-rounds", type=int, default=100, help="cycles beside the queue of many sizes")
    parser.add_argument("--dispatcher", choices=DISPATCHERS.names(), metavar="NAME", default="lookahead")
    parser.add_argument(
        "--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="of the dispatcher's settings"
    )
    parser.add_argument("--cpus", type=float, default=0.0, help="processors for the bridge; 0: no limit")
    wanted = parser.parse_args()
    policy: Policy = {
        "dispatcher": wanted.dispatcher,
        "dispatcher_settings": dict(wanted.set),
    }
    began_s = time.monotonic()
    with closing(Slurm()) as slurm:
        clean(slurm)
        if wanted.burst:
            burst(slurm, wanted.burst)
            burst(slurm, wanted.burst)
        if wanted.rounds:
            long_queue(slurm, wanted.queued, wanted.rounds, policy, wanted.cpus)
        if wanted.busy_rounds:
            busy_queue(slurm, wanted.queued, wanted.busy_rounds, policy, wanted.cpus)
    print(f"took {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
