"""Whether the dead-man timer may have released jobs that the bridge held, since it saw no good cycle for too long."""

from __future__ import annotations

import math
from dataclasses import dataclass

AWAY_S = 60.0
"""Without a good cycle for so long; and for so long after the next one, since a release of many jobs takes time."""


@dataclass(slots=True)
class Away:
    """Follows good cycles by monotonic time; `good_s` is the time of the last one."""

    good_s: float
    _back_s: float = -math.inf

    def good(self, now_s: float) -> None:
        """Take note of a good cycle."""
        if now_s - self.good_s >= AWAY_S:
            self._back_s = now_s
        self.good_s = now_s

    def was(self, now_s: float) -> bool:
        """Whether a job that is found released may be one of the dead-man timer's."""
        return now_s - self.good_s >= AWAY_S or now_s - self._back_s < AWAY_S


def away_since(now_s: float, heartbeat_age_s: float | None) -> Away:
    """What a bridge that starts knows by the heartbeat of the one before; None: there was none."""
    return Away(now_s - (math.inf if heartbeat_age_s is None else abs(heartbeat_age_s)))
