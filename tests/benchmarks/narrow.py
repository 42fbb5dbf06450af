"""Ways to bring narrow, long jobs forward under `lookahead`: by what `easy` would have done with them, or by a floor.

`tests.benchmarks.narrow:Fair` stands wherever a dispatcher may be named, as in
`tests.benchmarks.narrow:Fair:late=0.1,narrow=0.01`. Without settings it decides as `lookahead` does.

`python -m tests.benchmarks.narrow [--half training|test|both] [--traces NAME,...] [--seeds 0] SETTING...` prints the
tables of docs/studies/narrow-jobs.md, on the windows of `tests.benchmarks.unseen`: each figure in percent of `easy`,
and each setting against `lookahead`, pair by pair.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.dispatchers.lookahead.virtual import History
from cpsched.errors import require
from cpsched.kernels.baseline import virtual_starts
from cpsched.kernels.state import Site
from cpsched.model import NEVER, Snapshot
from cpsched.site.weighing import FloatArray
from tests.benchmarks import unseen
from tests.benchmarks.unseen import BASE, DRAWN, WIDTHS, Case

PRESENT = "lookahead"
FIRST = 1000.0
"""So many times dearer is a job that goes before the others."""
TRACES = ("KTH", "Theta", "RICC", "BLUE", "Gaia", "KIT", "Eurora")
MEASURES = ("af", "awf", "bsld", "p2sf", "wait", "longest", "jain")
NARROWEST = "narrow"
"""The longest wait of the narrowest class, of those of `unseen.WIDTHS` that a trace has."""


class Late(History):
    """A history that also knows how late each queued job is beside the virtual schedule of `easy`."""

    def __init__(self) -> None:
        super().__init__()
        self.late_s: FloatArray = np.zeros(0)
        """By queue position: the seconds since the job started there; 0 where it waits there, too."""
        self.longest_s = 0.0

    def follow(self, snapshot: Snapshot, site: Site) -> tuple[FloatArray, float]:
        """See `History.follow`."""
        expected_s, self.longest_s = super().follow(snapshot, site)
        starts_s = virtual_starts(site, self._virtual)
        self.late_s = np.where(starts_s == NEVER, 0.0, snapshot.now_s - starts_s.astype(np.float64))
        return expected_s, self.longest_s


class Fair(Lookahead):
    """`lookahead` under its default objective, in which some jobs weigh more. L: as in `docs/lookahead.md`.

    - `late`: the price of a job that is late by this share of L beside `easy` doubles; it grows with the square.
    - `bound`: a job that is late by more than this share of L goes before all others.
    - `floor`: no job that has not waited weighs less than this share of the queue's mean.
    - `narrow`: all this concerns only jobs that take at most this part of the machine (one processor in any case).

    0 switches each of the first three off.
    """

    def __init__(
        self, late: float = 0.0, bound: float = 0.0, floor: float = 0.0, narrow: float = 1.0, seed: int = 0
    ) -> None:
        for name, value in (("late", late), ("bound", bound), ("floor", floor), ("narrow", narrow)):
            require(value >= 0, name, value, "must not be negative")
        super().__init__("default", seed=seed)
        self.late, self.bound, self.floor, self.narrow = late, bound, floor, narrow
        self._history = self.lateness = Late()

    def _site_factors(self, snapshot: Snapshot, expected_s: FloatArray) -> FloatArray:
        """By what the weight of each queued job is multiplied, float64[Q]."""
        table, queue = snapshot.table, snapshot.queue
        processors = table.units[queue] * table.per_unit[queue, 0]
        late_s, longest_s = self.lateness.late_s, max(1.0, self.lateness.longest_s)
        factor = np.ones(len(queue))
        if self.late:
            factor += (late_s / (self.late * longest_s)) ** 2
        if self.bound:
            factor[late_s > self.bound * longest_s] *= FIRST
        if self.floor:
            own = self._row.weights(processors, expected_s)
            factor *= np.maximum(1.0, self.floor * own.mean() / own)
        machine = int(snapshot.cluster.capacity[:, 0].sum())
        return np.where(processors <= max(1.0, self.narrow * machine), factor, 1.0)


def narrowest(classes: dict[str, list[float]]) -> float:
    """The longest wait of the narrowest class that there is."""
    return next(classes[name][3] for name in (f"width {width}" for width, *_ in WIDTHS) if name in classes)


def rows_of(found: dict[Case, dict[str, Any]], name: str, setting: str) -> FloatArray:
    """By window: each of `MEASURES` and the longest wait of the narrowest class, in percent of `easy`.

    The means of seeds. The last column is weighed so that its mean is that of the waits over that of `easy`'s waits:
    where hardly a narrow job waits under `easy`, a ratio says nothing.
    """
    by_window: dict[tuple[str, int], list[list[float]]] = {}
    for case in found:
        if case.setting == setting and name in (case.trace, "all"):
            base = found[Case(case.trace, case.window, BASE, 0)]
            row = [100 * (found[case][key] or 1) / (base[key] or 1) for key in MEASURES]
            mine = [each for each in found if each.setting == BASE and each.trace == case.trace]
            usual = float(np.mean([narrowest(found[each]["classes"]) for each in mine])) or 1.0
            row.append(100 * narrowest(found[case]["classes"]) / usual)
            by_window.setdefault((case.trace, case.window), []).append(row)
    return np.array([np.mean(rows, axis=0) for rows in by_window.values()])


def with_interval(values: FloatArray, sign: str = "") -> list[str]:
    """By column the mean over windows and, in brackets, the middle 95 % of means over windows drawn anew."""
    drawn = np.random.default_rng(0).integers(0, len(values), (DRAWN, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975), axis=0)
    rows = zip(values.mean(axis=0), low, high, strict=True)
    if not sign:
        return [f"{at:.0f} ({a:.0f}-{b:.0f})" for at, a, b in rows]
    return [f"{at:+.1f} ({a:+.1f} to {b:+.1f})" for at, a, b in rows]


def show(found: dict[Case, dict[str, Any]], settings: Sequence[str], intervals: bool) -> None:
    """Two tables: percent of `easy`, and the difference to the present default in points of it."""
    traces = [*dict.fromkeys(case.trace for case in found), "all"]
    head = f"| {' | '.join((*MEASURES, NARROWEST))} |\n|{'---|' * (3 + len(MEASURES))}"
    print(f"| | setting {head}")
    for name, setting in product(traces, (PRESENT, *settings)):
        rows = rows_of(found, name, setting)
        cells = with_interval(rows) if intervals else [f"{each:.1f}" for each in rows.mean(axis=0)]
        print(f"| {name} ({len(rows)}) | {setting.rpartition(':')[2]} | {' | '.join(cells)} |")
    print(f"\n| | setting, against {PRESENT} {head}")
    for name, setting in product(traces, settings):
        rows = rows_of(found, name, setting) - rows_of(found, name, PRESENT)
        cells = with_interval(rows, "+") if intervals else [f"{each:+.1f}" for each in rows.mean(axis=0)]
        print(f"| {name} | {setting.rpartition(':')[2]} | {' | '.join(cells)} |")


def main(arguments: Sequence[str]) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", metavar="SETTING", help="of `Fair`, as in late=0.1,narrow=0.01")
    parser.add_argument("--half", choices=("training", "test", "both"), default="training")
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--intervals", action="store_true")
    given = parser.parse_args(arguments)
    unseen.code()
    seeds = [int(each) for each in given.seeds.split(",")]
    settings = [f"{__spec__.name if __spec__ else __name__}:Fair:{each}" for each in given.settings]
    found: dict[Case, dict[str, Any]] = {}
    for case in unseen.cases(given.traces.split(","), [PRESENT, *settings], seeds, given.half):
        found[case] = unseen.figures(replace(case))
    show(found, settings, given.intervals)


if __name__ == "__main__":
    main(sys.argv[1:])
