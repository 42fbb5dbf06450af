"""Define the exceptions of the decision core.

An exception means that the program or its environment failed. Infeasible, late and no capacity are results.

    CpschedError            base class of all exceptions in this package
    ├── InvalidValue        a value violates a rule; the message names both (exit code 2)
    ├── UnreadableOutput    the output of a Slurm command does not have its usual format
    ├── UnknownName         unknown dispatcher, predictor or parameter; the message lists the known names
    ├── PluginLoadError     a plug-in or `package.module:Class` cannot be loaded; the message states the reason
    ├── PluginError         a plug-in violated its contract; the message gives file and line (exit code 1)
    │   └── PolicyError         the plug-in is a dispatcher or predictor
    ├── SimulationError     base class of the errors in `cpsched_sim`
    └── BridgeError         base class of the errors in `cpsched_bridge`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class CpschedError(Exception):
    """Base class of all exceptions that cpsched's packages raise deliberately."""


class InvalidValue(CpschedError, ValueError):
    """A value violates a rule; the message is `field=value: rule`."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}={value}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


class UnreadableOutput(CpschedError):
    """The output of a Slurm command is incomplete, or does not have its usual format."""


class UnknownName(CpschedError, LookupError):
    """A name is unknown; the message lists the known names and the most similar one."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}")
        self.kind = kind
        self.name = name


CAUGHT_EXCEPTIONS = (Exception, SystemExit)
"""Exceptions from plug-ins that are caught. `SystemExit` counts as a failure."""

CHECKED_METHODS = {"dispatcher": ("decide",), "predictor": ("fill", "predict"), "trace format": ("_record",)}
"""Methods whose results are checked, by kind of plug-in."""


class PluginError(CpschedError):
    """A plug-in raised an exception, or returned a value that violates its contract.

    The message is `dispatcher MyDispatcher: what happened (mine.py:12, in decide)`. The plug-in's exception is the
    `__cause__`. `place` is the line of the plug-in, or None if unknown.
    """

    exit_code = 1

    def __init__(self, part: str, of: object, what: str, place: CodeLocation | None = None) -> None:
        of = unwrap_plugin(of)
        place = place or plugin_source_location(None, of, CHECKED_METHODS.get(part, ()))
        name = of if isinstance(of, str) else type(of).__name__
        super().__init__(f"{part} {name}: {what}" + (f" ({escape_controls(str(place))})" if place else ""))
        self.part = part
        self.place = place


class PolicyError(PluginError):
    """A dispatcher or predictor failed, or its result violates its contract.

    `Policy` raises no other exception for these failures, so a caller can count a failed decision and continue.
    """


class PluginLoadError(CpschedError):
    """A plug-in or `package.module:Class` cannot be loaded.

    The message is `<kind> <words>: <reason> (mine.py:3)`. `place` is the line of the plug-in that raised, or None.
    """

    def __init__(self, kind: str, name_or_path: str, reason: str, place: CodeLocation | None = None) -> None:
        super().__init__(f"{kind} {name_or_path}: {reason}" + (f" ({escape_controls(str(place))})" if place else ""))
        self.place = place
        self.kind = kind
        self.words = name_or_path
        self.reason = reason


MAX_PLUGIN_MESSAGE_CHARS = 500
"""Maximum length of a plug-in's error message, so that a plug-in cannot fill the journal."""


def exception_message(error: BaseException) -> str:
    """Return an exception's message, shortened, and with control characters escaped.

    If `__str__` raises an exception, return a placeholder.
    """
    try:
        return escape_controls(str(error)[:MAX_PLUGIN_MESSAGE_CHARS])
    except Exception:
        return "(its message cannot be read)"


def describe_exception(error: BaseException) -> str:
    """Return an exception's type and message."""
    return f"{type(error).__name__}: {exception_message(error)}"


def escape_controls(text: str) -> str:
    """Return `text` on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def join_abbreviated(things: Sequence[T], most: int, between: str = ", ", text: Callable[[T], str] = str) -> str:
    """Return the first `most` items, and the number of others: `n1, n2 and 3 more`."""
    more = len(things) - most
    shown = between.join(map(text, things[:most]))
    return f"{shown}{between.rstrip(', ')} and {more:,} more" if more > 0 else shown


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar known name, or "" if none is similar."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def require(holds: bool, field: str, value: object, rule: str) -> None:
    """Raise `InvalidValue` unless `holds`."""
    if not holds:
        raise InvalidValue(field, value, rule)


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
    definitions = (definition_location(getattr(type(of), name, None)) for name in methods)
    return next((place for place in definitions if place is not None), None)


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


def _function_name(code: CodeType) -> str:
    return "" if code.co_name == "<module>" else code.co_name


def _is_cpsched_module(module: str) -> bool:
    return module.partition(".")[0] in _CPSCHED_PACKAGES


def _parent_folder(file: str) -> str:
    return file.rpartition("/")[0]
