"""Dispatchers and predictors as they were before their first simulation, for comparisons that begin anew.

An instance that was simulated with has learned from the trace: compared as it is, it would know the trace before it
begins. So a copy of it is kept before its first simulation.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from typing import Any

from cpsched.errors import PluginLoadError, describe_exception
from cpsched.registry import import_path_of

_KEPT: dict[int, tuple[weakref.ref[Any], Any]] = {}
"""By the identity of an instance, as long as it lives: the copy of it, or why there is none."""


@dataclass(frozen=True, slots=True)
class Uncopyable:
    """Why an instance cannot be copied. Not the exception itself, whose traceback would keep the instance alive."""

    why: str


def store_pristine_copy(thing: Any) -> None:
    """Keep a copy of an instance that is about to be simulated with, unless there is one."""
    key = id(thing)
    if key not in _KEPT:
        _KEPT[key] = weakref.ref(thing, lambda _: _KEPT.pop(key, None)), _copied(thing)


def pristine_copy_of(kind: str, thing: Any) -> Any:
    """A copy of an instance as it was before its first simulation. Raises `PluginLoadError` where it cannot be
    copied.
    """
    kept = _KEPT.get(id(thing))
    found = _copied(kept[1] if kept is not None else thing)
    if isinstance(found, Uncopyable):
        mend = "give its class, or an instance that was not used yet"
        raise PluginLoadError(kind, import_path_of(thing), f"cannot be copied ({found.why}): {mend}")
    return found


def _copied(thing: Any) -> Any:
    if isinstance(thing, Uncopyable):
        return thing
    try:
        return copy.deepcopy(thing)
    except Exception as error:  # whatever a class of somebody's own raises there
        return Uncopyable(describe_exception(error))
