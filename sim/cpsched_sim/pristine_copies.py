"""Keep copies of dispatchers and predictors from before their first simulation, for fair comparisons.

An instance that has been used in a simulation has learned from the trace, so reusing it in a comparison would leak
information. Therefore a copy is stored before the first simulation.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from typing import Any

from cpsched.errors import PluginLoadError, describe_exception
from cpsched.registry import import_path_of

_KEPT: dict[int, tuple[weakref.ref[Any], Any]] = {}
"""For the id of each live instance: its copy, or the reason why it cannot be copied."""


@dataclass(frozen=True, slots=True)
class CopyFailure:
    """The reason why an instance cannot be copied.

    The exception is not stored, because its traceback would keep the instance alive.
    """

    why: str


def store_pristine_copy(thing: Any) -> None:
    """Store a copy of an instance before its first simulation."""
    key = id(thing)
    if key not in _KEPT:
        _KEPT[key] = weakref.ref(thing, lambda _: _KEPT.pop(key, None)), _copied(thing)


def pristine_copy_of(kind: str, thing: Any) -> Any:
    """Return a copy of an instance from before its first simulation. Raise `PluginLoadError` if it cannot be copied."""
    kept = _KEPT.get(id(thing))
    found = _copied(kept[1] if kept is not None else thing)
    if isinstance(found, CopyFailure):
        advice = "give its class, or an unused instance"
        raise PluginLoadError(kind, import_path_of(thing), f"cannot be copied ({found.why}): {advice}")
    return found


def _copied(thing: Any) -> Any:
    if isinstance(thing, CopyFailure):
        return thing
    try:
        return copy.deepcopy(thing)
    except Exception as error:  # a plug-in class may raise any exception
        return CopyFailure(describe_exception(error))
