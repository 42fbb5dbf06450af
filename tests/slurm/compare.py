"""Compare the same jobs under Slurm's own backfill and under the bridge, in sequence on the same cluster.

`make cluster`, then `python -m tests.slurm.compare [pyslurm | cli] [--workload NAME] [--jobs N] [--seeds N] [--row
NAME]... [--out FILE]`: submits a seeded mix of jobs as ordinary users at seeded times, waits for all jobs, and prints
mean and longest wait, mean and 95th percentile of the bounded slowdown, and makespan, from the accounting records. With
more than one seed, it also prints the means over the seeds with their standard deviations, and the number of seeds in
which a row was better than Slurm. Rows are Slurm alone, mode advise with `lookahead`, mode control with the named
dispatchers, and `shadow`: Slurm alone, while a passive bridge predicts Slurm's starts with the twin. Below each row
with a bridge are the outcomes of its 80 % start intervals.

Two workloads:

- `shorter`: jobs of 2 to 34 s. Slurm schedules every 5 s, and the bridge every second.
- `longer`: jobs of 1 to 16 minutes with Slurm's usual intervals (`bf_interval=30`, `sched_interval=60`,
  `bf_resolution=60`), but with all jobs, limits, pauses and intervals ten times as fast. The bridge's cycles are as
  frequent as Slurm's backfill passes, and it advises at the default interval of 30 s. The machine's own times to start
  and end a job are not faster, and therefore count ten times as much in every row.

`--out` keeps the records of the runs under Slurm alone, for `tests.slurm.twin --again`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from cpsched.metrics import bounded_slowdown
from cpsched.registry import DISPATCHERS, PREDICTORS
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import TRANSPORT, Slurm
from tests.slurm.twin import COMPARED, Recorded, Run, Submitted, keep, recorded, run_to_end, workload

FASTER = 10
"""Speed-up of the workload `longer` compared with a site."""
USUAL_S = 30 / FASTER
"""Slurm's usual backfill interval and the usual advice interval in seconds, divided by `FASTER`."""
PACE: dict[str, dict[str, Any]] = {
    "shorter": {"advise": {"every_s": 1.0}},
    "longer": {"cycle": {"interval_s": USUAL_S}, "advise": {"every_s": USUAL_S}},
}
"""Intervals of cycles and advice that differ from the defaults."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one run of a workload, in the order of the columns; times in seconds."""

    wait: float
    longest: float
    slowdown: float
    late_slowdown: float
    span: float


SLURM, ADVISE, SHADOW = "slurm", "advise", "shadow"
WITHOUT_HOLDS = {SLURM, ADVISE, SHADOW}
OUTCOMES = ("covered", "early", "late")
COLUMNS = ("mean wait s", "longest s", "mean slowdown", "p95 slowdown", "makespan s")


def measure(slurm: Slurm, run: Run, jobs: Sequence[Submitted]) -> tuple[Figures, list[Recorded]]:
    """Run all jobs until they end, and return the results and records."""
    ids = run_to_end(slurm, run, jobs)
    ran = recorded(slurm, jobs, ids)
    assert len(ran) == len(jobs), f"{len(ran)} of {len(jobs)} jobs are in the accounting database"
    waits = [job.start_s - job.submit_s for job in ran]
    ran_s = [job.end_s - job.start_s for job in ran]
    slowdowns = [float(bounded_slowdown(wait, run_s)) for wait, run_s in zip(waits, ran_s, strict=True)]
    span_s = max(job.end_s for job in ran) - min(job.submit_s for job in ran)
    late = sorted(slowdowns)[int(0.95 * (len(slowdowns) - 1))]
    return Figures(statistics.mean(waits), max(waits), statistics.mean(slowdowns), late, span_s), ran


def line(name: str, cells: list[str]) -> str:
    """Format one line of the table."""
    return f"{name:24} " + " ".join(f"{cell:>15}" for cell in cells)


