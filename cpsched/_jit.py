"""The one door to Numba: compile a kernel with its explicit signature, cached on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(*signatures: Any) -> Callable[[F], F]:
    """Compile with `signatures` (none: on first call); `.py_func` is the plain-Python twin.

    Falls back to an uncached kernel where no cache location is writable, which Numba reports as an exception.
    """

    def decorate(function: F) -> F:
        arguments: tuple[Any, ...] = (list(signatures),) if signatures else ()
        compiler: Any = numba.njit
        try:
            return cast(F, compiler(*arguments, cache=True, nogil=True)(function))
        except RuntimeError:
            return cast(F, compiler(*arguments, nogil=True)(function))

    return decorate
