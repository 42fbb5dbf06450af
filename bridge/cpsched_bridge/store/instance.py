"""Two small files about the process: a lock, so that one bridge runs at a time, and the word to stand down."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from pathlib import Path

from cpsched_bridge.errors import AlreadyRunning


class InstanceLock:
    """Held for the life of the process; the kernel lets go of it when the process dies, however it dies.

    Needs no byte of free space: the number of the process in the file is for people.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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


class PauseFile:
    """Whether the bridge stands down, and why. A file outlives the bridge, and any tool can write it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def reason(self) -> str | None:
        """Why the bridge stands down; None if it does not. An unreadable file counts as paused."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        except UnicodeDecodeError:
            return "paused"
        try:
            return str(json.loads(text)["why"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return "paused"

    def pause(self, why: str) -> None:
        """Stand down from the next cycle on. Raises `OSError`, but not for lack of space: an empty file pauses, too."""
        draft = self._path.with_suffix(".new")
        try:
            draft.write_text(json.dumps({"why": why}))
            draft.replace(self._path)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            with contextlib.suppress(OSError):
                draft.unlink()
            self._path.touch()

    def resume(self) -> bool:
        """Work again from the next cycle on; False if it was not paused."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True
