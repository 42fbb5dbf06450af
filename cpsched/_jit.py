"""The one door to Numba: kernels that compile when they are first called, and are kept on disk from then on.

Two decorators make compiled functions:

- `kernel` makes a *door*: a function that ordinary Python code calls. Importing its module compiles nothing and does
  not import Numba. The first call loads the compiled door from the cache, or compiles it and puts it there.
- `inner` makes a helper that only compiled functions call. It is compiled as a part of each door that needs it, so it
  has no cache entry of its own. Called from Python it runs as plain Python.

`.py_func` of both is the plain-Python twin. The type hints of a door's arguments say for which types it is compiled:
`int`, `bool`, `float`, arrays such as `Column`, tuples, and classes derived from `NamedTuple` with such fields.

    @inner
    def doubled(value): return 2 * value

    @kernel
    def total(column: FixedColumn) -> int: ...      # may call `doubled`

Every door is listed in `DOORS`, so that `cpsched warm-up` can compile those of all imported modules.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from cpsched._cache import Shelf, digest, reachable
from cpsched._compiling import Progress, function_done, opening

F = TypeVar("F", bound=Callable[..., Any])


class Kind:
    """A type of compiled values, made when the first door that uses it compiles."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def resolved(self) -> Any:
        """Numba's own name of the type."""
        from numba import types

        return self._make(types)


def _array(element: str, dimensions: int, readonly: bool = False) -> Kind:
    return Kind(lambda types: types.Array(getattr(types, element), dimensions, "C", readonly=readonly))


IN1 = _array("int64", 1, readonly=True)
"""A column that a kernel only reads; writable arrays are accepted too."""
IN2 = _array("int64", 2, readonly=True)
OUT1 = _array("int64", 1)
"""A column that a kernel writes."""
OUT2 = _array("int64", 2)
FLAGS2 = _array("bool_", 2, readonly=True)
FLAGS1 = _array("bool_", 1)
"""Flags that a kernel writes."""
FLOATS1 = _array("float64", 1)


Column = Annotated[npt.NDArray[np.int64], OUT1]
"""A column that kernels may write."""
Matrix = Annotated[npt.NDArray[np.int64], OUT2]
Flags = Annotated[npt.NDArray[np.bool_], FLAGS1]
FixedColumn = Annotated[npt.NDArray[np.int64], IN1]
"""A column that kernels only read; where a record has it, it must be read-only."""
FixedMatrix = Annotated[npt.NDArray[np.int64], IN2]
FixedFlags = Annotated[npt.NDArray[np.bool_], FLAGS2]
Floats = Annotated[npt.NDArray[np.float64], FLOATS1]


def type_of(hint: Any) -> Any:
    """Numba's type for a type hint; raises `TypeError` for a hint that says nothing to kernels."""
    import numba

    types = cast(Any, numba.types)
    if hint in (int, bool, float):
        return {int: types.int64, bool: types.bool_, float: types.float64}[hint]
    for part in getattr(hint, "__metadata__", ()):
        if isinstance(part, Kind):
            return part.resolved()
    if get_origin(hint) is tuple:
        return types.Tuple([type_of(member) for member in get_args(hint)])
    if isinstance(hint, type) and issubclass(hint, tuple):
        return types.NamedTuple([type_of(field) for field in get_type_hints(hint, include_extras=True).values()], hint)
    raise TypeError(f"{hint}: kernels have no type for it")


