"""Slurm's own scheduler, the same in the order that `lookahead` advises, and `lookahead` in control, on many windows.

`python -m tests.benchmarks.advise [--half training|test|both] [--traces NAME,...] [--seeds 0,1,2] [--every 60]
[--objectives default]` prints the tables of docs/studies/advise.md, on the windows of `tests.benchmarks.unseen`: each
figure in percent of `easy`, and how much of what control gains over Slurm in mean wait advice keeps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from tests.benchmarks import unseen
from tests.benchmarks.unseen import BASE, Case, FloatArray, Found, drawn_anew, interval, percent, rows_of, with_interval

ALONE = "slurm"
TRACES = ("KTH", "BLUE", "KIT", "Gaia", "Eurora", "Theta", "RICC")
EVERY_S = (10, 60, 300)
MEASURES = ("af", "awf", "bsld", "p2sf", "wait", "longest", "jain")


def settings_of(objectives: Sequence[str], every_s: Sequence[int]) -> Iterator[str]:
    """The rows of a trace beside `easy`, as words of a policy."""
    yield ALONE
    for objective in objectives:
        yield f"lookahead:objective={objective}"
        yield from (f"advised:objective={objective},every_s={each}" for each in every_s)


def control_of(setting: str) -> str:
    """The row of control with the objective of an advised one."""
    return f"lookahead:objective={unseen.words(setting)[2]['objective']}"


def of_the_row(found: Found, case: Case) -> list[float]:
    """What a table says of a case: each of `MEASURES` in percent of `easy`."""
    return percent(found, case, MEASURES)


def gains(found: Found, name: str, advised: str) -> FloatArray:
    """What advice and what control gain over Slurm alone, float64[windows, seeds, 2].

    The gain is in mean wait, in points of that of `easy`.
    """
    advice, control, alone = (
        rows_of(found, name, setting, lambda found, case: percent(found, case, ["wait"]))[..., 0]
        for setting in (advised, control_of(advised), ALONE)
    )
    return np.stack((alone - advice, alone - control), axis=-1)


def kept(rows: FloatArray) -> str:
    """The share of the gain of control that advice keeps, in percent, and its interval."""
    mean, drawn = rows.mean(axis=(0, 1)), drawn_anew(rows)
    low, high = interval(100 * drawn[:, :1] / drawn[:, 1:])
    return f"{100 * mean[0] / mean[1]:.0f} ({low[0]:.0f}-{high[0]:.0f})"


def show(found: Found, settings: Sequence[str]) -> None:
    """Two tables: percent of `easy` by trace and setting, and the share of the gain that advice keeps."""
    names = [*dict.fromkeys(case.trace for case in found), "all"]
    print(f"| | setting | {' | '.join(MEASURES)} |\n|{'---|' * (2 + len(MEASURES))}")
    for name, setting in product(names, settings):
        rows = rows_of(found, name, setting, of_the_row)
        print(f"| {name} ({len(rows)}) | `{setting}` | {' | '.join(with_interval(rows))} |")
    print(f"\n| setting | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}")
    for setting in settings:
        if setting.startswith("advised"):
            print(f"| `{setting}` | {' | '.join(kept(gains(found, name, setting)) for name in names)} |")


def main(arguments: Sequence[str]) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("training", "test", "both"), default="test")
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--every", default=",".join(map(str, EVERY_S)), help="seconds between two advices")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES))
    given = parser.parse_args(arguments)
    settings = [*settings_of(given.objectives.split(","), [int(each) for each in given.every.split(",")])]
    seeds = [int(each) for each in given.seeds.split(",")]
    found: dict[Case, dict[str, Any]] = {}
    for case in unseen.cases(given.traces.split(","), settings, seeds, given.half):
        found[case] = unseen.figures(case)
    assert any(case.setting != BASE for case in found), "no window has a queue"
    show(found, settings)


if __name__ == "__main__":
    main(sys.argv[1:])
