"""Control the weight `area` by comparing the real schedule with a virtual one.

The virtual schedule places the same jobs with `easy`. Ratios of the real to the virtual schedule, for large jobs and
the longest wait, must meet targets. A larger `area` lowers these ratios, but makes other jobs wait longer. No fixed
weight suits all sites, so the weight rises while a ratio is above its target, and otherwise falls. No clock is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cpsched.model import IntArray
from cpsched.site.priority_multipliers import FloatArray

HALF_LIFE_JOBS = 300
"""Number of later jobs after which a job counts half as much."""

LONGEST_WAIT_DECAY = 0.999
"""Factor applied to the longest waits for each observed job."""

STEP_JOBS = 25
"""Number of jobs between two steps of the weight."""

GAIN = 3.0
"""Change of the weight's logarithm per step, divided by the excess.

The excess is the logarithm of the worst ratio relative to its target. If waits are longer than under `easy`, the
logarithm of their ratio is subtracted, because a larger weight lengthens waits.
"""

MAX_STEP_UP, MAX_STEP_DOWN = 0.25, 0.08
"""Limits on a step of the weight's logarithm. The weight rises faster than it falls, to protect large jobs."""

STEP_CUT, STEP_RECOVERY, MIN_STEP_SCALE = 0.5, 2 ** (1 / 400), 2**-6
"""Factor of the step scale after a change of direction, its factor after any other step, and its minimum.

A ratio reflects a change of the weight only after a few hundred jobs, and may jump at a certain weight. Without smaller
steps, the weight would oscillate around that value.
"""

MIN_AREA_WEIGHT, MAX_AREA_WEIGHT = 0.1, 3.0
"""Limits on the weight."""

MAX_USER_SHARE = 0.25
"""Maximum share of one user's jobs in a ratio, if there are more than four users."""

ADDED_WAIT_S = 60.0
"""Seconds added to the longest waits, so that they do not differ by a large factor on an almost empty cluster."""

LARGE, LARGE_SQUARED, WAITS, LONGEST = "large", "large_squared", "waits", "longest"
"""Names of the ratios of area-weighted response times, their squares, waits, and the longest wait."""
RATIOS = LARGE, LARGE_SQUARED, WAITS, LONGEST
AREA = "area"
"""Name under which the weight is shown."""

RESCALE_THRESHOLD = 2.0**20
"""When a new job's weight exceeds this value, all sums are divided by that weight."""


