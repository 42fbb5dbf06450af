"""Keys of results: a result is used again only for the same inputs and the same code."""

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
from cpsched_sim.files import sha256_of
from cpsched_sim.oracle import SIMULATION_REGISTRIES

OWN = ("cpsched", "cpsched_sim")
LIBRARIES = ("ortools",)
"""Libraries whose release may change a decision."""


def key_of(inputs: Mapping[str, Any]) -> str:
    """The name of the result of these inputs: 32 hexadecimal digits of their digest."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


@cache
def code_identity() -> str:
    """A digest of all source files of the simulator and of the releases of `LIBRARIES`.

    The version is not part of it: an editable install and a wheel of the same sources may have different ones.
    """
    releases = [f"{name} {_version(name)}" for name in LIBRARIES]
    files = [sha256_of(path) for name in OWN for path in plugin_files(name)]
    return hashlib.sha256("\n".join([*releases, *files]).encode()).hexdigest()


def plugins_of(dispatcher: str, predictor: str) -> dict[str, str]:
    """Path -> digest of the source files of the plug-ins among them; of unknown names there are none."""
    found = dict[str, str]()
    for catalogue, words in (
        (SIMULATION_REGISTRIES.dispatchers, dispatcher),
        (SIMULATION_REGISTRIES.predictors, predictor),
    ):
        with suppress(CpschedError):
            factory = catalogue.find(words).factory
            found |= plugin_identity(getattr(factory, "__module__", "") or type(factory).__module__)
    return found


def plugin_identity(module: str) -> dict[str, str]:
    """Path -> digest of the source files of a plug-in; empty for what comes with the project."""
    if module.partition(".")[0] in OWN:
        return {}
    return {str(path): sha256_of(path) for path in plugin_files(module)}


def plugin_files(module: str) -> list[Path]:
    """The source of a module's package; of a module that is not installed, also all modules and packages beside it."""
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
    beside = (init.parent.rglob("*.py") for init in path.parent.glob("*/__init__.py"))
    return sorted({*path.parent.glob("*.py"), *(each for package in beside for each in package)})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
