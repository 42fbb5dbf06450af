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
from cpsched.kernels.baseline import TOLD, Baseline, told
from cpsched.kernels.state import Site
from cpsched.model import NEVER, IntArray, Snapshot
from cpsched.site.weighing import FloatArray
from tests.benchmarks import unseen
from tests.benchmarks.unseen import BASE, WIDTHS, Case, Found, percent, rows_of, show_against, with_interval

PRESENT = "lookahead"
FIRST = 1000.0
"""So many times dearer is a job that goes before the others."""
TRACES = ("KTH", "Theta", "RICC", "BLUE", "Gaia", "KIT", "Eurora")
MEASURES = ("af", "awf", "bsld", "p2sf", "wait", "longest", "jain")
NARROWEST = "narrow"
"""The longest wait of the narrowest class, of those of `unseen.WIDTHS` that a trace has."""


def virtual_starts(snapshot: Snapshot, virtual: Baseline) -> IntArray:
    """When the queued jobs started in the virtual schedule, by queue position; `NEVER` where they wait there, too."""
    start_s = {row[0]: row[5] for row in told(virtual).reshape(-1, TOLD).tolist()}
    return np.array([start_s.get(job.id, NEVER) for job in snapshot.queued_jobs()], np.int64)


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
        starts_s = virtual_starts(snapshot, self._virtual)
        self.late_s = np.where(starts_s == NEVER, 0.0, snapshot.now_s - starts_s.astype(np.float64))
        return expected_s, self.longest_s


class Fair(Lookahead):
    """`lookahead` under its default objective, in which some jobs weigh more. L: as in `docs/lookahead.md`.

    - `late`: the price of a job that is late by this share of L beside `easy` doubles; it grows with the square.
    - `most`: no price becomes more than so many times dearer by `late`.
    - `bound`: a job that is late by more than this share of L goes before all others.
    - `floor`: no job that has not waited weighs less than this share of the queue's mean.

    All this concerns only some jobs:

    - `narrow`: those that take at most this part of the machine (one processor in any case).
    - `after`: those that have waited for longer than this share of L.
    - `area`: those whose area is at most this share of the mean area in the queue.
    - `share`: nobody, where the jobs concerned are more than this share of the work in the queue.

    0 switches each of `late`, `bound` and `floor` off.
    """

    def __init__(
        self,
        late: float = 0.0,
        bound: float = 0.0,
        floor: float = 0.0,
        narrow: float = 1.0,
        most: float = np.inf,
        after: float = 0.0,
        area: float = np.inf,
        share: float = 1.0,
        seed: int = 0,
    ) -> None:
        require(most >= 1, "most", most, "must be 1 or more")
        shares = {"narrow": narrow, "after": after, "area": area, "share": share}
        for name, value in ({"late": late, "bound": bound, "floor": floor} | shares).items():
            require(value >= 0, name, value, "must not be negative")
        super().__init__("default", seed=seed)
        self.late, self.bound, self.floor, self.most = late, bound, floor, most
        self.narrow, self.after, self.area, self.share = narrow, after, area, share
        self._history = self.lateness = Late()

    def _site_factors(self, snapshot: Snapshot, expected_s: FloatArray) -> FloatArray:
        """By what the weight of each queued job is multiplied, float64[Q]."""
        table, queue = snapshot.table, snapshot.queue
        processors = table.units[queue] * table.per_unit[queue, 0]
        late_s, longest_s = self.lateness.late_s, max(1.0, self.lateness.longest_s)
        factor = np.ones(len(queue))
        if self.late:
            factor += np.minimum((late_s / (self.late * longest_s)) ** 2, self.most - 1)
        if self.bound:
            factor[late_s > self.bound * longest_s] *= FIRST
        if self.floor:
            own = self._row.weights(processors, expected_s)
            factor *= np.maximum(1.0, self.floor * own.mean() / own)
        machine, area = int(snapshot.cluster.capacity[:, 0].sum()), processors * expected_s
        waited_s = snapshot.now_s - table.submit_s[queue]
        concerned = (processors <= max(1.0, self.narrow * machine)) & (waited_s >= self.after * longest_s)
        concerned &= area <= self.area * area.mean()
        if area[concerned].sum() > self.share * area.sum():
            concerned[:] = False
        return np.where(concerned, factor, 1.0)


def narrowest(classes: dict[str, list[float]]) -> float:
    """The longest wait of the narrowest class that there is."""
    return next(classes[name][3] for name in (f"width {width}" for width, *_ in WIDTHS) if name in classes)


def row(found: Found, case: Case) -> list[float]:
    """Each of `MEASURES` and the longest wait of the narrowest class, in percent of `easy`.

    The last entry is weighed so that its mean is that of the waits over that of `easy`'s waits: where hardly a narrow
    job waits under `easy`, a ratio says nothing.
    """
    mine = [narrowest(found[each]["classes"]) for each in found if each.setting == BASE and each.trace == case.trace]
    usual = float(np.mean(mine)) or 1.0
    return [*percent(found, case, MEASURES), 100 * narrowest(found[case]["classes"]) / usual]


def show(found: Found, settings: Sequence[str], intervals: bool) -> None:
    """Two tables: percent of `easy`, and the difference to the present default in points of it."""
    names = (*MEASURES, NARROWEST)
    print(f"| | setting | {' | '.join(names)} |\n|{'---|' * (2 + len(names))}")
    for name, setting in product([*dict.fromkeys(case.trace for case in found), "all"], (PRESENT, *settings)):
        rows = rows_of(found, name, setting, row)
        cells = with_interval(rows) if intervals else [f"{each:.1f}" for each in rows.mean(axis=(0, 1))]
        print(f"| {name} ({len(rows)}) | {setting.rpartition(':')[2]} | {' | '.join(cells)} |")
    show_against(found, settings, PRESENT, intervals, row, names)


def main(arguments: Sequence[str]) -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", metavar="SETTING", help="of the class, as in late=0.1,narrow=0.01")
    parser.add_argument("--half", choices=("training", "test", "both"), default="training")
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--of", default="tests.benchmarks.narrow:Fair", metavar="CLASS", help="what has the settings")
    given = parser.parse_args(arguments)
    seeds = [int(each) for each in given.seeds.split(",")]
    settings = [f"{given.of}:{each}" for each in given.settings]
    found: dict[Case, dict[str, Any]] = {}
    for case in unseen.cases(given.traces.split(","), [PRESENT, *settings], seeds, given.half):
        found[case] = unseen.figures(replace(case))
    show(found, settings, given.intervals)


if __name__ == "__main__":
    main(sys.argv[1:])
