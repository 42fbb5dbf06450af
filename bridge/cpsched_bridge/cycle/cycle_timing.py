"""Schedule the cycles: later after failures and on a busy cluster, sooner when a trigger file changes.

The pause between two cycles is split into short waits, with a keep-alive to systemd after each.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from cpsched_bridge.cycle.backoff import Backoff
from cpsched_bridge.cycle_report import LATE_INTERVALS, OK, CycleReport
from cpsched_bridge.ports import LoopClock
from cpsched_bridge.settings import CycleSettings
from cpsched_bridge.telemetry.sd_notify import SystemdNotifier

AWAY_S = 60.0
"""Seconds without a good cycle after which the dead-man timer may have released jobs, which takes as long again."""
_SLICE_S = 5.0
"""Maximum wait in seconds without a keep-alive to systemd."""
_READING_SHARE = 0.5
"""Maximum share of time spent on reading the cluster; the other half remains for the users' requests."""
WAKE_AFTER_S = 1.0
"""Minimum seconds from the start of a cycle to a cycle started by a trigger file.

So, constant submissions cost no more than without trigger files.
"""
_LOOK_S = 0.1
"""Seconds between two checks of the trigger files."""
_WORTH_TELLING = 2.0
"""Multiple of the interval from which a longer pause is reported as an event."""

Signature = tuple[int, int, int]


@dataclass(slots=True)
class CycleTiming:
    """The start times of cycles, based on consecutive failed cycles and on the cluster's load."""

    settings: CycleSettings
    pace: LoopClock
    systemd: SystemdNotifier
    heartbeat_age_s: float | None = 0.0
    """Seconds since the last good cycle of the previous bridge; None if there was none."""
    _failed: int = field(default=0, init=False)
    _times: float = field(default=1.0, init=False)
    """Current pause as a multiple of the interval, depending on the cluster's load."""
    _slowed: bool = field(default=False, init=False)
    _began_s: float = field(default=0.0, init=False)
    _due_s: float = field(default=math.inf, init=False)
    """When the next cycle should start, as monotonic time, like all times of this class."""
    _good_s: float = field(init=False)
    """When the last good cycle ended."""
    _back_s: float = field(default=-math.inf, init=False)
    """When the last good cycle ended that followed a long time without a good one."""
    _files: list[Signature | None] = field(default_factory=list, init=False)
    """The trigger files at the start of the last cycle."""

    def __post_init__(self) -> None:
        age_s = math.inf if self.heartbeat_age_s is None else abs(self.heartbeat_age_s)
        self._good_s = self.pace.monotonic_s() - age_s

    def begin(self, report: CycleReport) -> None:
        """Begin a cycle before its observation is made, and report a late start."""
        self._files = self._signatures()
        self._began_s = self.pace.monotonic_s()
        late_s = self._began_s - self._due_s
        if late_s > LATE_INTERVALS * self.settings.interval_s:
            report.gap_s = late_s
            report.add_event("cycle_gap", f"this cycle began {late_s:.1f} s late")

    def note_load(self, report: CycleReport) -> None:
        """Update the load from a cycle's observation, and report changes of the pause.

        The pause doubles with each busy observation and halves with each other observation. In any case, reading takes
        at most half of the pause.
        """
        if report.observation is not None:
            busy, interval_s = report.observation.busy, self.settings.interval_s
            reading_s = report.seconds.get("observe", 0.0)
            by_reading = reading_s / (_READING_SHARE * interval_s)
            by_load = self._times * (2.0 if busy else 0.5)
            self._times = max(1.0, min(self.settings.max_interval_factor, max(by_reading, by_load)))
            if not self._slowed and self._times >= min(_WORTH_TELLING, self.settings.max_interval_factor) > 1.0:
                self._slowed = True
                why = busy or f"reading it took {reading_s:.1f} s"
                report.add_event("slowed", f"a cycle every {self._times * interval_s:.3g} s: {why}")
            elif self._slowed and self._times == 1.0:
                self._slowed = False
                report.add_event("full_pace", f"a cycle every {interval_s:.3g} s again")
        report.slowed = self._slowed
        report.pause_s = self.cycle_interval_s

    def end(self, report: CycleReport) -> None:
        """End a cycle after its result is known."""
        now_s = self.pace.monotonic_s()
        self._failed = 0 if report.result == OK else self._failed + 1
        if not self._failed:
            if now_s - self._good_s >= AWAY_S:
                self._back_s = now_s
            self._good_s = now_s

    @property
    def was_interrupted(self) -> bool:
        """Return whether the dead-man timer may have released a job that was found released."""
        now_s = self.pace.monotonic_s()
        return now_s - self._good_s >= AWAY_S or now_s - self._back_s < AWAY_S

    @property
    def cycle_interval_s(self) -> float:
        """Return the seconds from the start of one cycle to the start of the next.

        The interval is longer while the cluster is busy, and doubles with each consecutive failed cycle, up to a bound.
        """
        interval_s = self.settings.interval_s
        backoff_s = Backoff(interval_s, self.settings.max_backoff_s).delay_s(self._failed) if self._failed else 0.0
        return max(interval_s * self._times, backoff_s)

    def wait(self) -> bool:
        """Wait until the next cycle is due or a trigger file changes. Return False if the loop must end."""
        self._due_s = self._began_s + self.cycle_interval_s
        left_s = self._due_s - self.pace.monotonic_s()
        wakes = bool(self.settings.trigger_files) and not self._failed and self._times == 1.0
        soonest_s = self._due_s - self.settings.interval_s + min(WAKE_AFTER_S, self.settings.interval_s)
        slice_s = _LOOK_S if wakes else _SLICE_S
        since_sign_s = _SLICE_S
        while True:
            if since_sign_s >= _SLICE_S:
                self.systemd.notify("WATCHDOG=1")
                since_sign_s = 0.0
            waited_s = max(0.0, min(left_s, slice_s))
            if not self.pace.wait(waited_s):
                return False
            left_s -= waited_s
            since_sign_s += waited_s
            if wakes and self._signatures() != self._files:
                left_s, wakes, slice_s = min(left_s, max(_LOOK_S, soonest_s - self.pace.monotonic_s())), False, _SLICE_S
            elif left_s <= 0:
                return True

    def _signatures(self) -> list[Signature | None]:
        return [_signature(path) for path in self.settings.trigger_files]


def _signature(path: Path) -> Signature | None:
    """Return a file's inode, size and modification time; None if it does not exist or cannot be read."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
