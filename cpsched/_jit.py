"""The one door to Numba: compile a kernel with its explicit signature, cached on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types

F = TypeVar("F", bound=Callable[..., Any])

INT = types.int64
FLOAT = types.float64
IN1 = types.Array(types.int64, 1, "C", readonly=True)
"""A column that a kernel only reads; writable arrays are accepted too."""
IN2 = types.Array(types.int64, 2, "C", readonly=True)
OUT1 = types.Array(types.int64, 1, "C")
"""A column that a kernel writes."""
OUT2 = types.Array(types.int64, 2, "C")
FLAGS2 = types.Array(types.bool_, 2, "C", readonly=True)
FLAGS1 = types.Array(types.bool_, 1, "C")
"""Flags that a kernel writes."""
FLOATS1 = types.Array(types.float64, 1, "C")
BOOL = types.bool_
NOTHING = types.void


def tuple_type(*members: Any) -> Any:
    """The type of a tuple of several values."""
    return types.Tuple(members)  # type: ignore[no-untyped-call]


def record_type(record: type, *fields: Any) -> Any:
    """The type of a NamedTuple class; unlike plain arguments, its read-only columns take read-only arrays alone."""
    return types.NamedTuple(fields, record)  # type: ignore[no-untyped-call]


def kernel(*signatures: Any, makes_arrays: bool = True) -> Callable[[F], F]:
    """Compile with `signatures` (none: on first call); `.py_func` is the plain-Python twin.

    A kernel that makes no arrays and returns none should say so: it is then compiled without reference counting, whose
    atomic operations cost more than the work of a small kernel. (Views of arguments are no new arrays.)

    Falls back to an uncached kernel where no cache location is writable, which Numba reports as an exception.
    """

    def decorate(function: F) -> F:
        arguments: tuple[Any, ...] = (list(signatures),) if signatures else ()
        options: dict[str, Any] = {"nogil": True, "_nrt": makes_arrays}
        compiler: Any = numba.njit
        try:
            return cast(F, compiler(*arguments, cache=True, **options)(function))
        except RuntimeError:
            return cast(F, compiler(*arguments, **options)(function))

    return decorate
