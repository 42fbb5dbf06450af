"""Load a package's public names on first use (PEP 562), and check that all packages come from the same installation."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

_VERSION = "__version__"


def lazy_attributes(
    package: dict[str, Any], home_of: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package with lazy public names.

    `package` contains the package's globals, and `home_of` the module of each public name. `__version__` is the version
    of the distribution. `__dir__` omits the package's own imports.
    """

    def load_public_name(name: str) -> Any:
        if name == _VERSION:
            package[name] = version("cpsched")
            return package[name]
        if name not in home_of:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        found = package[name] = getattr(import_module(home_of[name]), name)
        return found

    return load_public_name, lambda: sorted({_VERSION, *home_of, *(name for name in package if name.startswith("__"))})


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
