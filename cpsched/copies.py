"""Whether the three packages that are imported are those of one installation."""

from __future__ import annotations

import os
import sys
import warnings

_BELOW = ("", "sim", "bridge")
"""Where the packages lie below the folder of `cpsched`: installed, and in the repository."""


def check_copies(file: str) -> None:
    """Warn if the package whose `__init__` is `file` and `cpsched` are of two installations, as in a clone's folder."""
    core, other = _folder_of(sys.modules["cpsched"].__file__ or ""), _folder_of(file)
    if other not in (os.path.normpath(os.path.join(core, below)) for below in _BELOW):
        words = f"two copies of cpsched are mixed: cpsched is imported from {core}, another package of it from {other}"
        warnings.warn(f"{words}. Run in another folder, or install one copy.", RuntimeWarning, stacklevel=1)


def _folder_of(file: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(file)))
