"""Define clocks for a simulated site: scaled real time, or event-driven."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from typing_extensions import override

from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle_report import CycleReport
from cpsched_sim.cluster.replay_clock import wall_ns_without_compilation


def make_scaled_clock(speed: float = 1.0, start_s: int = 0) -> Callable[[], int]:
    """Return a function that returns the site's time: `start_s`, plus `speed` site seconds per real second."""
    began_s = time.monotonic()
    return lambda: start_s + int((time.monotonic() - began_s) * speed)


class EventDrivenClock(LoopClock):
    """A clock that ends each wait of the loop at the site's next event.

    If `on_cycle` is registered as a listener of the bridge, waits also end at the dispatcher's next wake-up. If jobs
    wait but no event remains, at most `patience` further cycles follow, one second apart. Site time stops while kernels
    compile.

    The site's time passes at most `speed` times as fast as real time, and the run ends after `budget_s` real seconds.
    On a slow machine, the run covers less site time but makes the same decisions.
    """

    def __init__(
        self, site: MockCluster, patience: int = 3, speed: float = math.inf, budget_s: float = math.inf
    ) -> None:
        super().__init__()
        self._site, self._patience, self._idle = site, patience, 0
        self._speed, self._began_s, self._from_s = speed, self.monotonic_s(), site.now_s
        self._until_s = self._began_s + budget_s
        self._again_s: int | None = None

    def on_cycle(self, report: CycleReport) -> None:
        """Record the time at which the dispatcher requests its next run."""
        self._again_s = None if report.decided.decision is None else report.decided.decision.again_s

    def _find_next_event_s(self) -> int | None:
        """Return the time of the next event or dispatcher run, whichever is earlier."""
        event_s = self._site.next_event_s()
        again_s = self._again_s if self._again_s is not None and self._again_s > self._site.now_s else None
        return min((each for each in (event_s, again_s) if each is not None), default=None)

    @override
    def monotonic_s(self) -> float:
        return wall_ns_without_compilation() / 1e9

    @override
    def wait(self, seconds: float) -> bool:
        """Advance the site to its next event. Return False if no event remains, or if the time is up."""
        next_s = self._find_next_event_s()
        if next_s is not None:
            due_s = self._began_s + (next_s - self._from_s) / self._speed
            rest_s = min(due_s, self._until_s) - self.monotonic_s()
            if rest_s > 0 and not super().wait(rest_s):
                return False
        if self.monotonic_s() >= self._until_s:
            return False

        idle = self._site.next_event_s() is None
        self._idle = self._idle + 1 if idle else 0
        if idle and (not self._site.pending_count or self._idle > self._patience):
            return False
        self._site.advance(next_s if next_s is not None else self._site.now_s + 1)
        return not self.is_stopped
