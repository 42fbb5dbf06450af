"""Kernels and subroutines: what is compiled and when, and where it is stored.

A *kernel* is a compiled function that Python code calls. Importing its module compiles nothing and does not import
Numba. The first call loads the compiled kernel from the cache, or compiles and stores it. A *subroutine* is compiled as
part of each kernel that uses it, so it has no cache entry. When called from Python, it runs as plain Python.

For both, `.py_func` is the plain-Python function. `KERNELS` lists the kernels of all imported modules, which
`cpsched warm-up` compiles. `cpsched.jit.decorators` contains the decorators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast, get_type_hints

from cpsched.gc_pause import gc_paused
from cpsched.jit.compile_progress import (
    KernelCompileProgress,
    measure_compilation,
    on_function_compiled,
    raise_if_cancelled,
)
from cpsched.jit.kernel_cache import KernelCache, called_functions, compiled_code_digest


def numba_argument_types(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the Numba types of a function's arguments, from its type hints."""
    from cpsched.jit.numba_struct_types import numba_type_of_hint

    hints = get_type_hints(function, include_extras=True)
    return tuple(numba_type_of_hint(hint) for name, hint in hints.items() if name != "return")


class CompiledSubroutine:
    """A subroutine.

    It is compiled for its declared types within a kernel, and is plain Python if called from Python.
    """

    def __init__(self, function: Callable[..., Any], makes_arrays: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._makes_arrays = function, makes_arrays

    def __call__(self, *arguments: Any) -> Any:
        """Run the plain-Python function."""
        return self.py_func(*arguments)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher for this function, compiled for the declared types only.

        The wrappers that let Python call a compiled function are omitted.
        """
        import numba

        options = {"_nrt": self._makes_arrays, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        made = cast(Any, numba.njit)(**options)(self.py_func)
        made._cache = _CompilationReportingCache(self.py_func)
        made.compile(numba_argument_types(self.py_func))
        made.disable_compile()
        return made

    @property
    def _numba_type_(self) -> Any:
        """The type that Numba requests when it compiles a function that uses this global."""
        return self.dispatcher._numba_type_


class CompiledKernel(functools.partial):  # type: ignore[type-arg]
    """A compiled function that Python calls with arguments of the declared types.

    It is a `partial`, the cheapest callable whose target can be replaced. Before the first call, the target is a
    function that loads the kernel. Afterwards, it is the compiled function itself, so a call has no overhead.
    """

    py_func: Callable[..., Any]

    def __new__(cls, function: Callable[..., Any]) -> CompiledKernel:
        """Create a kernel that is loaded on its first call."""
        created: CompiledKernel = super().__new__(cls, lambda *arguments: created.load_or_compile()(*arguments))
        return created

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._within = function, CompiledSubroutine(function, makes_arrays=True)

    def load_or_compile(self) -> Callable[..., Any]:
        """Load or compile the function once, and return it."""
        with measure_compilation():
            return self._load_under_lock()

    def _load_under_lock(self) -> Callable[..., Any]:
        raise_if_cancelled()
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:
            if not hasattr(self, "_compiled"):
                self._compiled = compile_for_types(self.py_func, numba_argument_types(self.py_func))
                cast(Any, self).__setstate__((self._compiled, (), {}, self.__dict__))
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """The subroutine that compiled callers use."""
        return self._within._numba_type_


TESTED_NUMBA_RELEASES = ("0.68.",)
"""Prefixes of the Numba versions with which `cpsched.jit.kernel_linking` has been tested."""

KERNELS: list[CompiledKernel] = []
"""The kernels of all modules imported so far."""


def compile_for_types(function: Callable[..., Any], types: tuple[Any, ...]) -> Callable[..., Any]:
    """Return `function` compiled for Numba types, from the cache if possible.

    The result accepts positional arguments and does not check their types.
    """
    import numba
    from numba.core.compiler_lock import global_compiler_lock

    functions = called_functions(function)
    progress = KernelCompileProgress(function.__name__, functions)
    made = cast(Any, numba.njit)(nogil=True, no_cfunc_wrapper=True, **_compiler_options())(function)
    made._cache = KernelCache(
        f"{function.__module__}.{function.__qualname__}", compiled_code_digest(functions), progress.mark_uncached
    )
    with measure_compilation(), cast(Any, global_compiler_lock), gc_paused(), progress:
        made.compile(types)
    return cast(Callable[..., Any], made.overloads[types].entry_point)


def _compiler_options() -> dict[str, Any]:
    """Return the options for cpsched's compilation steps: none for an untested Numba."""
    import numba

    if not cast(Any, numba).__version__.startswith(TESTED_NUMBA_RELEASES):
        return {}
    from cpsched.jit.kernel_linking import KernelCompiler

    return {"pipeline_class": KernelCompiler}


class _CompilationReportingCache:
    """A substitute for a subroutine's cache that only reports the compilation."""

    cache_path = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_overload(self, signature: Any, target: Any) -> None:
        """Return None: nothing is cached."""

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Report that the subroutine was compiled."""
        on_function_compiled(self._function)
