"""Locate a plug-in's error in its source, from a traceback or a definition."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import NamedTuple

_CPSCHED_PACKAGES = ("cpsched", "cpsched_sim", "cpsched_bridge")


class CodeLocation(NamedTuple):
    """A line of code and its function (empty for module level)."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f", in {self.function}" if self.function else "")


def unwrap_plugin(of: object) -> object:
    """Return the plug-in inside a wrapper of cpsched, or any other object unchanged."""
    return getattr(of, "stands_for", of) if _is_cpsched_module(type(of).__module__) else of


def plugin_source_location(
    error: BaseException | None, of: object = None, methods: Iterable[str] = ()
) -> CodeLocation | None:
    """Return the plug-in line that raised `error`, or that returned an invalid value.

    `error` is None for an invalid value. `of` is the plug-in.

    - The result is the deepest traceback line in the folder of the first file outside cpsched.
    - If there is no such file, it is the definition of the first of `methods` that the author wrote.
    - For cpsched's own code, it is the deepest traceback line, or None for cpsched's own exceptions.
    """
    of = unwrap_plugin(of)
    if isinstance(error, SyntaxError) and error.filename:
        return CodeLocation(error.filename, error.lineno or 1)
    lines = list(_traceback_lines(error))
    if of is not None and _is_cpsched_module(type(of).__module__):
        return lines[-1][1] if lines and not _is_cpsched_module(type(error).__module__) else None
    foreign = [place for module, place in lines if not _is_cpsched_module(module)]
    if foreign:  # skip packages that the plug-in calls
        folder = _parent_folder(foreign[0].file)
        return [place for place in foreign if _parent_folder(place.file) == folder][-1]
    return next(_find_method_definitions(of, methods), None)


def _traceback_lines(error: BaseException | None) -> Iterator[tuple[str, CodeLocation]]:
    """Yield (module, location) of traceback lines, outermost first.

    Python's standard library is skipped.
    """
    step = error.__traceback__ if error is not None else None
    while step is not None:
        code, names = step.tb_frame.f_code, step.tb_frame.f_globals
        module = getattr(names.get("__spec__"), "name", None) or names.get("__name__", "")  # `python -m` sets __main__
        if not (code.co_filename.startswith("<frozen ") or str(module).partition(".")[0] in sys.stdlib_module_names):
            yield str(module), CodeLocation(code.co_filename, step.tb_lineno, _function_name(code))
        step = step.tb_next


def definition_location(function: object) -> CodeLocation | None:
    """Return a plug-in function's location, or None for built-ins and cpsched's code."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or _is_cpsched_module(getattr(function, "__module__", "") or ""):
        return None
    return CodeLocation(code.co_filename, code.co_firstlineno, _function_name(code))


def _find_method_definitions(of: object, methods: Iterable[str]) -> Iterator[CodeLocation]:
    found = (definition_location(getattr(type(of), name, None)) for name in methods)
    return (place for place in found if place is not None)


def _function_name(code: CodeType) -> str:
    return "" if code.co_name == "<module>" else code.co_name


def _is_cpsched_module(module: str) -> bool:
    return module.partition(".")[0] in _CPSCHED_PACKAGES


def _parent_folder(file: str) -> str:
    return file.rpartition("/")[0]
