"""Check that the imported packages come from the same installation."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE_ROOTS = ("", "sim", "bridge")
"""Paths of the other packages relative to `cpsched`, both installed and in the repository."""


def warn_if_installations_differ(file: str) -> None:
    """Warn if `cpsched` and another package come from different installations.

    `file` is the path of the other package's `__init__`.
    """
    core, other = _installation_folder(sys.modules["cpsched"].__file__ or ""), _installation_folder(file)
    if other not in (os.path.normpath(os.path.join(core, below)) for below in _PACKAGE_ROOTS):
        text = f"two copies of cpsched are mixed: cpsched is from {core}, another package from {other}"
        warnings.warn(f"{text}. Run in another directory, or install only one copy.", RuntimeWarning, stacklevel=1)


def _installation_folder(file: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.realpath(file)))
