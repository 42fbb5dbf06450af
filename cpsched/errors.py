"""The exceptions of the decision core.

An exception means that the program or the outside broke; infeasible, late, no room are results.

    CpschedError            everything this package raises on purpose
    ├── InvalidValue        a value broke its own rule: the message names value and rule (exit code 2)
    ├── UnknownName         a dispatcher, predictor or parameter nobody knows: the message lists the known ones
    ├── PluginLoadError     a plug-in, or a `package.module:Class`, that cannot be used: the message says why
    ├── PluginError         something that can be plugged in broke its contract; file and line are named (exit code 1)
    │   └── PolicyError         a dispatcher or predictor did: one failed decision of a bridge, the end of a replay
    ├── SimulationError     the simulator: see `cpsched_sim.errors`
    └── BridgeError         the bridge: see `cpsched_bridge.errors`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cpsched.traceback_origin import SourceLocation, plugin_source_location, unwrap_plugin

T = TypeVar("T")


class CpschedError(Exception):
    """Base of everything that `cpsched`, `cpsched_sim` and the bridge raise on purpose."""


class InvalidValue(CpschedError, ValueError):
    """A value broke its own rule; the message reads `field=value: rule`."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}={value}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


class UnknownName(CpschedError, LookupError):
    """A name that is not in a catalogue; the message lists those that are, and the one that was probably meant."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}")
        self.kind = kind
        self.name = name


RAISED = (Exception, SystemExit)
"""What is caught of a plug-in: one that exits has failed, too."""

METHODS = {"dispatcher": ("decide",), "predictor": ("fill", "predict"), "trace format": ("_record",)}
"""By part: the methods whose answers are checked."""


class PluginError(CpschedError):
    """Something that can be plugged in raised, or answered what its contract does not allow.

    The message reads `dispatcher MyDispatcher: what happened (mine.py:12, in decide)`; what it raised is the
    `__cause__`. `place` is the line of its author's code, where that is known.
    """

    exit_code = 1

    def __init__(self, part: str, of: object, what: str, place: SourceLocation | None = None) -> None:
        of = unwrap_plugin(of)
        place = place or plugin_source_location(None, of, METHODS.get(part, ()))
        name = of if isinstance(of, str) else type(of).__name__
        super().__init__(f"{part} {name}: {what}" + (f" ({escape_controls(str(place))})" if place else ""))
        self.part = part
        self.place = place


class PolicyError(PluginError):
    """A dispatcher or predictor raised, or answered what its contract does not allow.

    `Policy` raises nothing else for whatever they do, so that a caller can count one failed decision and go on.
    """


class PluginLoadError(CpschedError):
    """What `words` name cannot be used; the message reads `kind words: reason (mine.py:3)`.

    `place` is the line of its author's code that raised, where one did.
    """

    def __init__(self, kind: str, words: str, reason: str, place: SourceLocation | None = None) -> None:
        super().__init__(f"{kind} {words}: {reason}" + (f" ({escape_controls(str(place))})" if place else ""))
        self.place = place
        self.kind = kind
        self.words = words
        self.reason = reason


FOREIGN_CHARS = 500
"""Letters of a foreign error's message that are kept: a plug-in must not fill a journal."""


def exception_message(error: BaseException) -> str:
    """The message of an exception: bounded, printable, and a text even if the exception cannot tell its message."""
    try:
        return escape_controls(str(error)[:FOREIGN_CHARS])
    except Exception:
        return "(its message cannot be read)"


def describe_exception(error: BaseException) -> str:
    """The kind and the message of an exception, as faults tell it."""
    return f"{type(error).__name__}: {exception_message(error)}"


def escape_controls(text: str) -> str:
    """`text` in one line, with nothing that would steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def abbreviate(things: Sequence[T], most: int, between: str = ", ", text: Callable[[T], str] = str) -> str:
    """The first `most` of some things, and how many more there are: `n1, n2 and 3 more`, `it fails; so and 1 more`."""
    more = len(things) - most
    told = between.join(map(text, things[:most]))
    return f"{told}{between.rstrip(', ')} and {more:,} more" if more > 0 else told


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: the known name that is most like `name`; empty where none is like it."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def require(holds: bool, field: str, value: object, rule: str) -> None:
    """Raise `InvalidValue` unless `holds`."""
    if not holds:
        raise InvalidValue(field, value, rule)
