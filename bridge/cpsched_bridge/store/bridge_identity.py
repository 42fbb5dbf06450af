"""Manage the bridge's name, which is stored in its state directory and is not valid in a copy of the directory.

The bridge writes its name to the cluster, so that two bridges can recognise each other. A state directory that was
copied to another path or host, or restored from a backup, would give two bridges the same name. Therefore, the file
also contains its origin (host, path and inode). If the origin does not match, a new name is created.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from cpsched_bridge.ports import Lease
from cpsched_bridge.store.corruption import CorruptFileContent, raise_as_corrupt, read_head
from cpsched_bridge.store.sqlite_files import OWNERS_ALONE

NAME = "bridge-id"
"""Name of the file in the state directory."""
_LONGEST = 16_384
"""Maximum size of the file in bytes; a path has at most 4,096."""


def make_lease(state_dir: Path) -> Lease:
    """Return a lease, before its first renewal, for a new process of the bridge with this state directory."""
    return Lease(ensure_bridge_name(state_dir), secrets.token_hex(4), 0, f"{_host()}:{state_dir.absolute()}")


def ensure_bridge_name(state_dir: Path) -> str:
    """Return the bridge's name, creating one if necessary. If it cannot be stored, it is valid only for this call."""
    return read_bridge_name(state_dir) or _made(state_dir / NAME)


def read_bridge_name(state_dir: Path) -> str | None:
    """Return the stored name, or None if there is no valid name."""
    path = state_dir / NAME
    try:
        with raise_as_corrupt():
            found = json.loads(read_head(path, _LONGEST))
            return str(found["bridge"]) if found["made"] == _place(path, path.stat().st_ino) else None
    except (OSError, CorruptFileContent):
        return None


def _made(path: Path) -> str:
    name, draft = secrets.token_hex(4), path.with_suffix(".new")
    with contextlib.suppress(OSError):
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNERS_ALONE)
        with open(file, "w") as opened:
            json.dump({"bridge": name, "made": _place(path, os.fstat(file).st_ino)}, opened)
        draft.replace(path)
    return name


def _place(path: Path, inode: int) -> list[str | int]:
    return [_host(), str(path.absolute()), inode]


def _host() -> str:
    return os.uname().nodename