class Inner:
    """A helper of doors. In compiled code it is a function; called from Python it runs its plain-Python twin."""

    def __init__(self, function: Callable[..., Any], makes_arrays: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._makes_arrays = function, makes_arrays

    def __call__(self, *arguments: Any) -> Any:
        return self.py_func(*arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's compiler for this function; it compiles when a caller is compiled.

        The wrappers that let Python call a compiled function are left out.
        """
        import numba

        options = {"_nrt": self._makes_arrays, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        made = cast(Any, numba.njit)(**options)(self.py_func)
        made._cache = _Counted(self.py_func)
        return made

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks a global value for when it compiles a function that mentions it."""
        return self.dispatcher._numba_type_


class Door(functools.partial):  # type: ignore[type-arg]
    """A compiled function that Python code calls, with arguments of the declared types, by position.

    A `partial` is the cheapest callable whose target can be exchanged. Until the first call the target opens the door;
    from then on it is the compiled function itself, so that a call costs no more than a call of that.
    """

    py_func: Callable[..., Any]

    def __new__(cls, function: Callable[..., Any], types: Callable[[], tuple[Any, ...]], makes_arrays: bool) -> Door:
        """A door that opens at its first call."""
        door: Door = super().__new__(cls, lambda *arguments: door.opened()(*arguments))
        return door

    def __init__(self, function: Callable[..., Any], types: Callable[[], tuple[Any, ...]], makes_arrays: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._types, self._makes_arrays = function, types, makes_arrays
        self._within = Inner(function, makes_arrays)

    def opened(self) -> Callable[..., Any]:
        """Load the compiled function or make it, once; returns it."""
        with opening():
            return self._open()

    def _open(self) -> Callable[..., Any]:
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:
            if not hasattr(self, "_compiled"):
                self._compiled = compiled(self.py_func, self._types(), self._makes_arrays)
                cast(Any, self).__setstate__((self._compiled, (), {}, self.__dict__))
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """For compiled callers it is a helper like others."""
        return self._within._numba_type_


KNOWN_TO_WORK = ("0.68.",)
"""How the versions of Numba begin that `cpsched._linking` was tested with."""

DOORS: list[Door] = []
"""The doors of all modules imported so far."""


def compiled(function: Callable[..., Any], types: tuple[Any, ...], makes_arrays: bool = True) -> Callable[..., Any]:
    """The compiled form of `function` for arguments of those (Numba) types, from the cache where it is there.

    What is returned takes its arguments by position and trusts their types.
    """
    import numba
    from numba.core.compiler_lock import global_compiler_lock

    functions = reachable(function)
    progress = Progress(function.__name__, functions)
    made = cast(Any, numba.njit)(nogil=True, _nrt=makes_arrays, no_cfunc_wrapper=True, **_pipeline())(function)
    made._cache = Shelf(f"{function.__module__}.{function.__qualname__}", digest(functions), progress.begin)
    with opening(), cast(Any, global_compiler_lock), _quick(), progress:
        made.compile(types)
    return cast(Callable[..., Any], made.overloads[types].entry_point)


def _pipeline() -> dict[str, Any]:
    """The steps of compilation, for Numba: ours, where its version is known to take them, or else its own."""
    import numba

    if not cast(Any, numba).__version__.startswith(KNOWN_TO_WORK):
        return {}
    from cpsched._linking import DoorCompiler

    return {"pipeline_class": DoorCompiler}


def hinted(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Numba's types of the arguments of `function`, by its type hints."""
    hints = get_type_hints(function, include_extras=True)
    return tuple(type_of(hint) for name, hint in hints.items() if name != "return")


def kernel(function: F) -> F:
    """A door for Python callers, compiled for the types that the hints of its arguments declare.

    The types are declared because columns come read-only at one call and writable at the next, and each combination
    of the two would be compiled by itself.
    """
    DOORS.append(Door(function, lambda: hinted(function), True))
    return cast(F, DOORS[-1])


def inner(function: F) -> F:
    """A helper that compiled functions call."""
    return cast(F, Inner(function, makes_arrays=True))


@contextmanager
def _quick() -> Iterator[None]:
    """Leave the garbage collector out: it would look through the compiler's many objects again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Counted:
    """In the place of a helper's cache: keeps nothing, but counts."""

    cache_path = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_overload(self, signature: Any, target: Any) -> None:
        """Nothing is kept."""

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """The helper was compiled."""
        function_done(self._function)
