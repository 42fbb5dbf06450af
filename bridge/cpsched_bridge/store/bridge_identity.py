"""Who this bridge is: a name that its state directory keeps, and that a copy of the directory does not inherit.

The name is what a bridge leaves on the cluster, so that two bridges see each other. A state directory that is copied to
another place or host, or restored there from a backup, would give one name to two bridges. So the file also holds where
it was made (host, path and inode): read anywhere else, it is void, and another name is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from cpsched_bridge.ports import Lease
from cpsched_bridge.store.corruption import CorruptContent, read_head, reading_content
from cpsched_bridge.store.sqlite_files import OWNERS_ALONE

NAME = "bridge-id"
"""The file in the state directory."""
_LONGEST = 16_384
"""Bytes; a path has at most 4,096."""


def lease_of(state_dir: Path) -> Lease:
    """The claim of a new process of the bridge with this state directory, before its first beat."""
    return Lease(bridge_name(state_dir), secrets.token_hex(4), 0, f"{_host()}:{state_dir.absolute()}")


def bridge_name(state_dir: Path) -> str:
    """The bridge's name, made now where there is none that counts; where the disk takes none, it is for this call."""
    return known_bridge_name(state_dir) or _made(state_dir / NAME)


def known_bridge_name(state_dir: Path) -> str | None:
    """The name that the directory keeps; None where there is none that counts."""
    path = state_dir / NAME
    try:
        with reading_content():
            found = json.loads(read_head(path, _LONGEST))
            return str(found["bridge"]) if found["made"] == _place(path, path.stat().st_ino) else None
    except (OSError, CorruptContent):
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
