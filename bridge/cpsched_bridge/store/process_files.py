"""Small files about the process: a lock, so that one bridge runs at a time, words to it, and how it begins."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from pathlib import Path

from cpsched_bridge.errors import AlreadyRunning
from cpsched_bridge.store.corruption import CorruptContent, read_head, reading_content
from cpsched_bridge.store.sqlite_files import OWNERS_ALONE


class InstanceLock:
    """Held for the life of the process; the kernel lets go of it when the process dies, however it dies.

    Needs no byte of free space: the number of the process in the file is for people.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNERS_ALONE)
        except OSError:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a disk that is read-only
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
"""Bytes that are read of a small file, whatever somebody puts in its place."""
_PAUSED = "paused"
"""Why the bridge stands down, where the file does not say."""


class PauseFile:
    """Whether the bridge stands down, and why. A file outlives the bridge, and any tool can write it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def reason(self) -> str | None:
        """Why the bridge stands down; None if it does not. An unreadable file counts as paused."""
        try:
            words = read_head(self._path, _LONGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        try:
            with reading_content():
                return str(json.loads(words)["why"])
        except CorruptContent:
            return _PAUSED

    def pause(self, why: str) -> None:
        """Stand down from the next cycle on. Raises `OSError`, but not for lack of space: an empty file pauses, too."""
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
        """Work again from the next cycle on; False if it was not paused."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


class TakeLeadershipFile:
    """Somebody's word that this bridge is to take control of the cluster, whichever bridge has it now."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "take-over"

    def ask(self) -> None:
        """Have the bridge take over in its next cycle. Raises `OSError`."""
        self._path.touch(OWNERS_ALONE)

    def taken(self) -> bool:
        """Whether somebody has asked since this was last called."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


class StartupFile:
    """What a bridge does before it decides, for `cpsched status`. One that was killed leaves the file, with its age."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tell(self, words: str) -> None:
        """Write it down; empty words: it is over. A disk that takes nothing keeps no bridge from beginning."""
        with contextlib.suppress(OSError):
            if not words:
                self._path.unlink(missing_ok=True)
                return
            draft = self._path.with_suffix(".new")
            with open(draft, "w", opener=_for_the_owner) as file:
                file.write(words)
            draft.replace(self._path)

    def told(self) -> tuple[str, float] | None:
        """What was written last, and how many seconds ago; None where no bridge begins."""
        try:
            words = read_head(self._path, _LONGEST).decode(errors="replace")
            return words, max(0.0, time.time() - self._path.stat().st_mtime)
        except OSError:
            return None


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, OWNERS_ALONE)
