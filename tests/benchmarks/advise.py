"""Slurm's own scheduler, the same in the order that `lookahead` advises, and `lookahead` in control, on traces.

`python -m tests.benchmarks.advise [PART]...`, a part being a name in `WINDOWS`: the tables of docs/studies/advise.md.
`--every 60 --objectives default,slowdown` leave rows out. Estimates are the walltimes, and figures are those of the
jobs of the window, which is replayed until its last job has ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched_sim.experiment import simulate
from cpsched_sim.workloads.load import Workload
from tests.benchmarks import run_parts
from tests.benchmarks.lookahead import workload, worth

WINDOWS = {"KTH": 10_000, "BLUE": 6_000, "KIT": 12_000, "Gaia": 12_000, "Eurora": 3_000}
"""How many jobs of each trace are replayed: the first ones."""
EVERY_S = (10, 60, 300)
COLUMNS = ("wait s", "AF s", "AWF s", "BSLD", "P2SF s", "slowdown", "longest h", "CPU s")


def settings_of(objectives: Sequence[str], every_s: Sequence[int]) -> Iterator[tuple[str, dict[str, str]]]:
    """The dispatchers of the table, each with its settings."""
    yield from (("slurm", {}), ("easy", {}))
    for objective in objectives:
        yield "lookahead", {"objective": objective}
        yield from (("advised", {"objective": objective, "every_s": str(each)}) for each in every_s)


def windowed(name: str) -> Workload:
    """The first jobs of a trace."""
    whole = workload(name)
    return replace(whole, jobs=whole.jobs[: WINDOWS[name]])


def shown(name: str, objectives: Sequence[str] = tuple(OBJECTIVES), every_s: Sequence[int] = EVERY_S) -> None:
    """The rows of one trace, as lines of a Markdown table."""
    work = windowed(name)
    print(f"\n{name}, {len(work.jobs):,} jobs\n\n| dispatcher | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for dispatcher, settings in settings_of(objectives, every_s):
        outcome = simulate(work, dispatcher, settings=settings)
        assert not outcome.schedule.violations
        found = worth(outcome)
        means = [f"{found['mean_wait_s']:,.0f}", f"{found['af']:,.0f}", f"{found['awf']:,.0f}", f"{found['bsld']:.2f}"]
        means += [f"{found['p2sf']:,.0f}", f"{found['mean_slowdown']:.2f}", f"{found['max_wait_s'] / 3600:.1f}"]
        words = " ".join([f"`{dispatcher}`", *(f"{name}={value}" for name, value in settings.items())])
        print(f"| {words} | {' | '.join(means)} | {outcome.schedule.cpu_s:.1f} |", flush=True)


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(WINDOWS)}; default: all")
    parser.add_argument("--every", default=",".join(map(str, EVERY_S)), help="seconds between two advices")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES))
    wanted = parser.parse_args()
    every_s, objectives = [int(each) for each in wanted.every.split(",")], wanted.objectives.split(",")
    parts = {name: partial(shown, name, objectives, every_s) for name in WINDOWS}
    run_parts("tests.benchmarks.advise", parts, wanted.parts or list(WINDOWS))


if __name__ == "__main__":
    main()
