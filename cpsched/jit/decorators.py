"""Kernels: functions that are compiled for the types in their annotations.

    @inner
    def doubled(value: int) -> int: return 2 * value

    @kernel
    def total(site: Site, weights: FixedColumn) -> int: ...      # may call `doubled`

An argument is an `int`, a `bool`, a `float`, an array alias or a `SharedStruct` class from
`cpsched.jit.shared_structs`, or a tuple of these. Each function is compiled for only one set of types.
`cpsched.jit.compiled_functions` documents when they are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from cpsched.jit.compiled_functions import KERNELS, CompiledKernel, CompiledSubroutine

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Make `function` a kernel, which Python calls with positional arguments."""
    KERNELS.append(CompiledKernel(function))
    return cast(F, KERNELS[-1])


def subroutine(function: F) -> F:
    """Make `function` a subroutine of kernels. From Python, it runs as plain Python."""
    return cast(F, CompiledSubroutine(function, makes_arrays=True))


def scalar_subroutine(function: F) -> F:
    """Make `function` a subroutine that creates no arrays and counts no references."""
    return cast(F, CompiledSubroutine(function, makes_arrays=False))


class _OwnedFieldInPython:
    """The Python version of `cpsched.jit.numba_struct_types.owned`, which kernels use."""

    def __call__(self, handle: Any, name: str) -> Any:
        """Return the array itself."""
        return getattr(handle, name)

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        from cpsched.jit.numba_struct_types import owned_array

        return cpu_target.typing_context.resolve_value_type(owned_array)


owned = _OwnedFieldInPython()
"""`owned(handle, "field")` is an array of a shared struct that a kernel may return. It remains valid if the field is
replaced.
"""


class ColumnGrower:
    """A function that grows columns: `grow(handle, "field other", used, room)`.

    It applies a function that grows one column, passed as the field `column` of a shared struct, to each named field.
    The columns then have `room` entries, of which the first `used` are unchanged. Kernels compile faster than with an
    assignment to each field.
    """

    def __init__(self, function: Callable[[Any, int, int], None]) -> None:
        self.py_func, self._one = function, CompiledSubroutine(function, makes_arrays=True)

    def __call__(self, handle: Any, names: str, used: int, room: int) -> None:
        """Run the plain-Python function."""
        for name in names.split():
            held = SimpleNamespace(column=getattr(handle, name))
            self.py_func(held, used, room)
            setattr(handle, name, held.column)

    @cached_property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        from cpsched.jit.numba_struct_types import make_grow_columns_intrinsic

        made, context = make_grow_columns_intrinsic(self._one), cpu_target.typing_context
        context.refresh()  # the context does not yet have the new definitions
        return context.resolve_value_type(made)
