"""Check that the imported packages come from one installation."""

from __future__ import annotations

import os
import sys
import warnings

_BELOW = ("", "sim", "bridge")
"""Paths of the packages relative to the folder of `cpsched`, when installed and in the repository."""


def check_copies(file: str) -> None:
    """Warn if `cpsched` and the package whose `__init__` is `file` come from different installations."""
    core, other = _folder_of(sys.modules["cpsched"].__file__ or ""), _folder_of(file)
    if other not in (os.path.normpath(os.path.join(core, below)) for below in _BELOW):
        words = f"two copies of cpsched are mixed: cpsched is from {core}, another package from {other}"
        warnings.warn(f"{words}. Run in another directory, or install only one copy.", RuntimeWarning, stacklevel=1)


def _folder_of(file: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(file)))
