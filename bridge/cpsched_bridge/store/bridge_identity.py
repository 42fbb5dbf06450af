"""Identify the bridge that a state directory belongs to.

The bridge writes its name to the cluster so that two bridges can distinguish each other. A state directory that was
copied to another path or host, or restored from a backup, would give two bridges the same name. The file therefore also
contains its origin (host, path and inode). If the origin does not match, the bridge creates a new name.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path

from cpsched_bridge.ports import Lease
from cpsched_bridge.store.corruption_checks import CorruptFileContent, convert_content_errors, read_file_head
from cpsched_bridge.store.sqlite_files import OWNER_ONLY

IDENTITY_FILE = "bridge-id"
"""Name of the file in the state directory."""
_MAX_BYTES = 16_384
"""Maximum size of the file in bytes. A path has at most 4,096 bytes."""


def make_lease(state_dir: Path, started_s: float, last_epoch: int = 0) -> Lease:
    """Return a new bridge process's lease, not yet renewed, for a state directory.

    Its first epoch is the start in Unix seconds, so that epochs also increase if the lease on the cluster is lost. It
    exceeds `last_epoch`, so that they increase even if the clock was also set back.
    """
    where = f"{_get_host_name()}:{state_dir.absolute()}"
    return Lease(ensure_bridge_name(state_dir), secrets.token_hex(4), 0, where, max(int(started_s), last_epoch + 1))


def ensure_bridge_name(state_dir: Path) -> str:
    """Return the bridge's name, creating it if necessary.

    If the name cannot be stored, it is valid only for this call.
    """
    return read_bridge_name(state_dir) or _create_name(state_dir / IDENTITY_FILE)


def read_bridge_name(state_dir: Path) -> str | None:
    """Return the stored name, or None if there is no valid name."""
    path = state_dir / IDENTITY_FILE
    try:
        with convert_content_errors():
            found = json.loads(read_file_head(path, _MAX_BYTES))
            return (
                str(found["bridge"]) if found["made"] == _get_identity_file_origin(path, path.stat().st_ino) else None
            )
    except (OSError, CorruptFileContent):
        return None


def _create_name(path: Path) -> str:
    name, draft = secrets.token_hex(4), path.with_suffix(".new")
    with contextlib.suppress(OSError):
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
        with open(file, "w") as opened:
            json.dump({"bridge": name, "made": _get_identity_file_origin(path, os.fstat(file).st_ino)}, opened)
        draft.replace(path)
    return name


def _get_identity_file_origin(path: Path, inode: int) -> list[str | int]:
    return [_get_host_name(), str(path.absolute()), inode]


def _get_host_name() -> str:
    return os.uname().nodename
