"""How near the twin comes to what really happened, on public traces that keep real starts.

`python -m tests.benchmarks.whatif [TRACE]...`: the tables of docs/studies/whatif-fidelity.md. Each trace is replayed
"as was", with Slurm's default parameters, on the system that `cpsched whatif` takes or guesses.
`--jobs 100000` measures time and memory at made-up accounting of that many jobs instead; with `--most-s 600` each
replay ends after so many CPU seconds, and how far it came is told; with `--days 1` they come within a day.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cpsched_sim.cluster.replay import Progress
from cpsched_sim.experiment import Setup
from cpsched_sim.traces.dialect import PLAIN
from cpsched_sim.whatif.answers import read
from cpsched_sim.whatif.blocks import Blocks
from cpsched_sim.whatif.cases import WhatIfCase
from cpsched_sim.whatif.fidelity import fidelity, in_time
from cpsched_sim.whatif.figures import Made, WindowFacts, real
from cpsched_sim.whatif.groups import groupings
from cpsched_sim.whatif.letter import signed, span
from cpsched_sim.whatif.replaying import replay_window
from cpsched_sim.whatif.window import Span, Window
from tests.traces import trace

FILES = {
    "XDMoD": "XDMoD-phillips-sacct-2016.log.gz",
    "Gaia": "UniLu-Gaia-2014-2.swf.gz",
    "RICC": "RICC-2010-2.swf.gz",
    "Theta": "ALCF-Theta-2022nov-2023dec-users.swf.gz",
}
DAYS = {"RICC": 28.0}
"""The last so many days alone, where the whole trace is long."""
KINDS = ("partition", "size", "length")


def rows(name: str) -> Iterator[str]:
    """The lines of the tables of one trace."""
    began = time.process_time()
    window, _ = read(trace(FILES[name]), None, Span(days=DAYS.get(name)), True, None, PLAIN, None)
    found, cpu_s = against_the_record(window)
    near = found["verdict"]
    yield (
        f"| {name} | {found['jobs']:,} | {in_time(found['real_mean_wait_s'])} | {in_time(found['twin_mean_wait_s'])} | "
        f"{signed(found['difference_s'], 's')} ({span(found['difference_interval_s'], 's')}) | "
        f"{in_time(found['by_size_s'])} | {found['within_tolerance']:.0%} | {found['use_off']:.1%} | "
        f"{near['grade']} | {cpu_s:.1f} |"
    )
    for row in found["classes"]:
        if row["kind"] in KINDS and row["jobs"] >= 20:
            yield (
                f"  {name}: {row['kind']} {row['name']}: {row['jobs']:,}, real {in_time(row['real_mean_wait_s'])}, "
                f"twin {in_time(row['twin_mean_wait_s'])}, within 5 min {row['within_tolerance']:.0%}"
            )
    yield f"  {name}: {dict(window.left_out)}; {time.process_time() - began:.1f} CPU s in all"


def against_the_record(window: Window) -> tuple[dict, float]:  # type: ignore[type-arg]
    """The twin's fidelity, and the CPU seconds of its replay."""
    replayed = replay_window(window, Setup(WhatIfCase.parse("slurm").spec).build())
    really, twin = real(window), Made.of(replayed)
    facts = WindowFacts.of(window, Blocks.of(window.from_s, window.to_s), replayed.processors, [really, twin])
    return fidelity(facts, really, twin, groupings(window, replayed.processors[window.judged])), replayed.cpu_s


def made_up(path: Path, count: int, days: float = 30.0) -> None:
    """Accounting of a site of 200 nodes of 32 cores, of that many jobs, by 200 users.

    95 % of the machine is asked for, by day more than there is, by night less.
    """
    draw = np.random.default_rng(1)
    hours = np.arange(int(days * 24))
    busy = 1 + 0.8 * np.sin(2 * np.pi * (hours % 24 - 8) / 24)
    submit = np.sort(draw.choice(hours, count, p=busy / busy.sum()) * 3600 + draw.integers(0, 3600, count))
    mean_s = 0.95 * 200 * 32 * days * 86_400 / count / 6.8
    run = np.maximum(10, draw.exponential(mean_s, count)).astype(int)
    cores = draw.choice([1, 2, 4, 8, 16, 32], count, p=[0.3, 0.15, 0.15, 0.2, 0.15, 0.05])
    users = draw.zipf(1.5, count) % 200
    with path.open("w", encoding="utf-8") as file:
        file.write("JobIDRaw|User|Partition|Submit|Start|End|Timelimit|NNodes|NCPUS|State\n")
        for at in range(count):
            begin = 1_790_000_000 + int(submit[at])
            start = begin + int(draw.exponential(600))
            limit = int(run[at]) * 3 // 60 + 5
            limit_text = f"{limit // 60:02d}:{limit % 60:02d}:00"
            times = f"{begin}|{start}|{start + run[at]}|{limit_text}"
            file.write(f"{at + 1}|u{users[at]}|main|{times}|1|{cores[at]}|COMPLETED\n")


SYSTEM = """
name: made-up
resources: [cores]
node_types: { n: { count: 200, prefix: n, each: { cores: 32 } } }
partitions: { main: [n] }
units: { rule: cores }
"""


class Enough(Exception):
    """A replay took as long as it may: `ended` of its jobs are over, at `at_s` of its CPU seconds."""

    def __init__(self, ended: int, total: int, at_s: float) -> None:
        super().__init__(f"{ended / total:.1%} of its jobs in {at_s:.0f} CPU s, not finished")


def within(most_s: float) -> Progress:
    """A progress that raises `Enough` after so many CPU seconds."""
    began = time.process_time()

    def told(ended: int, total: int) -> None:
        if (at_s := time.process_time() - began) > most_s:
            raise Enough(ended, total, at_s)

    return told


def measured(count: int, text: str, most_s: float, days: float) -> Iterator[str]:
    """Time and memory of reading, and of one replay, at made-up accounting."""
    with tempfile.TemporaryDirectory() as folder:
        jobs, system = Path(folder) / "jobs.txt", Path(folder) / "system.yaml"
        made_up(jobs, count, days)
        system.write_text(SYSTEM)
        began = time.process_time()
        window, _ = read(jobs, str(system), Span(), True, None, PLAIN, None)
        yield f"{count:,} jobs: read in {time.process_time() - began:.1f} CPU s, {_peak_mb():,} MB"
        for each in filter(None, text.split(",")):
            began = time.process_time()
            try:
                case = WhatIfCase.parse(each)
                policy = Setup(case.spec).build(window.jobs)
                replayed = replay_window(window, policy, False, within(most_s), case.pace)
            except Enough as enough:
                yield f"  {each}: {enough}, {_peak_mb():,} MB"
                continue
            took_s = time.process_time() - began
            wait_s = (replayed.start_s - replayed.arrival_s)[window.judged].mean()
            done = f"{took_s:.1f} CPU s, {replayed.rounds:,} rounds, mean wait {wait_s:,.0f} s"
            yield f"  {each}: {done}, {_peak_mb():,} MB"


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", default=[])
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--with", dest="cases", default="slurm,easy,lookahead")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--most-s", type=float, default=float("inf"))
    asked = parser.parse_args()
    told = measured(asked.jobs, asked.cases, asked.most_s, asked.days) if asked.jobs else (
        line for name in asked.traces or FILES for line in rows(name))  # fmt: skip
    for line in told:
        print(line, flush=True)
    sys.exit(0)
