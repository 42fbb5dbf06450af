"""Small jobs kept back as fillers while the queue is long: does `lookahead` idle less with them?

`tests.benchmarks.fillers:Fillers` stands wherever a dispatcher may be named, as in
`tests.benchmarks.fillers:Fillers:stock=600`. Without settings it decides as `lookahead` does. What it brought is in
docs/studies/who-gains.md: `python -m tests.benchmarks.unseen --traces Eurora --against lookahead lookahead SETTING...`.
"""

from __future__ import annotations

import numpy as np

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.errors import require
from cpsched.model import Snapshot
from cpsched.site.weighing import FloatArray


class Fillers(Lookahead):
    """`lookahead` under its default objective, which keeps some small jobs back for gaps that nothing else fits into.

    - `stock`: the youngest small jobs are kept, as many as would fill the whole machine for so many seconds; 0: none.
    - `small`: small are this share of the waiting jobs, by area r E.
    - `aside`: what a kept job's price is multiplied by, so that it stands behind the others and fills what they leave.
    - `over`: jobs are kept only while the work in the queue would fill the machine for so many seconds.
    - `patience`: a job that has waited for longer than this share of L is not kept. L: as in `docs/lookahead.md`.
    """

    def __init__(
        self,
        stock: float = 0.0,
        small: float = 0.5,
        aside: float = 0.1,
        over: float = 3600.0,
        patience: float = 0.3,
        seed: int = 0,
    ) -> None:
        settings = {"stock": stock, "small": small, "aside": aside, "over": over, "patience": patience}
        for name, value in settings.items():
            require(value >= 0, name, value, "must not be negative")
        super().__init__("default", seed=seed)
        self.stock, self.small, self.aside, self.over, self.patience = stock, small, aside, over, patience

    def _site_factors(self, snapshot: Snapshot, expected_s: FloatArray) -> FloatArray:
        """By what the weight of each queued job is multiplied, float64[Q]."""
        table, queue, found = snapshot.table, snapshot.queue, np.ones(len(snapshot.queue))
        area = table.units[queue] * table.per_unit[queue, 0] * expected_s
        machine = int(snapshot.cluster.capacity[:, 0].sum())
        if not self.stock or area.sum() < self.over * machine:
            return found
        waited_s = snapshot.now_s - table.submit_s[queue]
        longest_s = self._objective.aged_s / self._row.aged_by
        kept = (area <= np.quantile(area, self.small)) & (waited_s <= self.patience * longest_s)
        youngest_first = np.flatnonzero(kept)[np.argsort(waited_s[kept], kind="stable")]
        found[youngest_first[np.cumsum(area[youngest_first]) <= self.stock * machine]] = self.aside
        return found
