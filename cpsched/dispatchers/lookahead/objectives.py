"""Define the cost of a plan, with one row per objective.

For a job, r is the number of processors, E the expected run time, W the wait so far, and s the planned start. F is
s - submission + E. Times are in seconds. A is the queue's typical area. The sum of all jobs' costs is minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cpsched.dispatchers.lookahead.area_weight_control import LARGE, LARGE_SQUARED, LONGEST
from cpsched.formatting import format_percent
from cpsched.goal_presets import DEFAULT_GOAL
from cpsched.jit.shared_structs import kernel_fields
from cpsched.kernels.order_search_state import WaitCostParameters
from cpsched.kernels.plan_costs import TYPICAL_AREA_QUANTILE
from cpsched.model import BSLD_BOUND_S
from cpsched.site.priority_multipliers import FloatArray

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class WaitCostObjective:
    """An objective, given by the cost of one second of a job's wait.

    The cost is r^`r` E^`e` (1 + `flat` A / (r E)) (1 + `ageing` (W / `aged_s`)^`ageing_power`). The *typical area* A is
    the upper quartile of r E over the queue. With weights by area alone, all orders cost nearly the same on a busy
    cluster. The term with `flat` does not depend on a job's size and puts small jobs first. The large jobs, which make
    up most of the work, stay ordered by age.

    - `area`: adds `area` times m r E to r^`r` E^`e`. Here, m is the mean of r^`r` E^`e` divided by the mean of r E in
      the queue. Therefore, the ratio of both sums over the queue does not depend on units.
    - `large_target`: if not 0, `area` is only the initial value of this weight. The weight then follows the ratios to
      the virtual schedule of `easy`. Large jobs' response times should then be at most `large_target` times as long as
      under `easy` (see `cpsched.dispatchers.lookahead.area_weight_control`).
    - `longest_target`: the same for the longest wait. 0 means no target.
    - `aged_by`: if not 0, `aged_s` is this multiple of the longest wait under the virtual schedule of `easy` (see
      `cpsched.dispatchers.lookahead.run_times_and_easy_waits`). E then follows the true run times of the user's jobs.
    - `bounded`: whether a job that has waited for half of a bound must start before its total wait exceeds the bound.
      The bound is the longest total wait if jobs are planned by arrival or in the order of the last round, whichever
      is shorter.
    - `power`: if not 0, the cost is not linear: r^`r` (F^power - (F - E)^power), as in PaSF of debs24.
    - `least_s`: minimum of E in seconds.
    - `reserve`: on counted pools, share of the cluster that a new long job must leave free for later short jobs. A job
      is long and new if E exceeds `reserve_above_s` and the wait is below `reserve_until_s`.
    - `effort`: default number of orders that the search decodes per round.
    """

    name: str
    sentence: str
    r: float = 0.0
    e: float = 0.0
    flat: float = 0.0
    area: float = 0.0
    large_target: float = 0.0
    longest_target: float = 0.0
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
        """The formula of a job's cost."""
        factors = [
            _format_exponent_term(name, exponent) for name, exponent in (("r", self.r), ("E", self.e)) if exponent
        ]
        if self.area:
            factors = [f"({' '.join(factors)} + {'w' if self.ratio_targets else f'{self.area:g}'} m r E)"]
        if self.flat:
            factors.append(f"(1 + {self.flat:g} A / (r E))")
        if self.ageing:
            times = f"{self.ageing:g} " if self.ageing != 1 else ""
            by = ("L" if self.aged_by == 1 else f"({self.aged_by:g} L)") if self.aged_by else f"{self.aged_s // 3600} h"
            factors.append(f"(1 + {times}(W / {by})^{self.ageing_power})")
        factors.append(f"(F^{self.power} - (F - E)^{self.power})" if self.power else "(s - now)")
        aside = (
            f"; {format_percent(self.reserve)} of the machine kept free next to new long jobs" if self.reserve else ""
        )
        aside += "; bound on the longest wait" if self.bounded else ""
        return " ".join(factors) + aside

    @property
    def ratio_targets(self) -> dict[str, float]:
        """The largest permitted ratios to `easy` by name, or {} if `area` is constant."""
        large, longest = self.large_target, self.longest_target
        found = {LARGE: large, LARGE_SQUARED: large} if large else {}
        return found | ({LONGEST: longest} if longest else {})

    def job_wait_weights(
        self, processors: npt.ArrayLike, expected_s: npt.ArrayLike, area_weight: float | None = None
    ) -> FloatArray:
        """Return each job's cost of one second of wait, without ageing, float64[Q].

        `area_weight` is the current weight if it differs from `area`. `kernels.plan_costs.weigh_jobs` computes the same
        costs for the search.
        """
        r, E = np.maximum(1, processors), np.maximum(expected_s, self.least_s)
        area = r * E
        typical = np.quantile(area, TYPICAL_AREA_QUANTILE, method="higher") if self.flat and len(area) else 0.0
        found: FloatArray = r**self.r * E**self.e * (1 + self.flat * typical / area)
        w = self.area if area_weight is None else area_weight
        return found + w * area * (found.sum() / area.sum()) if w and len(area) else found

    def to_wait_cost_parameters(self) -> WaitCostParameters:
        """Return the objective in the form that kernels read."""
        return WaitCostParameters(
            **{name: getattr(self, name) for name in kernel_fields(WaitCostParameters)} | {"bounded": int(self.bounded)}
        )


def _format_exponent_term(name: str, exponent: float) -> str:
    return name if exponent == 1 else f"{name}^{exponent:g}"


OBJECTIVES: dict[str, WaitCostObjective] = {
    row.name: row
    for row in (
        WaitCostObjective(
            DEFAULT_GOAL,
            "Short waits for most jobs, with large jobs and the longest wait no worse than under `easy`",
            e=-0.5,
            area=0.3,
            large_target=1.0,
            longest_target=1.0,
            ageing=1.0,
            aged_by=0.3,
            ageing_power=4,
            bounded=True,
        ),
        WaitCostObjective(
            "waits",
            "Short waits for many jobs, with large jobs and the longest wait at most 5 % above `easy`",
            e=-0.5,
            area=0.1,
            large_target=1.05,
            longest_target=1.05,
            ageing=1.0,
            aged_by=0.5,
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
        WaitCostObjective(
            "slowdown",
            "Mean slowdown, with ageing; a job also pays for the area that it takes from later jobs",
            r=-1.0,
            e=-1.0,
            ageing=1.0,
            aged_by=1.0,
            ageing_power=4,
        ),
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
    """A key of `OBJECTIVES`. Command lines list the keys as choices."""
