"""Files whose change says that something has happened on the cluster: a job was submitted, a job has ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Signature = tuple[int, int, int]


@dataclass(slots=True)
class WakeFiles:
    """Compares files by inode, size and time of change; one that is not there, or cannot be looked at, is one state."""

    paths: Sequence[Path]
    _known: list[Signature | None] = field(default_factory=list)

    def remember(self) -> None:
        """Take the files as they are now for what is known."""
        self._known = [_signature(path) for path in self.paths]

    def changed(self) -> bool:
        """Whether any of them is another than at the last `remember`."""
        return [_signature(path) for path in self.paths] != self._known


def _signature(path: Path) -> Signature | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
