"""Small files of the process: a lock for one bridge at a time, requests to it, and its start-up."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from pathlib import Path

from cpsched_bridge.errors import AlreadyRunning
from cpsched_bridge.store.corruption import CorruptFileContent, raise_as_corrupt, read_head
from cpsched_bridge.store.sqlite_files import OWNERS_ALONE


class InstanceLock:
    """A lock for the life of the process; the kernel releases it when the process ends in any way.

    It needs no free space: the process number in the file is for people.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNERS_ALONE)
        except OSError:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # the disk is read-only
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise AlreadyRunning(f"{path}: another bridge (process {owner or 'unknown'}) holds this lock") from None
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go."""
        os.close(self._file)


_LONGEST = 65_536
"""Maximum number of bytes read from a small file, whatever replaces it."""
_PAUSED = "paused"
"""Reason of a pause if the file contains none."""


class PauseFile:
    """Whether the bridge is paused, and why. The file outlives the bridge, and any tool can write it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_reason(self) -> str | None:
        """Return why the bridge is paused, or None. An unreadable file counts as a pause."""
        try:
            words = read_head(self._path, _LONGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        try:
            with raise_as_corrupt():
                return str(json.loads(words)["why"])
        except CorruptFileContent:
            return _PAUSED

    def pause(self, why: str) -> None:
        """Pause from the next cycle. Raise `OSError`, but not for lack of space: an empty file pauses, too."""
        draft = self._path.with_suffix(".new")
        try:
            with open(draft, "w", opener=_for_the_owner) as file:
                file.write(json.dumps({"why": why}))
            draft.replace(self._path)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            with contextlib.suppress(OSError):
                draft.unlink()
            self._path.touch(OWNERS_ALONE)

    def resume(self) -> bool:
        """Resume from the next cycle. Return False if the bridge was not paused."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


class TakeLeadershipFile:
    """An operator's request that this bridge take control from any other bridge."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "take-over"

    def request(self) -> None:
        """Let the bridge take over in its next cycle. Raise `OSError`."""
        self._path.touch(OWNERS_ALONE)

    def consume_request(self) -> bool:
        """Whether a takeover was requested since the last call."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


class StartupFile:
    """The bridge's start-up step, for `cpsched status`. A killed bridge leaves the file, with its age."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_step(self, words: str) -> None:
        """Write the step; empty text: done. A failing disk does not prevent the start-up."""
        with contextlib.suppress(OSError):
            if not words:
                self._path.unlink(missing_ok=True)
                return
            draft = self._path.with_suffix(".new")
            with open(draft, "w", opener=_for_the_owner) as file:
                file.write(words)
            draft.replace(self._path)

    def read_step(self) -> tuple[str, float] | None:
        """Return the last step and its age in seconds; None if no bridge is starting."""
        try:
            words = read_head(self._path, _LONGEST).decode(errors="replace")
            return words, max(0.0, time.time() - self._path.stat().st_mtime)
        except OSError:
            return None


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, OWNERS_ALONE)
