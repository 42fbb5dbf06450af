"""The one door to Numba: compile a kernel with its explicit signature, cached on disk where that is possible."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
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

    The cache of a module's kernels lives in a folder named after its source and that of every module whose kernels it
    calls, because Numba itself does not notice a callee edited elsewhere. Falls back to an uncached kernel where no
    cache location is writable, which Numba reports as an exception.
    """

    def decorate(function: F) -> F:
        arguments: tuple[Any, ...] = (list(signatures),) if signatures else ()
        options: dict[str, Any] = {"nogil": True, "_nrt": makes_arrays}
        compiler, config = cast(Any, numba.njit), cast(Any, numba.config)
        outer = config.CACHE_DIR
        config.CACHE_DIR = str(folder := cache_folder(function, outer))
        if signatures and not folder.exists():
            say_once("compiling the kernels; the next run finds them in the cache")
        try:
            return cast(F, compiler(*arguments, cache=True, **options)(function))
        except RuntimeError:
            return cast(F, compiler(*arguments, **options)(function))
        finally:
            config.CACHE_DIR = outer

    return decorate


_said: set[str] = set()


def say_once(message: str) -> None:
    """Tell whoever waits; Python shows a warning of a log without handlers on stderr."""
    if message not in _said:
        _said.add(message)
        logging.getLogger("cpsched").warning(message)


_stamps: dict[str, str] = {}
"""Of each source file with kernels: a digest of it, and of those of its callees."""


def cache_folder(function: Callable[..., Any], outer: str) -> Path:
    """Where the compiled `function` belongs: in `outer` if that is set, else beside its source."""
    own = function.__code__.co_filename
    if own not in _stamps:
        callees = {v.py_func.__code__.co_filename for v in function.__globals__.values() if hasattr(v, "py_func")}
        digest = hashlib.sha256("".join(_stamps.get(file, "") for file in sorted(callees - {own})).encode())
        # The numbers that kernels take from the model are compiled into them.
        for file in (Path(own), Path(__file__), Path(__file__).parent / "model" / "numbers.py"):
            digest.update(file.read_bytes() if file.exists() else b"")
        _stamps[own] = digest.hexdigest()[:16]
    return (Path(outer) if outer else Path(own).parent / "__pycache__") / f"kernels-{_stamps[own]}"
