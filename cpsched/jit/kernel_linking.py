"""Compile kernels in half of Numba's time, with machine code for kernels only.

Numba optimises every function and generates its machine code, and then does both again with the kernel that contains
the function. Python calls only the kernel, so the first pass is wasted. Here, the functions below a kernel remain as
the front end generated them. They are optimised and compiled only with the kernel.

Numba also repeats two computations, whose results are cached here:

- The compiler options, which are part of each key; Numba collects them 85,000 times for `plan_on_nodes`.
- The signature of a call. For `a + b`, Numba tries all overloads of `+` until one matches, including those for strings,
sets and dates. It formats an error message for each overload that does not match, and repeats this search for each
pair of integers.

This module depends on Numba's internal names. Therefore, it is imported only with the versions in
`cpsched.jit.compiled_functions.TESTED_NUMBA_RELEASES`. With other versions, Numba compiles the kernels as usual, which
takes longer.
"""

# mypy: disable-error-code="no-untyped-call"
# Numba has no type annotations.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from llvmlite import binding
from numba.core import codegen, compiler
from numba.core.targetconfig import ConfigStack, TargetConfig
from numba.core.types.functions import BaseFunction


class SubroutineCodeLibrary(codegen.JITCodeLibrary):
    """The code of a function below a kernel, called only by the kernel's code.

    It contains only the function itself. The kernel links in each function that it needs once.
    """

    def finalize(self) -> None:
        """Do not generate machine code or link other libraries.

        Numba stores the address of the function's environment (its constants) in a global variable, which the kernel's
        code reads. So only this variable is linked.
        """
        self._raise_if_finalized()
        for each in self._linking_libraries:
            self._reload_init.update(each._reload_init)
        self._finalize_dynamic_globals()
        names = [each.name for each in self._final_module.global_variables if each.linkage == binding.Linkage.common]
        alone = "\n".join(f'@"{name}" = common global i8* null' for name in names)
        self._codegen._add_module(binding.parse_assembly(alone))
        self._finalized = True

    def own_code_for_linking(self) -> Any:
        """Return the function's own code for linking."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """Return the function with all functions that it calls, for other Numba code."""
        whole = self.own_code_for_linking().clone()
        for each in _needed_libraries(self):
            whole.link_in(_linkable_module(each), preserve=True)
        return whole


class KernelCodeLibrary(codegen.JITCodeLibrary):
    """The code of a kernel and its functions, optimised and compiled together."""

    def finalize(self) -> None:
        """Link in each called function once, then continue as Numba does."""
        for each in _needed_libraries(self):
            self._reload_init.update(each._reload_init)
            self._final_module.link_in(_linkable_module(each), preserve=True)
        self._linking_libraries = []
        super().finalize()


def _needed_libraries(library: Any) -> list[Any]:
    """Return the libraries that `library` links, directly or indirectly.

    Follow indirect links only through each `SubroutineCodeLibrary`, which contains a single function.
    """
    found, waiting = dict[Any, None](), list(library._linking_libraries)
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += each._linking_libraries if isinstance(each, SubroutineCodeLibrary) else ()
    return list(found)


def _linkable_module(library: Any) -> Any:
    return (
        library.own_code_for_linking()
        if isinstance(library, SubroutineCodeLibrary)
        else library._get_module_for_linking()
    )


class KernelCompiler(compiler.Compiler):
    """Numba's compilation steps for one kernel that is not in the cache."""

    def compile_extra(self, function: Any) -> Any:
        """Return the compiled kernel, including the functions that it calls."""
        maker = self.state.targetctx.codegen()
        self.state.library = KernelCodeLibrary(maker, function.__qualname__)
        self.state.library.enable_object_caching()
        with _compiling_for_kernel(maker):
            return super().compile_extra(function)


def compiler_option_values(flags: TargetConfig) -> dict[str, Any]:
    """Return the value of each option by name, like `TargetConfig.values`."""
    return _default_options(type(flags)) | flags._values


@cache
def _default_options(kind: type[TargetConfig]) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}


def make_cached_get_call_type(search: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `BaseFunction.get_call_type` with cached results.

    Results also depend on the options. Numba looks up the code of the call in `_impl_keys`, by the signature's
    arguments. Calls that match no signature, and calls with keyword arguments, are not cached.
    """
    found: dict[Any, tuple[Any, Any]] = {}
    numbers: dict[Any, int] = {}
    numbered: dict[int, tuple[Any, int]] = {}

    def index_of_options(options: Any) -> int:
        """Return the same number for equal options. Compare options once per function."""
        if id(options) not in numbered:
            numbered[id(options)] = options, numbers.setdefault(options, len(numbers))
        return numbered[id(options)][1]

    def get_call_type(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        if named:
            return search(function, context, arguments, named)
        asked = (function, context, tuple(arguments), index_of_options(ConfigStack.top_or_none()))
        if asked in found:
            signature, function._impl_keys[signature.args] = found[asked]
            return signature
        signature = search(function, context, arguments, named)
        found[asked] = signature, function._impl_keys[signature.args]
        return signature

    return get_call_type


remembered = make_cached_get_call_type(BaseFunction.get_call_type)


@contextmanager
def _compiling_for_kernel(maker: Any) -> Iterator[None]:
    """Within the block, compile functions as parts of the kernel, and cache lookups."""
    places = [
        (maker, "_library_class", SubroutineCodeLibrary),
        (TargetConfig, "values", compiler_option_values),
        (BaseFunction, "get_call_type", remembered),
    ]
    before = [getattr(owner, name) for owner, name, _ in places]
    for owner, name, ours in places:
        setattr(owner, name, ours)
    try:
        yield
    finally:
        for (owner, name, _), theirs in zip(places, before, strict=True):
            setattr(owner, name, theirs)
