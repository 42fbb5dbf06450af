"""Does a real bridge bring what `cpsched whatif` says that it would? The same submissions, predicted and for real.

`deploy/cluster wide 24`, then `python -m tests.slurm.whatif_live [--seeds 1,2,3,4,5] [--row ROW]... [--out DIR]`. For
each seed about 600 jobs of two users come within some five minutes: single cores to eight nodes, GPUs, whole nodes,
arrays, limits of a user and of two QOS. They run under Slurm alone (row `slurm`), advised (`advise`), and under the
bridge (`control`). Each run's accounting is collected as a site would (`cpsched whatif collect`), into DIR/seed-N/ROW.
A run that is there already is not made again.

The accounting of Slurm alone goes to `cpsched whatif`, which says what both modes would bring. That stands beside what
they brought, figure by figure. `--judge` does that alone, without a cluster.

Rows can run side by side, each on a cluster of its own (CPSCHED_PROJECT, CPSCHED_NET): one process for each row.

Two things are told to `whatif` that a site's accounting does not show, and that weigh more here, where jobs run for a
minute, than on a site where they run for hours:

- Jobs hold their nodes for the lag of the machine (`lag_s`), as measured in the run of Slurm alone.
- Advice comes every 3 s.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cpsched.metrics import bounded_slowdown
from cpsched_sim.errors import Unusable
from cpsched_sim.whatif.collecting import ENVIRONMENT, JOBS, MANIFEST, collect
from tests.slurm.bridges import LiveBridge
from tests.slurm.harness import TRANSPORT, CommandFailed, Slurm, expand, wait_until

NODES, CORES = 24, 16
"""The cluster: a quarter of its nodes has two GPUs each."""
PARAMETERS = (
    "bf_interval=3,sched_interval=6,bf_resolution=6,batch_sched_delay=0,bf_max_job_test=2000,disable_job_shrink"
)
"""Slurm's usual intervals (30, 60 and 60 s) ten times as fast, as jobs are."""
ADVICE_S = 3
"""The usual interval of advice, ten times as fast."""
USERS = ("alice", "bob")
LIMITS = {"alice": {"MaxJobs": "40"}}
LOAD = 1.15
"""Core seconds that are submitted in a second, as a share of the cluster's."""
JOBS_OF_A_SEED = 600
MOST_WAIT_S = 1200
FREE_QOS = "normal"
"""The QOS without limits."""
LAG_MOST_S = 10
"""What is longer from an end to a start is no lag of the machine."""

SLURM, ADVISE, CONTROL, SHADOW = "slurm", "advise", "control", "shadow"
CASES = {ADVISE: f"advise every_s={ADVICE_S}", CONTROL: "control"}
"""The rows of a bridge, and what `whatif` is asked for."""
BRIDGES: Mapping[str, Mapping[str, Any]] = {
    SHADOW: {"mode": "shadow", "cycle": {"interval_s": float(ADVICE_S)},
            "policy": {"dispatcher": "slurm", "dispatcher_settings": {"scheduler_parameters": PARAMETERS}}},
    ADVISE: {"mode": "advise", "advise": {"every_s": float(ADVICE_S)}, "policy": {"dispatcher": "lookahead"}},
    CONTROL: {"mode": "control", "cycle": {"slow_down": 1.0}, "policy": {"dispatcher": "lookahead"}},
}  # fmt: skip
"""The bridge of each row; `slurm` has none. In `shadow` it looks on, and says when jobs will start."""

