"""Compare start forecasts with `squeue --start` on the test cluster, for the same jobs at the same times.

`make cluster`, then `python -m tests.slurm.start_estimates [--jobs N] [--runs NAME]... --out FOLDER`: Slurm alone runs
each workload of `tests.slurm.twin` while `cpsched record-slurm-estimates` records squeue's estimates. Then `cpsched
accuracy start-times` forecasts the starts of the second half of the jobs with the twin, from the accounting records,
and compares both with the recorded starts. FOLDER receives the inputs of each comparison.

Jobs and Slurm's intervals are about ten times shorter than on a site, so estimates are recorded every 6 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.slurm.harness import Slurm, docker
from tests.slurm.twin import RUNS, run_to_end, workload

RECORDED_RUNS = ("single", "wide", "arrays", "short", "usual")
"""Workloads whose jobs are completely described by accounting records."""
RECORD_EVERY_S = 6
ESTIMATES = "/tmp/bridges/estimates.csv"
COLUMNS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Reservation,Submit,Eligible,Start,End,Elapsed,State,NNodes,NCPUS,"
    "ReqTRES,AllocTRES,Timelimit,NodeList,JobName"
)
COMMAND = "from cpsched_bridge.program.cli import main; main()"


def record_run(slurm: Slurm, name: str, count: int, seed: int, folder: Path) -> None:
    """Run a workload under Slurm alone, and write its records, estimates, nodes and configuration to `folder`."""
    slurm.reset()
    run, container = RUNS[name], slurm.python_container()
    parameters = f"SchedulerParameters={run.parameters},bf_max_job_test=2000,disable_job_shrink"
    with slurm.configured(parameters, "PriorityWeightAge=0"):
        recorder = f"rm -f {ESTIMATES}; exec python -c '{COMMAND}' record-slurm-estimates --out {ESTIMATES}"
        docker(
            "exec", "--detach", "--user", "cpsched", container, "sh", "-c", f"{recorder} --every {RECORD_EVERY_S}"
        )  # fmt: skip
        try:
            ids = run_to_end(slurm, run, workload(run, count, seed))
        finally:
            docker("exec", container, "pkill", "-INT", "-f", "record-slurm-estimates", check=False)
        sacct = ("sacct", "--allusers", "--allocations", "--duplicates", "--parsable2", f"--format={COLUMNS}")
        contents = {
            "jobs.txt": slurm.run("env", "TZ=UTC", *sacct, "--jobs", ",".join(ids)),
            "estimates.csv": docker("exec", container, "cat", ESTIMATES),
            "nodes.txt": slurm.scontrol("show", "node"),
            "config.txt": slurm.scontrol("show", "config"),
        }
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in contents.items():
        (folder / file).write_text(text)


def compare_forecasts(folder: Path) -> dict[str, Any]:
    """Return the comparison of forecasts and estimates in a folder that `record_run` wrote."""
    program, system = [sys.executable, "-m", "cpsched_sim.cli"], folder / "system.yaml"
    if not system.exists():
        from_slurm = ["system", "from-slurm", str(folder / "nodes.txt"), "--out", str(system)]
        subprocess.run([*program, *from_slurm], check=True)
    options = {
        "--system": system,
        "--set": f"config_file={folder / 'config.txt'}",
        "--slurm-estimates": folder / "estimates.csv",
        "--zone": "UTC",
    }
    accuracy = ["accuracy", "start-times", folder / "jobs.txt", "--json", *itertools.chain(*options.items())]
    report = subprocess.run([*program, *map(str, accuracy)], check=True, stdout=subprocess.PIPE).stdout
    compared: dict[str, Any] = json.loads(report)["slurm_estimates"]
    return compared


LINE = "{:10}" + " {:>14}" * 7
HEADINGS = (
    "workload", "forecasts", "squeue N/A", "squeue loss s", "our loss s", "our loss %", "squeue error s",
    "our error s",
)  # fmt: skip


def format_comparison(name: str, found: dict[str, Any]) -> str:
    """Return a table line with mean pinball losses, their ratio in percent, and mean absolute errors."""
    slurm, ours = found["slurm"], found["forecast"]
    figures = (
        slurm["pinball_s"], ours["pinball_s"], 100 * ours["pinball_s"] / slurm["pinball_s"], slurm["absolute_error_s"],
        ours["absolute_error_s"],
    )  # fmt: skip
    return LINE.format(name, found["cases"], found["without_estimate"], *(f"{figure:.1f}" for figure in figures))


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300, help="submissions in each run")
    parser.add_argument("--runs", action="append", choices=RECORDED_RUNS, help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="where inputs are stored; stored runs are not repeated")
    wanted = parser.parse_args()
    print(LINE.format(*HEADINGS), flush=True)
    with closing(Slurm()) as slurm:
        for name in wanted.runs or RECORDED_RUNS:
            folder = wanted.out / name
            if not (folder / "jobs.txt").exists():
                record_run(slurm, name, wanted.jobs, wanted.seed, folder)
            print(format_comparison(name, compare_forecasts(folder)), flush=True)


if __name__ == "__main__":
    main()