def summary(found: dict[str, list[Figures]]) -> list[str]:
    """Return means and standard deviations over the seeds, and how often each row beat Slurm, the first row."""
    lines = [line("mean +- deviation", list(COLUMNS))]
    first = next(iter(found.values()))
    for name, runs in found.items():
        columns = list(zip(*(astuple(run) for run in runs), strict=True))
        lines.append(line(name, [f"{statistics.mean(of):.1f} +- {statistics.stdev(of):.1f}" for of in columns]))
        if runs is not first and SLURM in found:
            pairs = [zip(astuple(mine), astuple(theirs), strict=True) for mine, theirs in zip(runs, first, strict=True)]
            better = [sum(wins) for wins in zip(*([a < b for a, b in pair] for pair in pairs), strict=True)]
            lines.append(line("  better than Slurm in", [f"{count} of {len(runs)}" for count in better]))
    return lines


def bridge(slurm: Slurm, transport: str, row: str, workload: str, predictor: str) -> LiveBridge:
    """Return the bridge of a row."""
    mode, dispatcher = {ADVISE: (ADVISE, "lookahead"), SHADOW: (SHADOW, "slurm")}.get(row, ("control", row))
    policy = {"dispatcher": dispatcher, "predictor": predictor}
    return LiveBridge(slurm, "compare", mode=mode, policy=policy, options={"transport": transport}, **PACE[workload])


def foretold(beside: LiveBridge) -> str:
    """Return the outcomes of the start intervals issued by the bridge so far."""
    counts = [int(beside.metric(f'cpsched_start_intervals_total{{outcome="{each}"}}')) for each in OUTCOMES]
    shares = ", ".join(
        f"{each} {count / max(1, sum(counts)):.1%}" for each, count in zip(OUTCOMES, counts, strict=True)
    )
    return f"  {sum(counts)} start intervals have ended: {shares}"


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transport", nargs="?", choices=["pyslurm", "cli"], default=TRANSPORT)
    parser.add_argument("--workload", choices=list(COMPARED), default="shorter")
    parser.add_argument("--jobs", type=int, help="in each workload; default: 100 shorter, 45 longer ones")
    parser.add_argument("--seeds", type=int, default=1, help="how many workloads, of seeds 1, 2, ...")
    parser.add_argument("--first", type=int, default=1, help="the first of these seeds")
    parser.add_argument(
        "--row", action="append", choices=[ADVISE, SHADOW, *DISPATCHERS.names()], metavar="NAME",
        help="slurm, advise, shadow or a dispatcher; default: with lookahead",
    )  # fmt: skip
    parser.add_argument("--predictor", choices=PREDICTORS.names(), metavar="NAME", default="walltime")
    parser.add_argument("--out", type=Path, help="where the records of Slurm alone are kept; more are appended")
    wanted = parser.parse_args()
    count, run = wanted.jobs or {"shorter": 100, "longer": 45}[wanted.workload], COMPARED[wanted.workload]
    found: dict[str, list[Figures]] = {}
    with closing(Slurm()) as slurm:
        for seed in range(wanted.first, wanted.first + wanted.seeds):
            jobs = workload(run, count, seed)
            print(line(f"{count} {wanted.workload}, seed {seed}", list(COLUMNS)), flush=True)
            for row in wanted.row or [SLURM, ADVISE, "lookahead"]:
                slurm.reset()
                with slurm.configured(f"SchedulerParameters={run.parameters}"):
                    slurm.plugin(on=row not in WITHOUT_HOLDS)
                    settings = (slurm, wanted.transport, row, wanted.workload, wanted.predictor)
                    with nullcontext() if row == SLURM else bridge(*settings) as beside:
                        figures, record = measure(slurm, run, jobs)
                        told = [foretold(beside)] if beside is not None else []
                    if row in (SLURM, SHADOW) and wanted.out:
                        keep(wanted.out, wanted.workload, slurm.run("scontrol", "show", "config"), record)
                name = row if row == SLURM else f"{wanted.transport}, {row}"
                found.setdefault(name, []).append(figures)
                print(line(name, [f"{cell:.1f}" for cell in astuple(figures)]), *told, sep="\n", flush=True)
        if wanted.seeds > 1:
            print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
