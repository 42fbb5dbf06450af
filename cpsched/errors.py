"""The exceptions of the decision core.

An exception means that the program or the outside broke; infeasible, late, no room are results.

    CpschedError            everything this package raises on purpose
    ├── InvalidValue        a value broke its own rule: the message names value and rule (exit code 2)
    └── UnknownName         a dispatcher, predictor or parameter nobody knows: the message lists the known ones
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
    """A name that is not in a catalogue; the message lists those that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(sorted(known))}")
        self.kind = kind
        self.name = name


def require(holds: bool, field: str, value: object, rule: str) -> None:
    """Raise `InvalidValue` unless `holds`."""
    if not holds:
        raise InvalidValue(field, value, rule)
