"""Define clocks for a simulated site: scaled real time, manual, or event-driven."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.cycle.real_clock import RealClock
from cpsched_bridge.cycle_report import CycleReport
from cpsched_sim.cluster.replay_clock import wall_ns_without_compilation


class SimulatedClock(Protocol):
    """A clock that returns the site's time."""

    def now_s(self) -> int:
        """Return the site's current time in whole seconds."""
        ...


class ScaledClock(SimulatedClock):
    """A clock that advances `speed` site seconds per real second, from `start_s`."""

    def __init__(self, speed: float = 1.0, start_s: int = 0) -> None:
        self._speed, self._start_s = speed, start_s
        self._began_s = time.monotonic()

    @override
    def now_s(self) -> int:
        return self._start_s + int((time.monotonic() - self._began_s) * self._speed)


@dataclass(frozen=True, slots=True)
class ManualClock(SimulatedClock):
    """A clock that returns the site's time. Only the caller advances it."""

    site: MockCluster

    @override
    def now_s(self) -> int:
        return self.site.now_s


class EventDrivenClock(RealClock):
    """A clock that ends each wait of the loop at the site's next event.

    If `on_cycle` is registered as a listener of the bridge, waits also end at the dispatcher's next wake-up. If jobs
    wait but no event remains, at most `patience` further cycles follow, one second apart. Site time stops while kernels
    compile.
    """

    def __init__(self, site: MockCluster, patience: int = 3) -> None:
        super().__init__()
        self._site, self._patience, self._idle = site, patience, 0
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
        """Advance the site to its next event. Return False if no event remains."""
        idle = self._site.next_event_s() is None
        self._idle = self._idle + 1 if idle else 0
        if idle and (not self._site.pending_count or self._idle > self._patience):
            return False
        next_s = self._find_next_event_s()
        self._site.advance(next_s if next_s is not None else self._site.now_s + 1)
        return not self.is_stopped


class SpeedLimitedEventClock(EventDrivenClock):
    """A clock that moves from event to event at most `speed` times real time.

    The run ends after `budget_s` real seconds. On a slow machine, the run covers less site time but makes the same
    decisions.
    """

    def __init__(self, site: MockCluster, speed: float, budget_s: float) -> None:
        super().__init__(site)
        self._speed, self._began_s, self._from_s = speed, self.monotonic_s(), site.now_s
        self._until_s = self._began_s + budget_s

    @override
    def wait(self, seconds: float) -> bool:
        next_s = self._find_next_event_s()
        if next_s is not None:
            due_s = self._began_s + (next_s - self._from_s) / self._speed
            rest_s = min(due_s, self._until_s) - self.monotonic_s()
            if rest_s > 0 and not RealClock.wait(self, rest_s):
                return False
        return self.monotonic_s() < self._until_s and super().wait(seconds)
