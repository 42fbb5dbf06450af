"""From an event to the decision and to the start, with and without files that wake the bridge.

`make cluster`, then `python -m tests.slurm.wake [--jobs N] [--transport NAME]`: jobs are submitted one by one to an
idle cluster, then as many that each want all nodes. The scripts say when they begin and end, the bridge's journal when
it has decided. Two events are timed: a submission, and the end of the job that was in the way. Three bridges: one that
looks every second, one that looks every ten, and that one with the files that docs/polling.md names. Nothing is
asserted: these are measurements.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import TRANSPORT, Slurm

FOLDER = "/etc/slurm/wake"
"""A folder that slurmctld's host and the bridge share, and in which SlurmUser may write."""
SUBMITTED, ENDED = f"{FOLDER}/submitted", f"{FOLDER}/jobcomp.log"
PLUGIN = "/etc/slurm/cpsched.lua"
TELL = f"cp {PLUGIN} {PLUGIN}.kept; sed -i 's|}}|, wake_file = \"{SUBMITTED}\" }}|' {PLUGIN}"
KEPT = f"mv -f {PLUGIN}.kept {PLUGIN}; rm -rf {FOLDER}"
RESTS: dict[str, dict[str, Any]] = {
    "every second": {"interval_s": 1.0},
    "every ten": {"interval_s": 10.0},
    "every ten, woken": {"interval_s": 10.0, "wake_files": [SUBMITTED, ENDED]},
}
DECIDED = """
phases = ("observe", "reconcile", "decide", "verify")
when = {r.number: r.at_unix_s + sum(r.seconds.get(phase, 0) for phase in phases) for r in records()}
steps = rows("ledger", "select round, job_id, after from transitions order by seq")
print(json.dumps({job: when[number] for number, job, after in steps if after == "starting" and number in when}))
"""
SCRIPT = "date +%s.%N; sleep 1; date +%s.%N"
SUBMIT = f"cd /home/alice; date +%s.%N; sbatch --parsable -o wake-%j -t5 OPTIONS --wrap '{SCRIPT}'"


def submitted(slurm: Slurm, options: str, count: int) -> dict[str, float]:
    """Submit jobs from one shell; by id, the moment before."""
    words = slurm.run("bash", "-c", "\n".join([SUBMIT.replace("OPTIONS", options)] * count), user="alice").split()
    return {id: float(at) for at, id in zip(words[::2], words[1::2], strict=True)}


def ran(slurm: Slurm, jobs: Sequence[str]) -> dict[str, tuple[float, float]]:
    """By id, when a job's script began and ended, once all have."""
    slurm.wait_until(lambda: not slurm.run("squeue", "-h").strip(), 300, "all jobs have ended", every_s=1.0)
    text = slurm.run("sh", "-c", f"cat {' '.join(f'/home/alice/wake-{id}' for id in jobs)}; rm -f /home/alice/wake-*")
    moments = [float(word) for word in text.split()]
    return {id: (moments[2 * at], moments[2 * at + 1]) for at, id in enumerate(jobs)}


def measured(slurm: Slurm, bridge: LiveBridge, count: int) -> dict[str, list[float]]:
    """Seconds from each event to its decision and to its start, and between the two."""
    choose, alone = random.Random(1), dict[str, float]()
    for _ in range(count):
        time.sleep(choose.uniform(2.0, 4.0))
        alone |= submitted(slurm, "-n1", 1)
    began = ran(slurm, list(alone))
    chain = list(submitted(slurm, "-N4 --exclusive", count + 1))
    times = ran(slurm, chain)
    decided = {str(job): at for job, at in bridge.read(DECIDED).items()}
    freed = {job: times[before][1] for before, job in pairwise(chain)}
    starts = {job: at for job, (at, _) in (began | times).items()}
    told = [job for job in (*alone, *freed) if job in decided]
    return {
        "submission to decision": [decided[job] - alone[job] for job in told if job in alone],
        "submission to start": [starts[job] - alone[job] for job in alone],
        "end to decision": [decided[job] - freed[job] for job in told if job in freed],
        "end to start": [starts[job] - freed[job] for job in freed],
        "decision to start": [starts[job] - decided[job] for job in told],
    }


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10, help="events of each kind")
    parser.add_argument("--transport", choices=["pyslurm", "cli"], default=TRANSPORT)
    wanted = parser.parse_args()
    slurm = Slurm()
    print(f"load average {Path('/proc/loadavg').read_text().split()[0]}, {wanted.transport}; median (longest), seconds")
    try:
        slurm.reset()
        slurm.run("sh", "-c", f"mkdir -p {FOLDER} && chmod 777 {FOLDER}; {TELL}", service="n1")
        with slurm.configured("JobCompType=jobcomp/filetxt", f"JobCompLoc={ENDED}"):
            for name, cycle in RESTS.items():
                slurm.plugin(on=True)
                options = {"transport": wanted.transport}
                bridge = LiveBridge(slurm, "wake", cycle=cycle, options=options, start={"timeout_s": 30})
                with bridge:
                    found = measured(slurm, bridge, wanted.jobs)
                cells = (f"{what} {statistics.median(each):.1f} ({max(each):.1f})" for what, each in found.items())
                print(f"{name}: {', '.join(cells)}", flush=True)
    finally:
        slurm.run("sh", "-c", KEPT, service="n1")
        slurm.close()


if __name__ == "__main__":
    main()
