"""Keys of stored results. Equal keys mean equal inputs and equal code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cpsched.errors import CpschedError
from cpsched_sim.clairvoyant_predictors import SIMULATION_REGISTRIES
from cpsched_sim.file_io import file_sha256

OWN_PACKAGES = ("cpsched", "cpsched_sim")
LIBRARIES = ("ortools",)
"""Libraries whose versions may affect decisions."""


def compute_result_key(inputs: Mapping[str, Any]) -> str:
    """Return the key for these inputs: 32 hexadecimal digits of their digest."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


@cache
def code_digest() -> str:
    """Return a digest of the simulator's source files and of library versions.

    The libraries are `LIBRARIES`. The project's own version is excluded, because it may differ between an editable
    install and a wheel of the same sources.
    """
    releases = [f"{name} {installed_version(name)}" for name in LIBRARIES]
    files = [file_sha256(path) for name in OWN_PACKAGES for path in module_source_files(name)]
    return hashlib.sha256("\n".join([*releases, *files]).encode()).hexdigest()


def plugin_digests(dispatcher: str, predictor: str) -> dict[str, str]:
    """Return the digests of the plug-ins' source files by path.

    Unknown names have no files.
    """
    found = dict[str, str]()
    for catalogue, words in (
        (SIMULATION_REGISTRIES.dispatchers, dispatcher),
        (SIMULATION_REGISTRIES.predictors, predictor),
    ):
        with suppress(CpschedError):
            factory = catalogue.find(words).factory
            found |= plugin_file_digests(getattr(factory, "__module__", "") or type(factory).__module__)
    return found


def plugin_file_digests(module: str) -> dict[str, str]:
    """Return the digests of a plug-in's source files by path.

    Return {} for a module of this project.
    """
    if module.partition(".")[0] in OWN_PACKAGES:
        return {}
    return {str(path): file_sha256(path) for path in module_source_files(module)}


def module_source_files(module: str) -> list[Path]:
    """Return the source files in a module's package.

    For a module without a package, return the file. Outside site-packages, add sibling modules and packages.
    """
    found = find_spec(module.partition(".")[0])
    if found is None:
        return []
    if found.submodule_search_locations is not None:
        return sorted(path for folder in found.submodule_search_locations for path in Path(folder).rglob("*.py"))
    path = Path(found.origin or "")
    if path.suffix != ".py":
        return []
    if "site-packages" in path.parts:
        return [path]
    siblings = (init.parent.rglob("*.py") for init in path.parent.glob("*/__init__.py"))
    return sorted({*path.parent.glob("*.py"), *(each for package in siblings for each in package)})


def installed_version(name: str) -> str:
    """Return the installed version of a library, or `none`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
