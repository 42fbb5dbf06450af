"""The cost of a plan: one row per objective.

Symbols: r number of processors of a job, E expected run time, W wait so far, s planned start, F = s - submission + E,
with times in seconds, and A the typical area of the queue. The sum of the costs of all jobs is minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cpsched.jit.handles import fields_of
from cpsched.kernels.plan_costs import TYPICAL
from cpsched.kernels.search_state import WaitCostParameters
from cpsched.model import BSLD_BOUND_S
from cpsched.site.priority_weights import FloatArray

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class WaitCostObjective:
    """An objective, given by the cost of one second of a job's wait.

    The cost is r^`r` E^`e` (1 + `flat` A / (r E)) (1 + `ageing` (W / `aged_s`)^`ageing_power`). The *typical area* A is
    the upper quartile of r E over the queue. By area alone, all orders of a busy cluster cost nearly the same. The term
    with `flat` does not depend on a job's size and puts small jobs first. The large jobs, which are most of the work,
    stay in the order of their ages.

    - `area`: adds `area` times m r E to r^`r` E^`e`. Here m is the mean of r^`r` E^`e` over the mean of r E in the
      queue, so that the ratio of both sums over the queue does not depend on units.
    - `aged_by`: if not 0, `aged_s` is this share of the longest wait under the virtual schedule of `easy`, see
      `cpsched.dispatchers.lookahead.run_history`. E then follows the true run times of the user's jobs.
    - `bounded`: in a plan, a job that has waited for half of the bound may not exceed the bound with its past and
      planned wait together. The bound is the longest such wait by arrival or in the order of the last round, whichever
      is shorter.
    - `power`: if not 0, the cost is not linear: r^`r` (F^power - (F - E)^power), as in PaSF of debs24.
    - `least_s`: minimum of E, s.
    - `reserve`: a job with E above `reserve_above_s` that has waited less than `reserve_until_s` is planned only if
      this share of the cluster stays free for short jobs that arrive later. Counted pools only.
    - `effort`: default number of orders that the search of a round decodes.
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
        """The cost of a job, as a formula."""
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
        aside = f"; {self.reserve:.0%} of the machine kept free next to new long jobs" if self.reserve else ""
        aside += "; bound on the longest wait" if self.bounded else ""
        return " ".join(factors) + aside

    def weights(self, processors: npt.ArrayLike, expected_s: npt.ArrayLike) -> FloatArray:
        """Return the cost of a second's wait for each queued job that has not waited yet, float64[Q], from r and E.

        `kernels.plan_costs.weigh_jobs` computes the same for the search.
        """
        r, E = np.maximum(1, processors), np.maximum(expected_s, self.least_s)
        area = r * E
        typical = np.quantile(area, TYPICAL, method="higher") if self.flat and len(area) else 0.0
        found: FloatArray = r**self.r * E**self.e * (1 + self.flat * typical / area)
        return found + self.area * area * (found.sum() / area.sum()) if self.area and len(area) else found

    def to_price_parameters(self) -> WaitCostParameters:
        """Return the objective in the form that kernels read."""
        return WaitCostParameters(
            **{name: getattr(self, name) for name in fields_of(WaitCostParameters)} | {"bounded": int(self.bounded)}
        )


def _power(name: str, exponent: float) -> str:
    return name if exponent == 1 else f"{name}^{exponent:g}"


OBJECTIVES: dict[str, WaitCostObjective] = {
    row.name: row
    for row in (
        WaitCostObjective(
            "default",
            "Short waits for most jobs, bounded waits for large ones, scaled by the site's waits under `easy`",
            e=-0.5,
            area=0.3,
            ageing=1.0,
            aged_by=0.3,
            ageing_power=4,
            bounded=True,
        ),
        WaitCostObjective(
            "waits",
            "Short waits for many jobs, with ageing scaled by the site's waits under `easy`",
            e=-0.5,
            ageing=1.0,
            aged_by=1.0,
            ageing_power=4,
        ),
        WaitCostObjective(
            "large-jobs",
            "Large jobs and high utilization: waits weighted by size and per job, with ageing",
            r=1.3,
            e=1.0,
            flat=0.5,
            ageing=1.0,
            aged_s=DAY_S // 2,
            ageing_power=4,
            bounded=True,
        ),
        WaitCostObjective("slowdown", "Mean slowdown, with ageing", e=-0.5, ageing=1.0, aged_s=2 * DAY_S),
        WaitCostObjective("af", "Mean response time (AF)", effort=300),
        WaitCostObjective("awf", "Mean response time weighted by area (AWF)", r=1.0, e=1.0, effort=100),
        WaitCostObjective(
            "bsld", "Mean bounded slowdown (BSLD)", e=-0.5, ageing=1.0, aged_s=2 * DAY_S, reserve=0.05, effort=100
        ),
        WaitCostObjective("p2sf", "Per-area slowdown of level 2 (P2SF)", r=1.0, power=4, effort=300),
    )
}
"""All objectives by name."""

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(OBJECTIVES)]
    """A key of `OBJECTIVES`; command lines list them as choices."""
