"""Manage the bridge's small files: the lock, requests, and the start-up step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple

from cpsched_bridge.errors import AlreadyRunning
from cpsched_bridge.store.corruption_checks import (
    CorruptFileContent,
    convert_content_errors,
    read_file_head,
    rows_to_dataclasses,
)
from cpsched_bridge.store.sqlite_files import OWNER_ONLY


class InstanceLock:
    """A lock that the process holds until it ends.

    The kernel releases it even if the process is killed. Locking needs no free disk space. The process id in the file
    is for information only.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
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
        """Release the lock."""
        os.close(self._file)


_MAX_BYTES = 65_536
"""Maximum number of bytes read from a small file, in case a large file replaced it."""
_DEFAULT_REASON = "paused"
"""Reason for a pause if the file does not contain a reason."""


class PauseFile:
    """The file that pauses the bridge and contains the reason.

    It survives a restart, and any tool can write it.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "paused"

    def read_reason(self) -> str | None:
        """Return why the bridge is paused, or None if it is not.

        An unreadable file counts as a pause.
        """
        try:
            words = read_file_head(self._path, _MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        try:
            with convert_content_errors():
                return str(json.loads(words)["why"])
        except CorruptFileContent:
            return _DEFAULT_REASON

    def read_age_s(self) -> float | None:
        """Return how many seconds ago the bridge was paused, or None if it is not paused or this is unknown."""
        try:
            return max(0.0, time.time() - self._path.stat().st_mtime)
        except OSError:
            return None

    def pause(self, why: str) -> None:
        """Pause the bridge from the next cycle. Raise `OSError`.

        On a full disk, write an empty file, which also pauses the bridge.
        """
        try:
            replace_file(self._path, json.dumps({"why": why}).encode())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            with contextlib.suppress(OSError):
                _get_draft_path(self._path).unlink()
            self._path.touch(OWNER_ONLY)

    def resume(self) -> bool:
        """Resume the bridge from the next cycle. Return False if it was not paused."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


class TakeLeadershipFile:
    """The file that requests that this bridge take control from any other bridge."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "take-over"

    def request(self) -> None:
        """Request a takeover in the next cycle. Raise `OSError` on failure."""
        self._path.touch(OWNER_ONLY)

    def consume_request(self) -> bool:
        """Return whether a takeover has been requested since the last call."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


ForgetKind = Literal["job", "user"]


class ForgetRequest(NamedTuple):
    """A request to forget what the bridge remembers against a job or user."""

    kind: ForgetKind
    name: str
    """The job's id or label, or the user's name."""


class ForgetFile:
    """The file of requests to forget, one per line."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "forget"

    def request(self, request: ForgetRequest) -> None:
        """Add a request for the next cycle. Raise `OSError` on failure."""
        with open(self._path, "a", opener=_open_for_owner) as file:
            file.write(json.dumps(request) + "\n")

    def consume_requests(self) -> list[ForgetRequest]:
        """Return the requests since the last call. Ignore unreadable lines and disk errors."""
        taken = self._path.with_suffix(".taken")
        try:
            self._path.replace(taken)
            lines = read_file_head(taken, _MAX_BYTES).decode(errors="replace").splitlines()
            taken.unlink()
        except OSError:
            return []
        requests = list[ForgetRequest]()
        for line in lines:
            with contextlib.suppress(CorruptFileContent), convert_content_errors():
                requests.append(ForgetRequest(*json.loads(line)))
        return requests


@dataclass(frozen=True, slots=True)
class RememberedFact:
    """Something that the bridge remembers against a job, user or group."""

    subject: str
    """The job, user or group, as text."""
    fact: str
    """How the bridge treats it, and why."""
    since_unix_s: float

    @property
    def age_s(self) -> float:
        """Time in seconds for which this has been so."""
        return max(0.0, time.time() - self.since_unix_s)


class MemoryFile:
    """The file that shows what the running bridge remembers, for `cpsched status` and `cpsched doctor`."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "remembered"
        self._written: Sequence[RememberedFact] | None = None

    def write(self, facts: Sequence[RememberedFact]) -> None:
        """Write the facts if they have changed. Ignore disk errors."""
        if facts == self._written:
            return
        with contextlib.suppress(OSError):
            replace_file(self._path, json.dumps(list(map(asdict, facts))).encode())
            self._written = facts

    def read(self) -> list[RememberedFact]:
        """Return the facts as last written, or none if the file is missing or damaged."""
        try:
            with convert_content_errors():
                return [RememberedFact(**fact) for fact in json.loads(self._path.read_bytes())]
        except (OSError, CorruptFileContent):
            return []


@dataclass(frozen=True, slots=True)
class LeadershipStatus:
    """Which bridge leads, and what happens if it dies, as of a bridge's last cycle. Times are Unix times in seconds."""

    leader: str
    """Host and state directory of the leader, or empty if no bridge leads."""
    is_here: bool
    since_unix_s: float
    """Time since which this bridge process has seen this leader."""
    other: str
    """Host and state directory of the bridge at the other end of the link, or empty if none has been heard."""
    heard_unix_s: float | None
    """Time of the other bridge's last message."""
    takeover_s: float
    """Seconds after the leader's last sign of life at which another bridge takes over."""
    epoch: int
    """The largest epoch of a lease that this bridge has seen or written."""


class LeadershipFile:
    """The file that shows which bridge leads, for `cpsched status` and the bridge's next process."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "leadership"

    def write(self, status: LeadershipStatus) -> None:
        """Write the status. Ignore disk errors."""
        with contextlib.suppress(OSError):
            replace_file(self._path, json.dumps(asdict(status)).encode())

    def read(self) -> LeadershipStatus | None:
        """Return the status as last written, or None if the file is missing or damaged."""
        try:
            with convert_content_errors():
                stored = json.loads(read_file_head(self._path, _MAX_BYTES))
                values = [stored[field.name] for field in fields(LeadershipStatus)]
                return rows_to_dataclasses(LeadershipStatus, [values])[0]
        except (OSError, CorruptFileContent):
            return None


class StartupProgressFile:
    """The file with the bridge's start-up step, for `cpsched status`.

    A killed bridge does not remove the file.
    """

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "beginning"

    def write_step(self, step: str) -> None:
        """Write the current step. An empty step deletes the file. Ignore disk errors."""
        with contextlib.suppress(OSError):
            if not step:
                self._path.unlink(missing_ok=True)
                return
            replace_file(self._path, step.encode())

    def read_step(self) -> tuple[str, float] | None:
        """Return the last step and its age in seconds, or None if no step is recorded."""
        try:
            step = read_file_head(self._path, _MAX_BYTES).decode(errors="replace")
            return step, max(0.0, time.time() - self._path.stat().st_mtime)
        except OSError:
            return None


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically. Only its owner can read it. Raise `OSError`, with the file unchanged."""
    draft = _get_draft_path(path)
    with open(draft, "wb", opener=_open_for_owner) as file:
        file.write(content)
    draft.replace(path)


def _get_draft_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, OWNER_ONLY)
