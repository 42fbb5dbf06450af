"""Measure the first start intervals that a user sees: `python -m tests.slurm.first_forecasts`.

`make cluster` first. A control-mode bridge runs the workloads of `tests.slurm.compare` one after the other, while a
process asks the API for all jobs twice a second. The first interval shown for each pending job is compared with its
start in the accounting records. `--warm` jobs of another seed come first, so that the bridge knows enough outcomes.
`--out` keeps each job's interval and start, and the bridge's state beside them, to explain the misses.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cpsched.registry import DISPATCHERS
from tests.slurm.bridges import LiveBridge
from tests.slurm.compare import PACE
from tests.slurm.harness import TRANSPORT, InsideProcess, Slurm, docker
from tests.slurm.inside import bridge_files
from tests.slurm.twin import COMPARED, Run, Submitted, run_to_end, workload

WARM_SEED = 1000
SHOWN = "/tmp/bridges/first-intervals.json"


def run_jobs(slurm: Slurm, run: Run, jobs: Sequence[Submitted]) -> dict[str, int]:
    """Run all jobs until they end, and return their starts by id."""
    ids = run_to_end(slurm, run, jobs)
    text = slurm.run("env", "SLURM_TIME_FORMAT=%s", "sacct", "-aXnP", "-o", "JobID,Start", "-j", ",".join(ids))
    return {id: int(start) for id, start in (line.split("|") for line in text.splitlines())}


def summarize(starts: Mapping[str, int], shown: Mapping[str, Any]) -> str:
    """Return how many jobs started inside their first interval, of all and of the calibrated ones."""
    lines = []
    for kind, wanted in (("all", (True, False)), ("calibrated", (True,))):
        rows = [(*shown[id][:2], start) for id, start in starts.items() if id in shown and shown[id][2] in wanted]
        early = sum(start < from_s for from_s, _, start in rows)
        late = sum(start > to_s for _, to_s, start in rows)
        held = len(rows) - early - late
        lines.append(f"{kind}: {held} of {len(rows)} ({held / max(1, len(rows)):.0%}), {early} early, {late} late")
    return f"{len(starts)} jobs; first intervals, {'; '.join(lines)}"


def keep(file: Path, workload: str, part: str, starts: Mapping[str, int], shown: Mapping[str, Any]) -> None:
    """Append one line per started job: its first interval, whether it was calibrated, when it was shown; the start."""
    with file.open("a") as stream:
        for id, start_s in starts.items():
            from_s, to_s, calibrated, shown_s = shown.get(id, (None,) * 4)
            row = {
                "workload": workload, "part": part, "job": id, "start_s": start_s, "from_s": from_s, "to_s": to_s,
                "calibrated": calibrated, "shown_s": shown_s,
            }  # fmt: skip
            stream.write(json.dumps(row) + "\n")


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", choices=list(COMPARED), help="default: both")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--warm", type=int, default=200, help="jobs that run first; their intervals are also printed")
    parser.add_argument("--dispatcher", choices=DISPATCHERS.names(), metavar="NAME", default="lookahead")
    parser.add_argument("--out", type=Path, help="file of rows, JSON lines, to which more are appended")
    wanted = parser.parse_args()
    with closing(Slurm()) as slurm:
        for name in wanted.workload or COMPARED:
            run = COMPARED[name]
            slurm.reset()
            with slurm.configured(f"SchedulerParameters={run.parameters}"):
                slurm.plugin(on=True)
                policy, options = {"dispatcher": wanted.dispatcher}, {"transport": TRANSPORT}
                with LiveBridge(slurm, "first", policy=policy, options=options, **PACE[name]) as bridge:
                    bridge.shell(f"rm -f {SHOWN}")
                    watcher = InsideProcess(bridge.container)
                    watcher_pid = watcher.call(os.getpid)
                    watcher.begin(bridge_files.watch_first_forecasts, SHOWN)
                    for label, count, seed in (("warm-up", wanted.warm, WARM_SEED), ("judged", wanted.jobs, 1)):
                        starts = run_jobs(slurm, run, workload(run, count, seed))
                        shown = json.loads(bridge.shell(f"cat {SHOWN}"))
                        print(f"{name}, {label}: {summarize(starts, shown)}", flush=True)
                        if wanted.out:
                            keep(wanted.out, name, label, starts, shown)
                    if wanted.out:
                        docker("cp", f"{bridge.container}:{bridge.state}", str(wanted.out.with_suffix(f".{name}")))
                    bridge.shell(f"kill {watcher_pid}")
                    watcher.close()


if __name__ == "__main__":
    main()