SHAPES = (
    ("-N1 -n1", 1, 6), ("-N1 -n2", 2, 6), ("-N1 -n4", 4, 6), ("-N1 -n8", 8, 4), ("-N1 -n16", 16, 3),
    ("-N1 -n1 --mem=6G", 1, 2), ("-N1 -n4 --gres=gpu:1", 4, 3), ("-N1 -n8 --gres=gpu:2", 8, 1),
    ("-N2 --ntasks-per-node=8", 16, 2), ("-N2 --ntasks-per-node=16", 32, 1), ("-N4 --ntasks-per-node=8", 32, 1),
    ("-N8 --ntasks-per-node=16", 128, 0.3), ("-N3 --exclusive", 48, 0.5),
)  # fmt: skip
"""Options of sbatch, the cores that they take, and how often they are drawn."""
RUNS_S = ((8, 3), (15, 3), (30, 3), (50, 3), (80, 2), (130, 1))
"""How long jobs run, and how often; the last two are not for jobs of more than a node."""
TASKS, ARRAYS, LIMITED, SMALL = 5, 0.1, 0.08, 4
"""The tasks of an array; among jobs of at most `SMALL` cores, the share of arrays, and of jobs under a limited QOS."""
ASKED = (1.1, 1.5, 2.0, 4.0, 8.0)
"""How many times its run time a job asks for; Slurm takes whole minutes."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One sbatch: when it comes, after the first, and what it asks for."""

    at_s: float
    options: str
    run_s: int
    limit_min: int
    user: str
    qos: str
    tasks: int


def workload(seed: int, jobs: int = JOBS_OF_A_SEED) -> list[Submission]:
    """Submissions of so many jobs, tasks of arrays counted; the same for the same seed."""
    choose, found, count, at_s, work = random.Random(seed), list[Submission](), 0, 0.0, 0.0
    while count < jobs:
        [(options, cores, _)] = choose.choices(SHAPES, [weight for *_, weight in SHAPES])
        lengths = RUNS_S[:-2] if cores > CORES else RUNS_S
        [(run_s, _)] = choose.choices(lengths, [weight for _, weight in lengths])
        user, drawn = choose.choice(USERS), choose.random()
        is_small = cores <= SMALL and "gres" not in options
        tasks = min(TASKS, jobs - count) if is_small and drawn < ARRAYS else 1
        limited = is_small and ARRAYS <= drawn < ARRAYS + LIMITED
        qos = choose.choice(("pair", "cores")) if limited else "normal"
        limit_min = -int(-run_s * choose.choice(ASKED) // 60) if not limited else -int(-run_s * 1.5 // 60)
        found.append(Submission(at_s, options, run_s, max(1, limit_min), user, qos, tasks))
        at_s += choose.expovariate(1.0)
        work += cores * run_s * tasks
        count += tasks
    stretch = work / (NODES * CORES * LOAD) / found[-1].at_s
    return [replace(each, at_s=each.at_s * stretch) for each in found]


UNTIL = """
T0=${EPOCHREALTIME/./}
at() {
    local left=$(( T0 + $1 - ${EPOCHREALTIME/./} ))
    if (( left > 0 )); then sleep $((left / 1000000)).$(printf %06d $((left % 1000000))); fi
}
"""


def script(jobs: Sequence[Submission]) -> str:
    """A shell script that submits each at its moment, whatever the ones before took."""
    lines = [
        f"at {round(1e6 * job.at_s)}; sbatch --chdir=/tmp --parsable -o /dev/null "
        f"{f'--array=1-{job.tasks} ' if job.tasks > 1 else ''}{job.options} -t{job.limit_min} --uid={job.user} "
        f"--qos={job.qos} --wrap 'sleep {job.run_s}'"
        for job in jobs
    ]
    return UNTIL + "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------------------------- one run


def run(slurm: Slurm, bridge: LiveBridge | None, row: str, seed: int, out: Path) -> None:
    """Run a workload to its end, and collect its accounting into `out`."""
    jobs = workload(seed)
    slurm.reset()
    for user, limits in LIMITS.items():
        slurm.limit(user, **limits)
    with slurm.configured(f"SchedulerParameters={PARAMETERS}"):
        slurm.plugin(on=row == CONTROL)
        with bridge or nullcontext():
            began, before = datetime.now(UTC), bridge.rounds() if bridge is not None else 0
            ids = slurm.run("bash", "-s", stdin=script(jobs), timeout_s=MOST_WAIT_S).split()
            submitted_s = time.monotonic()
            wait_until(lambda: not slurm.run("squeue", "-h").strip(), MOST_WAIT_S, "all jobs have ended", every_s=2.0)
            wait_until(
                lambda: "Unknown" not in slurm.run("sacct", "-aXnPo", "End", "-j", ",".join(ids)), 60, "all are told"
            )
            promised = bridge.read(PROMISED) if bridge is not None else []
            decided = bridge.read(DECIDED.format(before=before)) if bridge is not None else {}
        kept = out.with_name(f"{out.name}.part")
        days = (datetime.now(UTC) - began + timedelta(seconds=3)).total_seconds() / 86_400
        collect(days, kept, ask=asking(slurm))
    (kept / "promised.json").write_text(json.dumps(promised) + "\n")
    load = Path("/proc/loadavg").read_text().split()[0]
    note = {
        "row": row,
        "seed": seed,
        "drained_s": round(time.monotonic() - submitted_s),
        "load": load,
        "decided": decided,
    }
    (kept / "run.json").write_text(json.dumps(note) + "\n")
    kept.rename(out)


PROMISED = """
import re, urllib.request
text = urllib.request.urlopen("http://127.0.0.1:9764/metrics", timeout=30).read().decode()
print(json.dumps(dict(re.findall(r'^cpsched_start_intervals_total[{]outcome="(\\w+)"[}] (\\S+)', text, re.M))))
"""
"""Start-time intervals by what became of them."""
DECIDED = """
from collections import Counter
rounds = [record for record in records() if record.queue and record.number > {before}]
print(json.dumps(Counter(record.policy.dispatcher for record in rounds)))
"""
"""Who decided the rounds with a queue, and how many: the policy that is meant, or its fallback."""


def asking(slurm: Slurm) -> Any:
    """What asks the Slurm of the cluster, for `collect`."""
    environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]

    def ask(command: str) -> str:
        try:
            return slurm.run("env", *environment, *shlex.split(command))
        except CommandFailed as error:
            raise Unusable(str(error)) from error

    return ask


