"""Record when a bridge's last cycle succeeded.

The heartbeat file is touched after every successful cycle. The dead-man timer and administrators read it. During
start-up (imports, compilation), the bridge also touches the file while jobs may still be held by an earlier run. The
dead-man script uses the file's modification time. Because the wall clock may be changed, the file also contains the
time since boot, which cannot be changed. `read_heartbeat_file_age_s` prefers the time since boot.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from cpsched_bridge.store.corruption_checks import compute_row_checksum, read_file_head

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TOUCH_TOLERANCE_S = 2.0
"""Maximum difference in seconds between the modification time and the stored time of one touch."""


@dataclass(slots=True)
class Heartbeat:
    """A running bridge's heartbeat.

    If writes fail for `grace_s` seconds, the bridge must hold no jobs.
    """

    path: Path
    grace_s: float = 60.0
    _since_s: float | None = None
    _error: str = ""

    def beat(self, monotonic_s: float) -> None:
        """Touch the file. Raise `OSError` on failure."""
        try:
            touch_heartbeat(self.path)
        except OSError as error:
            self._since_s = monotonic_s if self._since_s is None else self._since_s
            self._error = error.strerror or str(error)
            raise
        self._since_s = None

    def missing_beat_reason(self, monotonic_s: float) -> str | None:
        """Return why the bridge must not hold jobs, or None.

        The dead-man timer needs a recent heartbeat.
        """
        if self._since_s is None or monotonic_s - self._since_s < self.grace_s:
            return None
        return f"the heartbeat {self.path} cannot be written: {self._error}"


def touch_heartbeat(path: Path) -> None:
    """Set the file's modification time to now, and write the time since boot.

    On a full disk, set only the modification time.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC  # fail on a pipe instead of blocking
    file = os.open(path, flags, 0o644)  # the file contains no names of users or jobs
    try:
        try:
            text = f"{read_boot_id()} {_get_uptime_s():015.3f} {time.time():017.3f}"
            os.pwrite(file, f"{text} {compute_row_checksum(text.split()):010d}\n".encode(), 0)
        except OSError:  # the disk is full, but setting the modification time needs no space
            os.utime(file)
    finally:
        os.close(file)


def read_heartbeat_file_age_s(path: Path) -> float | None:
    """Return the seconds since the last successful cycle, or None if there was none.

    The result is negative if the file's modification time is in the future. Use the time since boot if the file was
    written since the last boot, and the modification time otherwise. Raise `OSError` if the file is not accessible.
    """
    try:
        wall_s = path.stat().st_mtime
    except FileNotFoundError:
        return None
    try:
        words = read_file_head(path, 256).decode(errors="replace").split()
    except OSError:  # the modification time suffices
        words = []
    try:
        *fields, seal = words
        id, since_boot_s, unix_s = fields
        if (
            int(seal) == compute_row_checksum(fields)
            and id == read_boot_id()
            and abs(float(unix_s) - wall_s) < _TOUCH_TOLERANCE_S
        ):
            return max(0.0, _get_uptime_s() - float(since_boot_s))
    except ValueError:
        pass
    return time.time() - wall_s


def read_boot_id() -> str:
    """Return an id that changes with each boot, or "" if the host has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _get_uptime_s() -> float:
    """Return the seconds since the host booted, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
