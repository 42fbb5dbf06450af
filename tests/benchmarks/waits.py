"""Other prices and other ageing for the objective `waits`: what is best among those whose longest wait keeps its limit.

`tests.benchmarks.waits:Waits` stands wherever a dispatcher may be named, as in `tests.benchmarks.waits:Waits:by=1`.
Without settings it decides as `lookahead` did under `waits` before `by=1,bounded=0` was chosen. The tables of
docs/studies/waits.md: `python -m tests.benchmarks.unseen --against tests.benchmarks.waits:Waits SETTING...`.
"""

from __future__ import annotations

from dataclasses import replace

from cpsched.dispatchers.lookahead.dispatcher import Lookahead
from cpsched.dispatchers.lookahead.objectives import OBJECTIVES
from cpsched.errors import require


class Waits(Lookahead):
    """`lookahead` with the price r^`r` E^`e` (1 + (W / (`by` L))^`power`). W, L, r and E: as in `docs/lookahead.md`.

    - `bounded`: 1 where a job that has waited for half of the bound of the longest wait may not wait longer; or 0.
    - `area`: so many times m r E is added to the price without ageing.
    """

    def __init__(
        self,
        by: float = 0.5,
        power: int = 4,
        e: float = -0.5,
        r: float = 0.0,
        bounded: int = 1,
        area: float = 0.0,
        seed: int = 0,
    ) -> None:
        require(by > 0, "by", by, "must be positive")
        require(power > 0, "power", power, "must be positive")
        require(bounded in (0, 1), "bounded", bounded, "must be 0 or 1")
        super().__init__("waits", seed=seed)
        self._row = replace(
            OBJECTIVES["waits"], aged_by=by, ageing_power=power, e=e, r=r, bounded=bool(bounded), area=area
        )
        self._objective = self._row.compiled()