# ---------------------------------------------------------------------------------------------- what was


@dataclass(frozen=True, slots=True)
class Ran:
    """A job, or a task of an array, by the accounting; seconds since 1970."""

    id: str
    submit_s: int
    start_s: int
    end_s: int
    nodes: str
    qos: str


def rows_of(text: str) -> Iterator[dict[str, str]]:
    """The rows of `sacct -P`; the name of a job comes last."""
    header, *lines = text.splitlines()
    names = header.split("|")
    for line in lines:
        yield dict(zip(names, line.split("|", len(names) - 1), strict=True))


def ran(folder: Path) -> list[Ran]:
    """The jobs of a run that started, in order of submission."""
    found = []
    for row in rows_of((folder / JOBS).read_text()):
        try:
            submit_s, start_s, end_s = (_second(row[name]) for name in ("Submit", "Start", "End"))
        except ValueError:
            continue  # it never began
        found.append(Ran(row["JobID"], submit_s, start_s, end_s, row["NodeList"], row["QOS"]))
    return sorted(found, key=lambda job: (job.submit_s, job.id))


def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def lags_s(jobs: Sequence[Ran]) -> list[int]:
    """Seconds from an end to the start on the same nodes of each job that was then the first of those waiting.

    Such a start waits for nothing but the machine: the main loop runs at each end. Jobs that a QOS keeps waiting do not
    count, neither as the first nor as those before it.
    """
    found = []
    free = [job for job in jobs if job.qos == FREE_QOS]
    for at, job in enumerate(free):
        first = not any(other.start_s > job.start_s for other in free[:at])
        mine = set(expand(job.nodes))
        ends = [other.end_s for other in jobs if other.end_s <= job.start_s and mine & set(expand(other.nodes))]
        lag = job.start_s - max(ends, default=0)
        if first and job.start_s - job.submit_s > LAG_MOST_S and lag <= LAG_MOST_S:
            found.append(lag)
    return found


