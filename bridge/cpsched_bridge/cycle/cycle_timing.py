"""Schedule cycles: later after failures or under load, and sooner after triggers.

The pause between two cycles is split into short waits, with a keep-alive to systemd after each.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from cpsched_bridge.cycle.backoff import ExponentialBackoff
from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.loop_clock import LoopClock
from cpsched_bridge.cycle_report import LATE_INTERVALS, OK_RESULT
from cpsched_bridge.settings import CycleSettings
from cpsched_bridge.telemetry.loop_health import SystemdNotifier

INTERRUPTED_S = 60.0
"""Seconds without a successful cycle until the dead-man timer may release jobs, and the release's maximum duration."""
_KEEP_ALIVE_INTERVAL_S = 5.0
"""Maximum wait in seconds without a keep-alive to systemd."""
_MAX_READING_SHARE = 0.5
"""Maximum share of time spent reading the cluster, so that users' requests get the other half."""
MIN_TRIGGERED_INTERVAL_S = 1.0
"""Minimum seconds from the start of a cycle to a triggered cycle. A shorter interval takes precedence."""
_TRIGGER_POLL_S = 0.1
"""Seconds between checks of the trigger files."""
_MIN_REPORTED_FACTOR = 2.0
"""Multiple of the interval above which a longer pause is reported as an event."""

Signature = tuple[int, int, int]


@dataclass(slots=True)
class CycleTiming:
    """The start times of cycles, which depend on failures and the cluster's load."""

    settings: CycleSettings
    pace: LoopClock
    systemd: SystemdNotifier
    heartbeat_age_s: float | None = 0.0
    """Seconds since the previous bridge's last successful cycle, or None if none is known."""
    _failed: int = field(default=0, init=False)
    _interval_factor: float = field(default=1.0, init=False)
    """Current pause as a multiple of the interval, according to the cluster's load."""
    is_slowed: bool = field(default=False, init=False)
    """Whether cycles are slower than configured because the cluster is busy."""
    gap_s: float = field(default=0.0, init=False)
    """Delay in seconds with which this cycle began, or 0 if the delay is small."""
    _began_s: float = field(default=0.0, init=False)
    _due_s: float = field(default=math.inf, init=False)
    """Monotonic time, like all times in this class, at which the next cycle should start."""
    _last_success_s: float = field(init=False)
    """Time at which the last successful cycle ended."""
    _recovered_s: float = field(default=-math.inf, init=False)
    """Time at which the first successful cycle after the last long interruption ended."""
    _files: list[Signature | None] = field(default_factory=list, init=False)
    """The trigger files at the start of the last cycle."""

    def __post_init__(self) -> None:
        age_s = math.inf if self.heartbeat_age_s is None else abs(self.heartbeat_age_s)
        self._last_success_s = self.pace.monotonic_s() - age_s

    def begin(self, recorder: CycleRecorder) -> None:
        """Begin a cycle before its observation is made, and report a late start."""
        self._files = self._read_trigger_file_signatures()
        self._began_s = self.pace.monotonic_s()
        late_s = self._began_s - self._due_s
        self.gap_s = late_s if late_s > LATE_INTERVALS * self.settings.interval_s else 0.0
        if self.gap_s:
            recorder.add_event("cycle_gap", f"this cycle began {late_s:.1f} s late")

    def update_interval_by_load(self, busy: str, recorder: CycleRecorder) -> None:
        """Update the load after a cycle that has read the cluster, and report changes to the pause.

        The pause doubles after each `busy` observation and halves after any other. Reading takes at most half of the
        pause, unless `max_interval_factor` limits the pause.
        """
        interval_s, reading_s = self.settings.interval_s, recorder.seconds.get("observe", 0.0)
        by_reading = reading_s / (_MAX_READING_SHARE * interval_s)
        by_load = self._interval_factor * (2.0 if busy else 0.5)
        self._interval_factor = max(1.0, min(self.settings.max_interval_factor, max(by_reading, by_load)))
        least_reported = min(_MIN_REPORTED_FACTOR, self.settings.max_interval_factor)
        if not self.is_slowed and self._interval_factor >= least_reported > 1.0:
            self.is_slowed = True
            why = busy or f"reading the cluster took {reading_s:.1f} s"
            recorder.add_event(
                "interval_extended", f"one cycle every {self._interval_factor * interval_s:.3g} s: {why}"
            )
        elif self.is_slowed and self._interval_factor == 1.0:
            self.is_slowed = False
            recorder.add_event("interval_restored", f"one cycle every {interval_s:.3g} s again")

    def end(self, result: str) -> None:
        """End a cycle after its result is known."""
        now_s = self.pace.monotonic_s()
        self._failed = 0 if result == OK_RESULT else self._failed + 1
        if not self._failed:
            if now_s - self._last_success_s >= INTERRUPTED_S:
                self._recovered_s = now_s
            self._last_success_s = now_s

    @property
    def may_dead_man_have_released_jobs(self) -> bool:
        """Whether the dead-man timer may have released a job that was found released."""
        now_s = self.pace.monotonic_s()
        return now_s - self._last_success_s >= INTERRUPTED_S or now_s - self._recovered_s < INTERRUPTED_S

    @property
    def cycle_interval_s(self) -> float:
        """Seconds from the start of one cycle to the start of the next.

        It is longer while the cluster is busy, and doubles with each consecutive failed cycle, up to a maximum.
        """
        interval_s = self.settings.interval_s
        backoff_s = (
            ExponentialBackoff(interval_s, self.settings.max_backoff_s).delay_s(self._failed) if self._failed else 0.0
        )
        return max(interval_s * self._interval_factor, backoff_s)

    def wait(self) -> bool:
        """Wait until the next cycle is due or triggered. Return False at the loop's end."""
        self._due_s = self._began_s + self.cycle_interval_s
        left_s = self._due_s - self.pace.monotonic_s()
        wakes = bool(self.settings.trigger_files) and not self._failed and self._interval_factor == 1.0
        silent_s = _KEEP_ALIVE_INTERVAL_S
        while True:
            if silent_s >= _KEEP_ALIVE_INTERVAL_S:
                self.systemd.notify("WATCHDOG=1")
                silent_s = 0.0

            waited_s = max(0.0, min(left_s, _TRIGGER_POLL_S if wakes else _KEEP_ALIVE_INTERVAL_S))
            if not self.pace.wait(waited_s):
                return False
            # The clock is not read, because a simulated clock does not wait in real time.
            left_s -= waited_s
            silent_s += waited_s

            if wakes and self._read_trigger_file_signatures() != self._files:
                wakes = False
                soonest_s = self._began_s + MIN_TRIGGERED_INTERVAL_S
                left_s = min(left_s, max(_TRIGGER_POLL_S, soonest_s - self.pace.monotonic_s()))
            elif left_s <= 0:
                return True

    def _read_trigger_file_signatures(self) -> list[Signature | None]:
        return [_read_file_signature(path) for path in self.settings.trigger_files]


def _read_file_signature(path: Path) -> Signature | None:
    """Return a file's inode, size and modification time, or None if it cannot be read."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
