"""Figures on a wide cluster: `make cluster-wide`, then `python -m tests.slurm.figures`.

Prints how long a burst of released jobs takes until all of it runs, and what a cycle costs with a long queue. Nothing
is asserted: these are measurements.
"""

from __future__ import annotations

import argparse
import statistics
import time

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import Slurm, wait_until

BURST = """
import json, sys, time
import numpy as np
from cpsched_bridge.adapters.slurm.adapter import SlurmBackend
from cpsched_bridge.adapters.slurm.transport.pyslurm.transport import PyslurmTransport
from cpsched_bridge.ports import StartOrder
count = int(sys.argv[1])
backend = SlurmBackend(PyslurmTransport())
seen = backend.observe()
free, orders = seen.free.copy(), []
for p in seen.pending[:count]:
    need = np.array(p.job.request.per_unit)
    node = int(np.flatnonzero((free >= need).all(axis=1))[-1 - len(orders) % 50])
    free[node] -= need
    orders.append(StartOrder(p.job, ((seen.cluster.node_names[node], 1),)))
wanted = {o.job.id for o in orders}
decided = time.monotonic()
outcomes = backend.start(orders)
commanded = time.monotonic()
while True:
    seen = backend.observe()
    running = {r.job.id for r in seen.running}
    if wanted <= running or time.monotonic() - decided > 60:
        break
    time.sleep(0.05)
print(json.dumps([len(wanted & running), commanded - decided, time.monotonic() - decided,
    sum(o.result != "done" for o in outcomes)]))
"""


def burst(slurm: Slurm, count: int) -> None:
    """`count` held jobs released in one batch, timed until all are seen running."""
    slurm.plugin(on=True)
    slurm.burst(count, "-n1", "-t5", script="sleep 120")
    running, commands_s, all_s, failed = slurm.python(BURST, str(count))
    print(f"{running} of {count} jobs RUNNING {all_s:.2f} s after the decision ({commands_s:.2f} s for the commands)")
    if failed:
        print(f"  {failed} commands were not taken")
    clean(slurm)


def long_queue(slurm: Slurm, queued: int, rounds: int) -> None:
    """Phases of the bridge's cycle beside `queued` held jobs that nothing can start."""
    slurm.plugin(on=True)
    slurm.burst(queued, "-n1", "-t5", "--begin=now+1hour", script="sleep 1")
    with LiveBridge(slurm, "figures", metrics={"enabled": False}) as bridge:
        bridge.wait_for_rounds(3, timeout_s=300)
        first, before = bridge.rounds(), bridge.cpu_s()
        bridge.wait_for_rounds(rounds, timeout_s=300)
        last, after = bridge.rounds(), bridge.cpu_s()
        phases = bridge.seconds()[first:last]
    spent = {name: 1000 * (after[name] - before[name]) / (last - first) for name in after}
    print(f"{queued} queued jobs, {len(slurm.node_states())} nodes, {len(phases)} cycles, milliseconds, median (max):")
    for name in ("observe", "reconcile", "decide", "verify", "apply", "journal"):
        values = [1000 * p.get(name, 0.0) for p in phases]
        print(f"  {name:10} {statistics.median(values):7.1f} ({max(values):.1f})")
    without = [1000 * (sum(p.values()) - p.get("decide", 0.0)) for p in phases]
    print(f"  cycle without the decision {statistics.median(without):7.1f} ({max(without):.1f})")
    print("  CPU a cycle, decision included: " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in spent.items()))
    clean(slurm)


def clean(slurm: Slurm) -> None:
    """An empty queue again."""
    cancel = "squeue --noheader --all --Format=jobid | xargs --no-run-if-empty scancel --quiet"
    slurm.run("bash", "-c", cancel, check=False)
    wait_until(lambda: not slurm.run("squeue", "-h").strip(), 120, "an empty queue", every_s=0.5)


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burst", type=int, default=200)
    parser.add_argument("--queued", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    wanted = parser.parse_args()
    slurm = Slurm()
    began_s = time.monotonic()
    try:
        clean(slurm)
        burst(slurm, wanted.burst)
        burst(slurm, wanted.burst)
        long_queue(slurm, wanted.queued, wanted.rounds)
    finally:
        slurm.close()
    print(f"took {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
