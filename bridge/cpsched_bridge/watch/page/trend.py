"""How long jobs have waited over the past day: a few hundred points in memory, whatever the cluster does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cpsched_bridge.watch.page.schema import Point

DAY_S = 24 * 3600
STEP_S = 300
"""Between two points."""
_MOST_STARTS = 10_000
"""Starts that are remembered until the next point."""


@dataclass(slots=True)
class Trend:
    """Fed with every cycle that read the cluster, in order."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=DAY_S // STEP_S + 1))
    _waits_s: deque[int] = field(default_factory=lambda: deque(maxlen=_MOST_STARTS))
    """Of the jobs that started since the last point."""

    def note(self, now_s: int, submits: Sequence[int], running: int, started_waits_s: Sequence[int]) -> None:
        """`submits`: when the waiting jobs were submitted. Costs little but for one cycle in `STEP_S`."""
        self._waits_s.extend(started_waits_s)
        if self.points and now_s - self.points[-1].now_s < STEP_S:
            return
        self.points.append(self.present(now_s, submits, running))
        self._waits_s.clear()

    def present(self, now_s: int, submits: Sequence[int], running: int) -> Point:
        """How it is now, since the last point."""
        return Point(
            now_s=now_s, queued=len(submits), running=running, median_wait_s=now_s - _median(submits, now_s),
            started=len(self._waits_s), median_start_wait_s=_median(self._waits_s, 0) if self._waits_s else None,
        )  # fmt: skip


def _median(values: Sequence[int], otherwise: int) -> int:
    return int(np.median(np.fromiter(values, np.int64, len(values)))) if values else otherwise