def lag_s(jobs: Sequence[Ran]) -> float:
    """The lag of the machine: the mean of `lags_s`, 0 where nobody waited so. Seconds are whole, lags are not."""
    found = lags_s(jobs)
    return statistics.mean(found) if found else 0.0


def held(folder: Path, lag: float, out: Path) -> None:
    """A copy of what was collected in which jobs end so many seconds later, on average: each by a whole number."""
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    text = (folder / JOBS).read_text()
    header, *_ = text.splitlines()
    names, lines, choose = header.split("|"), [header], random.Random(1)
    for row in rows_of(text):
        seconds = int(lag + choose.random())
        try:
            later = datetime.fromisoformat(row["End"]) + timedelta(seconds=seconds)
            row = {**row, "End": later.isoformat()}
        except ValueError:
            pass
        lines.append("|".join(row[name] for name in names))
    (out / JOBS).write_text("\n".join(lines) + "\n")


FIGURES = ("mean wait", "median wait", "wait of the unluckiest twentieth", "mean bounded slowdown", "longest wait")


def figures(jobs: Sequence[Ran], lag: float = 0.0) -> dict[str, float]:
    """What a run came to, by the names of `whatif`; seconds."""
    waits = sorted(job.start_s - job.submit_s for job in jobs)
    slowdowns = [float(bounded_slowdown(job.start_s - job.submit_s, job.end_s + lag - job.start_s)) for job in jobs]
    cuts = statistics.quantiles(waits, n=20, method="inclusive")
    values = (statistics.mean(waits), statistics.median(waits), cuts[-1], statistics.mean(slowdowns), max(waits))
    return dict(zip(FIGURES, map(float, values), strict=True))


