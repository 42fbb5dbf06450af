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

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cpsched.plugin_error_location import CodeLocation, plugin_source_location, unwrap_plugin

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
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape_character(c) for c in text)


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


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
