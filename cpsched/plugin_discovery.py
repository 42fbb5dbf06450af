"""Discover plug-ins through the entry points of installed packages.

No other module reads entry points. A package declares a dispatcher in its pyproject.toml:

[project.entry-points."cpsched.dispatchers"]
    smallest-first = "my_package.smallest:SmallestFirst"

Discovery imports no plug-in. An entry point is loaded when its name is first used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from types import ModuleType
from typing import Any

from cpsched.errors import (
    CAUGHT_EXCEPTIONS,
    PluginLoadError,
    describe_exception,
    did_you_mean,
    exception_message,
    plugin_source_location,
)


@dataclass(frozen=True, slots=True)
class PluginEntryPoint:
    """One entry point.

    `words` is its "package.module:attribute", and `origin` is its package and version.
    """

    name: str
    words: str
    origin: str


def discover_plugins(group: str) -> tuple[PluginEntryPoint, ...]:
    """Return the entry points in a group, sorted by name and without duplicates."""
    found = {
        PluginEntryPoint(point.name, point.value, f"{point.dist.name} {point.dist.version}" if point.dist else "")
        for point in entry_points(group=group)
    }
    return tuple(sorted(found, key=attrgetter("name", "origin", "words")))


def load_attribute(kind: str, name_or_path: str) -> Any:
    """Return the object at "package.module:attribute" or "package.module".

    Raise `PluginLoadError` on any failure.
    """
    module_name, _, path = name_or_path.partition(":")
    module = _import_plugin_module(kind, name_or_path, module_name.strip())
    thing: Any = module
    for name in path.strip().split(".") if path else ():
        if not hasattr(thing, name):
            hint = did_you_mean(name, (public for public in dir(thing) if not public.startswith("_")))
            raise PluginLoadError(kind, name_or_path, f"{module_name} has no attribute {name}{hint}")
        thing = getattr(thing, name)
    return thing


def _import_plugin_module(kind: str, name_or_path: str, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except CAUGHT_EXCEPTIONS as error:  # importing a plug-in runs arbitrary code
        why = describe_exception(error) if not isinstance(error, ImportError) else exception_message(error)
        reason = f"{module_name} cannot be imported: {' '.join(why.split())}"
        raise PluginLoadError(kind, name_or_path, reason, plugin_source_location(error)) from error