# ---------------------------------------------------------------------------------------------- said and come true


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure of one row of one seed: what was said of it, and what came of it; differences to Slurm alone."""

    seed: int
    row: str
    figure: str
    slurm: float
    said: float
    low: float | None
    high: float | None
    verdict: str
    real: float

    @property
    def holds(self) -> bool:
        """Whether the real difference lies in the interval; without one it does not."""
        return self.low is not None and self.high is not None and self.low <= self.real <= self.high


def said(folder: Path, out: Path, seeds: int, first_s: int) -> dict[str, Any]:
    """What `cpsched whatif` says of a folder; its findings."""
    if not (out / "findings.json").exists():
        begin = datetime.fromtimestamp(first_s, UTC).replace(tzinfo=None).isoformat()
        options = {"--from": begin, "--out": str(out), "--seeds": str(seeds)}
        words = ["whatif", str(folder), "--resume", "--anyway", *(word for pair in options.items() for word in pair)]
        words += [word for case in CASES.values() for word in ("--with", case)]
        command = [sys.executable, "-c", "from cpsched_bridge.program.cli import main; main()", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (out / "findings.json").exists():
            raise SystemExit(f"whatif ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads((out / "findings.json").read_text())
    return found


def judge(seed: int, findings: Mapping[str, Any], real: Mapping[str, Mapping[str, float]]) -> list[Judged]:
    """Each figure of each row of a bridge, of those that are in `real`."""
    found = []
    for case, row in zip(findings["cases"], CASES, strict=True):
        if row not in real:
            continue
        rows = {each["name"]: each for each in case["figures"]}
        for figure in FIGURES:
            told = rows[figure]
            low, high = told["interval"] or (None, None)
            base = real[SLURM][figure]
            difference = real[row][figure] - base
            found.append(Judged(seed, row, figure, base, told["difference"], low, high, told["verdict"], difference))
    return found


def told(judged: Sequence[Judged], figure: str) -> Iterator[str]:
    """The table of one figure, in Markdown, and how often the interval held."""
    yield "| seed | row | Slurm alone | said | interval | real | in it | verdict of `whatif` |"
    yield "|---|---|---|---|---|---|---|---|"
    mine = [each for each in judged if each.figure == figure]
    for each in mine:
        span = "none" if each.low is None or each.high is None else f"{each.low:+.1f} to {each.high:+.1f}"
        cells = (f"{each.seed}", each.row, f"{each.slurm:.1f}", f"{each.said:+.1f}", span, f"{each.real:+.1f}")
        yield f"| {' | '.join(cells)} | {'yes' if each.holds else 'no'} | {each.verdict} |"
    for row in CASES:
        of_row = [each for each in mine if each.row == row]
        if of_row:
            mean = (statistics.mean(each.said for each in of_row), statistics.mean(each.real for each in of_row))
            held_in = f"in the interval {sum(each.holds for each in of_row)} of {len(of_row)}"
            yield f"\n{row}, {figure}: said {mean[0]:+.1f}, real {mean[1]:+.1f}; {held_in}"


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3,4,5", help="of the workloads")
    parser.add_argument("--row", action="append", choices=[SLURM, *BRIDGES], help="default: slurm, advise, control")
    parser.add_argument("--out", type=Path, default=Path("build/whatif-live"))
    parser.add_argument("--transport", choices=["pyslurm", "cli"], default=TRANSPORT)
    parser.add_argument("--search-seeds", type=int, default=3, help="of dispatchers that search, in each prediction")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--judge", action="store_true", help="judge the runs that are there, and run nothing")
    steps.add_argument("--no-judge", action="store_true", help="run, and judge nothing")
    wanted = parser.parse_args()
    seeds = [int(word) for word in wanted.seeds.split(",")]
    if not wanted.judge:
        run_all(seeds, wanted.row or [SLURM, *CASES], wanted.out, wanted.transport)
    if not wanted.no_judge:
        tell_all(seeds, wanted.out, wanted.search_seeds)


def run_all(seeds: Sequence[int], rows: Sequence[str], out: Path, transport: str) -> None:
    """Make the runs that are not there yet. One bridge for each row: it knows what it learned in the seeds before."""
    slurm = Slurm()
    try:
        bridges = {
            row: LiveBridge(slurm, f"whatif-{row}", **BRIDGES[row], options={"transport": transport})
            for row in rows
            if row in BRIDGES
        }
        for seed in seeds:
            for row in rows:
                folder = out / f"seed-{seed}" / row
                if (folder / MANIFEST).exists():
                    continue
                folder.parent.mkdir(parents=True, exist_ok=True)
                run(slurm, bridges.get(row), row, seed, folder)
                who = json.loads((folder / "run.json").read_text())["decided"]
                print(f"{datetime.now(UTC):%H:%M:%S} {seed} {row} {figures(ran(folder))}, decided {who}", flush=True)
    finally:
        slurm.close()


def tell_all(seeds: Sequence[int], out: Path, search_seeds: int) -> None:
    """Print what was said and what came true, of each seed that Slurm alone has run."""
    judged = list[Judged]()
    for seed in seeds:
        every = {row: out / f"seed-{seed}" / row for row in (SLURM, *CASES)}
        folders = {row: folder for row, folder in every.items() if (folder / MANIFEST).exists()}
        if SLURM not in folders:
            print(f"seed {seed}: Slurm alone has not run")
            continue
        jobs = {row: ran(folder) for row, folder in folders.items()}
        lag = lag_s(jobs[SLURM])
        copy = out / f"seed-{seed}" / "held"
        held(folders[SLURM], lag, copy)
        findings = said(copy, out / f"seed-{seed}" / "whatif", search_seeds, jobs[SLURM][0].submit_s)
        near = findings["fidelity"]
        lags = ", ".join(f"{row} {lag_s(jobs[row]):.1f} s" for row in CASES if row in jobs)
        print(
            f"seed {seed}: {len(jobs[SLURM])} jobs, mean wait {near['real_mean_wait_s']:.1f} s, the twin's "
            f"{near['twin_mean_wait_s']:.1f} s ({near['verdict']['grade']}); lag {lag:.1f} s, {lags}"
        )
        judged += judge(seed, findings, {row: figures(each, lag) for row, each in jobs.items()})
    for figure in FIGURES if judged else ():
        print(f"\n{figure}\n")
        print("\n".join(told(judged, figure)))


if __name__ == "__main__":
    main()
