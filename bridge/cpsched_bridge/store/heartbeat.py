"""The bridge's sign of life, for the dead-man timer and for people: a file touched after every good cycle.

A bridge that begins (imports, compiles) touches it as well, for as long as it may keep what a former run held.

The dead-man script goes by the file's time. Clocks are set, so the file also holds the time since the host booted, a
clock that nobody sets: `age_s` goes by that where it can.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from cpsched_bridge.store.corruption import read_head, row_checksum

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SAME_TOUCH_S = 2.0
"""The file's time and the time written in it belong to one touch if they are that close."""


@dataclass(slots=True)
class Heartbeat:
    """The heartbeat of a running bridge; `grace_s` is how long it may fail to be written."""

    path: Path
    grace_s: float = 60.0
    _since_s: float | None = None
    _error: str = ""

    def beat(self, monotonic_s: float) -> None:
        """Touch the file. Raises `OSError` where that fails."""
        try:
            touch(self.path)
        except OSError as error:
            self._since_s = monotonic_s if self._since_s is None else self._since_s
            self._error = error.strerror or str(error)
            raise
        self._since_s = None

    def trouble(self, monotonic_s: float) -> str | None:
        """Why the bridge must not hold jobs: nobody sees that it lives, so the dead-man timer will release them."""
        if self._since_s is None or monotonic_s - self._since_s < self.grace_s:
            return None
        return f"the heartbeat {self.path} cannot be written: {self._error}"


def touch(path: Path) -> None:
    """Give the file the present time, and write the host's own clock into it where there is room for that."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in its place is an error, not a wait
    file = os.open(path, flags, 0o644)  # there are no names in it
    try:
        try:
            words = f"{boot_id()} {_boot_s():015.3f} {time.time():017.3f}"
            os.pwrite(file, f"{words} {row_checksum(words.split()):010d}\n".encode(), 0)
        except OSError:  # a full disk: the file's time needs no room
            os.utime(file)
    finally:
        os.close(file)


def age_s(path: Path) -> float | None:
    """Seconds since the last good cycle; None if there never was one. Negative: the file's time is in the future.

    The clock that runs since the host booted counts, if the file was written since then; else the file's time. Raises
    `OSError` where it may not be looked at.
    """
    try:
        wall_s = path.stat().st_mtime
    except FileNotFoundError:
        return None
    try:
        words = read_head(path, 256).decode(errors="replace").split()
    except OSError:  # its time is enough
        words = []
    try:
        *said, seal = words
        id, since_boot_s, unix_s = said
        if int(seal) == row_checksum(said) and id == boot_id() and abs(float(unix_s) - wall_s) < _SAME_TOUCH_S:
            return max(0.0, _boot_s() - float(since_boot_s))
    except ValueError:
        pass
    return time.time() - wall_s


def boot_id() -> str:
    """A text that is another one after each boot; empty where the host does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _boot_s() -> float:
    """Seconds since the host booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
