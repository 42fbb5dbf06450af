"""Whether the files that a case reads are still those of which its study took the digests.

A trace is held against its digest where it is read; here are system files, site policies, files that settings name, and
the source of plug-ins, which a study that runs for hours may outlive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from cpsched.errors import CpschedError
from cpsched_sim.errors import SimError
from cpsched_sim.files import sha256_of
from cpsched_sim.site.policy_file import load_policy
from cpsched_sim.study.code import code_of_plugin
from cpsched_sim.systems.system import load_system


def digest_of_system(path: str) -> str:
    """The digest of what a system file says, whatever its layout. Raises what `load_system` raises."""
    return hashlib.sha256(load_system(path).model_dump_json().encode()).hexdigest()


DIGESTS: Mapping[str, Callable[[str], str]] = {
    "system": digest_of_system,
    "policy": lambda path: load_policy(Path(path)).sha256,
    "file": lambda path: sha256_of(Path(path)),
    "plugin": code_of_plugin,
}
"""Kind -> the digest of the file of that path, or of the plug-in of that module."""


def changed(read: Mapping[str, Mapping[str, str]]) -> str | None:
    """The first of the files (by kind: path -> digest) that has another digest now, or is gone; None: none has."""
    for kind, files in read.items():
        for path, digest in files.items():
            try:
                now = DIGESTS[kind](path)
            except (CpschedError, SimError, OSError, SyntaxError):
                return path
            if now != digest:
                return path
    return None
