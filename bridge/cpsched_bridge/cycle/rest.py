"""The rest between two cycles: longer after failures and beside a busy cluster, shorter where something has changed.

It is waited for in short slices, with signs of life to systemd.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cpsched_bridge.cycle.wake import WakeFiles
from cpsched_bridge.ports import Pace
from cpsched_bridge.report import CycleReport
from cpsched_bridge.settings import CycleSettings
from cpsched_bridge.watch.systemd import Systemd

_SLICE_S = 5.0
"""Longest wait without a sign of life to systemd."""
_READING_SHARE = 0.5
"""Share of the time that readings of the cluster may take: the cluster has the other half for its users."""
WAKE_AFTER_S = 1.0
"""Seconds from the begin of one cycle to one that a wake file begins: submissions without pause cost no more than a
bridge without wake files."""
_LOOK_S = 0.1
"""How often the wake files are looked at."""
_WORTH_TELLING = 2.0
"""Times the interval from which on a longer pause is an event."""


@dataclass(slots=True)
class Rest:
    """Counts failed cycles in a row, follows how busy the cluster is, and waits accordingly."""

    settings: CycleSettings
    pace: Pace
    systemd: Systemd
    _failed: int = 0
    _times: float = 1.0
    """How many times the interval a pause takes beside a cluster as busy as this one."""
    _told: bool = False
    _wake: WakeFiles = field(init=False)

    def __post_init__(self) -> None:
        self._wake = WakeFiles(self.settings.wake_files)

    def begin(self) -> None:
        """A cycle begins: what changes from now on may come too late for its reading."""
        self._wake.remember()

    def note_load(self, report: CycleReport) -> None:
        """Follow how busy the cluster is by what a cycle has read, and tell where the pace changes for it.

        The pause doubles with each reading that finds the cluster busy, and halves with each that does not. A reading
        takes no more than half of it either way.
        """
        if report.observation is not None:
            busy, interval_s = report.observation.busy, self.settings.interval_s
            reading_s = report.seconds.get("observe", 0.0)
            by_reading = reading_s / (_READING_SHARE * interval_s)
            by_load = self._times * (2.0 if busy else 0.5)
            self._times = max(1.0, min(self.settings.slow_down, max(by_reading, by_load)))
            if not self._told and self._times >= min(_WORTH_TELLING, self.settings.slow_down) > 1.0:
                self._told = True
                why = busy or f"reading it took {reading_s:.1f} s"
                report.tell("slowed", f"a cycle every {self._times * interval_s:.3g} s: {why}")
            elif self._told and self._times == 1.0:
                self._told = False
                report.tell("full_pace", f"a cycle every {interval_s:.3g} s again")
        report.slowed = self._told
        report.pause_s = self.pause_s

    def note(self, good: bool) -> None:
        """Take note of how a cycle went."""
        self._failed = 0 if good else self._failed + 1

    @property
    def pause_s(self) -> float:
        """Seconds from one cycle to the next.

        The interval, longer beside a busy cluster; after failed cycles doubled for each of them in a row, up to the
        bound.
        """
        slow_s = self.settings.interval_s * self._times
        if not self._failed:
            return slow_s
        return max(slow_s, min(self.settings.max_backoff_s, self.settings.interval_s * 2.0 ** min(self._failed, 30)))

    def wait_until(self, due_s: float) -> bool:
        """Wait until a monotonic time, or until a wake file changes; False if the loop is to end."""
        now_s = self.pace.monotonic_s()
        left_s = due_s - now_s
        wakes = bool(self.settings.wake_files) and not self._failed and self._times == 1.0
        soonest_s = due_s - self.settings.interval_s + min(WAKE_AFTER_S, self.settings.interval_s)
        slice_s = _LOOK_S if wakes else _SLICE_S
        since_told_s = _SLICE_S
        while True:
            if since_told_s >= _SLICE_S:
                self.systemd.notify("WATCHDOG=1")
                since_told_s = 0.0
            waited_s = max(0.0, min(left_s, slice_s))
            if not self.pace.wait(waited_s):
                return False
            left_s -= waited_s
            since_told_s += waited_s
            if wakes and self._wake.changed():
                left_s, wakes, slice_s = min(left_s, max(_LOOK_S, soonest_s - self.pace.monotonic_s())), False, _SLICE_S
            elif left_s <= 0:
                return True
