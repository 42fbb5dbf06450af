"""Kernels whose types are their annotations: what a handle holds is named once, and so is what a kernel takes.

    @kernel
    def total(site: Site, weights: FixedColumn) -> int: ...

An argument is an `int`, a `bool`, an array alias or a handle class of `cpsched.handles`, or a tuple of those. Each
function is compiled in one form only. See `cpsched._jit` for when that happens and where the code is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast, get_type_hints

from cpsched._jit import DOORS, Door, Inner

F = TypeVar("F", bound=Callable[..., Any])


def types_of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The types of a function's arguments; what it returns is found out when it is compiled."""
    from cpsched.kernels.structs import type_of

    hints = get_type_hints(function, include_extras=True)
    return tuple(type_of(hint) for name, hint in hints.items() if name != "return")


class Typed(Inner):
    """A helper that is compiled in one form only, for its declared types."""

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's compiler for this function; it has compiled and compiles no more."""
        made = Inner.dispatcher.func(self)  # type: ignore[attr-defined]
        made.compile(types_of(self.py_func))
        made.disable_compile()
        return made


def kernel(function: F) -> F:
    """A door that Python code calls."""
    door = Door(function, lambda: types_of(function), True)
    door._within = Typed(function, True)
    DOORS.append(door)
    return cast(F, door)


def inner(function: F) -> F:
    """A helper that compiled functions call; called from Python it runs as plain Python."""
    return cast(F, Typed(function, True))


def bare(function: F) -> F:
    """A helper that takes numbers and arrays alone and makes no arrays: compiled without reference counting."""
    return cast(F, Typed(function, False))


class _Owned:
    """In kernels `cpsched.kernels.structs.owned`."""

    def __call__(self, handle: Any, name: str) -> Any:
        """The array itself."""
        return getattr(handle, name)

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        from cpsched.kernels.structs import owned

        return cpu_target.typing_context.resolve_value_type(owned)


owned = _Owned()
"""`owned(handle, "field")`: an array of a handle that a kernel returns, so that it outlives its replacement."""
