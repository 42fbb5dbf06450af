"""The rest between two cycles: longer after failures, in short slices, with signs of life to systemd."""

from __future__ import annotations

from dataclasses import dataclass

from cpsched_bridge.ports import Pace
from cpsched_bridge.settings import CycleSettings
from cpsched_bridge.watch.systemd import Systemd

_SLICE_S = 5.0
"""Longest wait without a sign of life to systemd."""


@dataclass(slots=True)
class Rest:
    """Counts failed cycles in a row and waits accordingly."""

    settings: CycleSettings
    pace: Pace
    systemd: Systemd
    _failed: int = 0

    def note(self, good: bool) -> None:
        """Take note of how a cycle went."""
        self._failed = 0 if good else self._failed + 1

    @property
    def pause_s(self) -> float:
        """Seconds from one cycle to the next: the interval, doubled for each failed cycle in a row, up to the bound."""
        interval_s = self.settings.interval_s
        if not self._failed:
            return interval_s
        return min(max(self.settings.max_backoff_s, interval_s), interval_s * 2.0 ** min(self._failed, 30))

    def wait_until(self, due_s: float) -> bool:
        """Wait until a monotonic time; False if the loop is to end."""
        left_s = due_s - self.pace.monotonic_s()
        while True:
            self.systemd.notify("WATCHDOG=1")
            slice_s = max(0.0, min(left_s, _SLICE_S))
            if not self.pace.wait(slice_s):
                return False
            left_s -= slice_s
            if left_s <= 0:
                return True