class AreaWeightControl:
    """Computes the ratios of the real to the virtual schedule, and the weight `area`.

    Call `observe` with each round's pairs. `targets` contains the largest permitted value of each controlled ratio.
    """

    def __init__(self, area: float, targets: Mapping[str, float]) -> None:
        self.area, self.ratios = area, dict[str, float]()
        self._shown = dict[str, float]()
        """The result of `shown`, or an empty mapping after a change."""
        self._targets = targets
        self._sums: dict[int, list[float]] = {}
        """Real and virtual sums for the ratios `LARGE`, `LARGE_SQUARED` and `WAITS`, by user."""
        self._rows: dict[int, str] = {}
        """Text of the sums for `memory`, by user, if they have not changed since its last call."""
        self._longest_s = [0.0, 0.0]
        """The longest real wait and the longest virtual wait, in seconds. Both decay over time."""
        self._scale, self._direction = 1.0, 0
        """Scale of the next step, and sign of the last step."""
        self._new, self._jobs = 1.0, 0
        """Weight of a new job in the sums, which grows so that older weights stay constant, and number of jobs."""

    def observe(self, pairs: IntArray) -> None:
        """Add pairs, int64[N, PAIR_FIELDS], and change the weight every `STEP_JOBS` jobs."""
        for user, amount, run_s, real_s, virtual_s, pending_s in pairs.tolist():
            sums, area = self._sums.setdefault(user, [0.0] * 6), self._new * amount * run_s
            self._rows.pop(user, None)
            for k, wait_s in enumerate((real_s, virtual_s)):
                response_s = wait_s + run_s
                sums[k] += area * response_s
                sums[k + 2] += area * response_s**2
                sums[k + 4] += self._new * (wait_s + 1)
                self._longest_s[k] = max(LONGEST_WAIT_DECAY * self._longest_s[k], float(wait_s))
            self._longest_s[1] = max(self._longest_s[1], float(pending_s))
            self._new *= 2 ** (1 / HALF_LIFE_JOBS)
            self._jobs += 1
            if self._jobs % STEP_JOBS == 0:
                self._adjust_weight()

    def _adjust_weight(self) -> None:
        """Update the ratios and the weight."""
        sums = np.array(list(self._sums.values())).T.copy()
        large, squared, waits = real_to_virtual_ratios(sums[::2], sums[1::2])
        real_s, virtual_s = self._longest_s
        longest = (real_s + ADDED_WAIT_S) / (virtual_s + ADDED_WAIT_S)
        self.ratios = {LARGE: large, LARGE_SQUARED: squared, WAITS: waits, LONGEST: longest}
        worst = max(math.log(self.ratios[name] / target) for name, target in self._targets.items())
        excess = worst - max(0.0, math.log(waits))
        direction = (excess > 0) - (excess < 0)
        turned = direction * self._direction < 0
        self._scale = max(MIN_STEP_SCALE, self._scale * STEP_CUT) if turned else min(1.0, self._scale * STEP_RECOVERY)
        self._direction = direction or self._direction
        step = self._scale * min(MAX_STEP_UP, max(-MAX_STEP_DOWN, GAIN * excess))
        self.area, self._shown = min(MAX_AREA_WEIGHT, max(MIN_AREA_WEIGHT, self.area * math.exp(step))), {}
        if self._new > RESCALE_THRESHOLD:
            for user, known in list(self._sums.items()):
                self._sums[user] = [value / self._new for value in known]
                if self._sums[user][5] < 1 / RESCALE_THRESHOLD:
                    del self._sums[user]
            self._new = 1.0
            self._rows.clear()

    def shown(self) -> dict[str, float]:
        """Return the latest ratios and the weight `area`, rounded for display."""
        if not self._shown:
            self._shown = {name: round(value, 3) for name, value in {**self.ratios, AREA: self.area}.items()}
        return self._shown

    def memory(self) -> dict[str, Any]:
        """Return the state as JSON, with one string per user to keep the journal small."""
        for user in self._sums.keys() - self._rows.keys():
            self._rows[user] = " ".join(map(str, (user, *self._sums[user])))
        return {
            "area": self.area,
            "ratios": self.ratios,
            "longest_s": self._longest_s,
            "step": [self._scale, self._direction],
            "jobs": [self._new, self._jobs],
            "users": [self._rows[user] for user in self._sums],
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Replace the state with an earlier `memory`."""
        self.area, self.ratios, self._shown = memory["area"], dict(memory["ratios"]), {}
        self._longest_s = list(memory["longest_s"])
        self._scale, self._direction = memory.get("step", [1.0, 0])
        self._new, self._jobs = memory["jobs"]
        rows = [row.split() for row in memory["users"]]
        self._sums = {int(user): list(map(float, sums)) for user, *sums in rows}
        self._rows.clear()


def real_to_virtual_ratios(real: FloatArray, virtual: FloatArray) -> list[float]:
    """Return each row's sum of `real` divided by its sum of `virtual`.

    Both arrays are float64[ratios, users]. With more than 1 / `MAX_USER_SHARE` users, a user whose virtual sum exceeds
    `MAX_USER_SHARE` of the total counts only as that share.

    >>> real_to_virtual_ratios(np.array([[20.0, 10.0]]), np.array([[10.0, 20.0]]))
    [1.0]
    >>> real, virtual = np.array([[1.0] * 9 + [2e6]]), np.array([[1.0] * 9 + [1e6]])
    >>> [round(ratio, 3) for ratio in real_to_virtual_ratios(real, virtual)]
    [1.25]
    """
    counted = virtual
    if virtual.shape[1] * MAX_USER_SHARE > 1:
        counted = np.minimum(virtual, np.array([[_user_sum_cap(sums)] for sums in virtual]))
    found: list[float] = ((counted * (real / virtual)).sum(axis=1) / counted.sum(axis=1)).tolist()
    return found


def _user_sum_cap(sums: FloatArray) -> float:
    """Return the cap on each sum that is `MAX_USER_SHARE` of the total of capped sums.

    If the `above` largest sums are reduced to x, x = share (above x + rest). At most 1 / share - 1 sums are larger.
    """
    ascending = np.sort(sums)
    totals, limit = np.cumsum(ascending), 0.0
    for above, (largest, rest) in enumerate(zip(ascending[::-1].tolist(), totals[::-1].tolist(), strict=True)):
        limit = MAX_USER_SHARE * rest / (1 - MAX_USER_SHARE * above)
        if largest <= limit:
            break
    return limit
