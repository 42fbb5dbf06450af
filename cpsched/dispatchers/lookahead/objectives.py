"""What a plan costs: one row per objective.

Symbols: r processors of a job, E how long it is expected to run, W how long it has waited so far, in seconds;
s its planned start, F = s - submission + E, A the typical area of the queue. The sum over all jobs is minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cpsched.jit.handles import fields_of
from cpsched.kernels.plan_costs import TYPICAL
from cpsched.kernels.search_state import PriceParameters
from cpsched.model import BSLD_BOUND_S
from cpsched.site.priority_weights import FloatArray

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class ObjectiveRow:
    """An objective: what a second costs that a job waits.

    That is r^`r` E^`e` (1 + `flat` A / (r E)) (1 + `ageing` (W / `aged_s`)^`ageing_power`). A is the *typical area* of
    the queue: three of four jobs have an r E of at most so much. By area alone all orders of a busy machine cost nearly
    the same. What a job costs for its own sake, whatever its size, puts small ones first and leaves the large ones,
    which are most of the work, in the order of their ages.

    - `area`: to r^`r` E^`e` so many times m r E is added, m being the mean of the former over the mean of r E in the
      queue: what both add up to over the queue is in that proportion, whatever the units.
    - `aged_by`: where it is not 0, `aged_s` is that share of the longest wait under the virtual schedule of `easy`, see
      `cpsched.dispatchers.lookahead.run_history`. E is then what jobs of the user have really run of their walltimes.
    - `bounded`: a job that has waited for half of the bound may wait no longer than it in a plan, past and planned.
      The bound is the longest such wait by arrival, or in the order of the last round, whichever is shorter.
    - `power`: where it is not 0 the cost is not linear: r^`r` (F^power - (F - E)^power), as in PaSF of debs24.
    - `least_s`: E counts as at least so much.
    - `reserve`: a job with E above `reserve_above_s` that waited less than `reserve_until_s` is planned only where this
      share of the machine stays free beside it: room for short jobs that are yet to come. On a counted pool only.
    - `effort`: how many orders are decoded in the search of a round, unless a setting says otherwise.
    """

    name: str
    sentence: str
    r: float = 0.0
    e: float = 0.0
    flat: float = 0.0
    area: float = 0.0
    ageing: float = 0.0
    aged_s: int = DAY_S
    aged_by: float = 0.0
    ageing_power: int = 2
    bounded: bool = False
    power: int = 0
    least_s: int = BSLD_BOUND_S
    reserve: float = 0.0
    reserve_above_s: int = 3600
    reserve_until_s: int = DAY_S
    effort: int = 60

    @property
    def formula(self) -> str:
        """What a job costs, as a formula."""
        factors = [_power(name, exponent) for name, exponent in (("r", self.r), ("E", self.e)) if exponent]
        if self.area:
            factors = [f"({' '.join(factors)} + {self.area:g} m r E)"]
        if self.flat:
            factors.append(f"(1 + {self.flat:g} A / (r E))")
        if self.ageing:
            times = f"{self.ageing:g} " if self.ageing != 1 else ""
            by = ("L" if self.aged_by == 1 else f"({self.aged_by:g} L)") if self.aged_by else f"{self.aged_s // 3600} h"
            factors.append(f"(1 + {times}(W / {by})^{self.ageing_power})")
        factors.append(f"(F^{self.power} - (F - E)^{self.power})" if self.power else "(s - now)")
        aside = f"; {self.reserve:.0%} of the machine kept free beside new long jobs" if self.reserve else ""
        aside += "; bound of the longest wait" if self.bounded else ""
        return " ".join(factors) + aside

    def weights(self, processors: npt.ArrayLike, expected_s: npt.ArrayLike) -> FloatArray:
        """What a second costs of each queued job that has not waited yet, float64[Q], by r and E.

        The search has the same from `kernels.plan_costs.weigh_jobs`.
        """
        r, E = np.maximum(1, processors), np.maximum(expected_s, self.least_s)
        area = r * E
        typical = np.quantile(area, TYPICAL, method="higher") if self.flat and len(area) else 0.0
        found: FloatArray = r**self.r * E**self.e * (1 + self.flat * typical / area)
        return found + self.area * area * (found.sum() / area.sum()) if self.area and len(area) else found

    def compiled(self) -> PriceParameters:
        """The row as the kernels read it."""
        return PriceParameters(
            **{name: getattr(self, name) for name in fields_of(PriceParameters)} | {"bounded": int(self.bounded)}
        )


def _power(name: str, exponent: float) -> str:
    return name if exponent == 1 else f"{name}^{exponent:g}"


OBJECTIVES: dict[str, ObjectiveRow] = {
    row.name: row
    for row in (
        ObjectiveRow(
            "default",
            "Short waits for most, large jobs in time: by the site's own waits under `easy`",
            e=-0.5,
            area=0.3,
            ageing=1.0,
            aged_by=0.3,
            ageing_power=4,
            bounded=True,
        ),
        ObjectiveRow(
            "waits",
            "Short waits for many; old jobs in time, by the site's own waits under `easy`",
            e=-0.5,
            ageing=1.0,
            aged_by=1.0,
            ageing_power=4,
        ),
        ObjectiveRow(
            "large-jobs",
            "Large jobs and a full machine: waits by size and by job, with ageing",
            r=1.3,
            e=1.0,
            flat=0.5,
            ageing=1.0,
            aged_s=DAY_S // 2,
            ageing_power=4,
            bounded=True,
        ),
        ObjectiveRow("slowdown", "Mean slowdown, with ageing", e=-0.5, ageing=1.0, aged_s=2 * DAY_S),
        ObjectiveRow("af", "Mean response time (AF)", effort=300),
        ObjectiveRow("awf", "Mean response time weighted by area (AWF)", r=1.0, e=1.0, effort=100),
        ObjectiveRow(
            "bsld", "Mean bounded slowdown (BSLD)", e=-0.5, ageing=1.0, aged_s=2 * DAY_S, reserve=0.05, effort=100
        ),
        ObjectiveRow("p2sf", "Per-area slowdown of level 2 (P2SF)", r=1.0, power=4, effort=300),
    )
}
"""Every objective by name, one row each."""

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(OBJECTIVES)]
    """A name of `OBJECTIVES`; command lines offer them as choices."""
