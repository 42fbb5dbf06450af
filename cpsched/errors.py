"""The exceptions of the decision core.

An exception means that the program or the outside broke; infeasible, late, no room are results.

    CpschedError            everything this package raises on purpose
    ├── InvalidValue        a value broke its own rule: the message names value and rule (exit code 2)
    ├── UnknownName         a dispatcher, predictor or parameter nobody knows: the message lists the known ones
    ├── Unloadable          a plug-in, or a `package.module:Class`, that cannot be used: the message says why
    └── DecisionFault       a dispatcher or predictor broke its contract: one failed decision, not the end of a program
"""

from __future__ import annotations

from collections.abc import Iterable


class CpschedError(Exception):
    """Base of everything this package raises on purpose."""


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


class DecisionFault(CpschedError):
    """A dispatcher or predictor raised, or answered what its contract does not allow.

    `Policy` raises nothing else for whatever they do, so that a caller can count one failed decision and go on. The
    message reads `dispatcher MyDispatcher: ...`; what they raised is the `__cause__`.
    """

    def __init__(self, part: str, of: object, what: str) -> None:
        super().__init__(f"{part} {type(of).__name__}: {what}")
        self.part = part


class Unloadable(CpschedError):
    """What `words` name cannot be used; the message reads `kind words: reason`."""

    def __init__(self, kind: str, words: str, reason: str) -> None:
        super().__init__(f"{kind} {words}: {reason}")
        self.kind = kind
        self.words = words
        self.reason = reason


FOREIGN_CHARS = 500
"""Letters of a foreign error's message that are kept: a plug-in must not fill a journal."""


def message_of(error: BaseException) -> str:
    """The message of an exception: bounded, printable, and a text even if the exception cannot tell its message."""
    try:
        return printable(str(error)[:FOREIGN_CHARS])
    except Exception:
        return "(its message cannot be read)"


def printable(text: str) -> str:
    """`text` in one line, with nothing that would steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: the known name that is most like `name`; empty where none is like it."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def require(holds: bool, field: str, value: object, rule: str) -> None:
    """Raise `InvalidValue` unless `holds`."""
    if not holds:
        raise InvalidValue(field, value, rule)
