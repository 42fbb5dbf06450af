"""Store copies of dispatchers and predictors before their first simulation.

An instance that was used in a simulation has learned from the trace. A fair comparison uses a copy instead, because
reusing the instance would leak information.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from typing import Any

from cpsched.errors import PluginLoadError, describe_exception
from cpsched.registry import import_path

_PRISTINE_COPIES: dict[int, tuple[weakref.ref[Any], Any]] = {}
"""By id, a weak reference to each live instance, and its copy or the reason why it cannot be copied."""


@dataclass(frozen=True, slots=True)
class CopyFailure:
    """The reason why an instance cannot be copied.

    The exception is not stored, because its traceback would keep the instance alive.
    """

    why: str


def store_untrained_copy(thing: Any) -> None:
    """Store a copy of an instance before its first simulation, unless one exists."""
    key = id(thing)
    if key not in _PRISTINE_COPIES:
        _PRISTINE_COPIES[key] = weakref.ref(thing, lambda _: _PRISTINE_COPIES.pop(key, None)), _try_deepcopy(thing)


def untrained_copy(kind: str, thing: Any) -> Any:
    """Return a copy of an instance in its state before the first simulation.

    Raise `PluginLoadError` if it cannot be copied.
    """
    kept = _PRISTINE_COPIES.get(id(thing))
    found = _try_deepcopy(kept[1] if kept is not None else thing)
    if isinstance(found, CopyFailure):
        advice = "pass its class, or an unused instance"
        raise PluginLoadError(kind, import_path(thing), f"cannot be copied ({found.why}): {advice}")
    return found


def _try_deepcopy(thing: Any) -> Any:
    if isinstance(thing, CopyFailure):
        return thing
    try:
        return copy.deepcopy(thing)
    except Exception as error:  # a plug-in class may raise any exception
        return CopyFailure(describe_exception(error))
