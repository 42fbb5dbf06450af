"""The exceptions of the simulator.

SimError                the outside broke: a file, a setting, a combination that makes no sense (exit code 2)
├── InvalidTrace        one line of a trace broke a rule: `file:line: field: value: rule`
├── InvalidSystem       a system file broke a rule: `file:line: field: value: rule`
└── Unusable            a file or a combination of options cannot be used; the message says why
"""

from __future__ import annotations

from pathlib import Path


class SimError(Exception):
    """Base of everything this package raises on purpose."""


class _AtLine(SimError):
    """Something in a file; the message reads `file:line: field: value: rule`."""

    def __init__(self, path: Path, line: int, field: str, value: object, rule: str) -> None:
        super().__init__(f"{path}:{line}: {field}: {value}: {rule}")
        self.path = path
        self.line = line
        self.field = field
        self.value = value
        self.rule = rule


class InvalidTrace(_AtLine):
    """One line of a trace broke a rule; skipped and counted where reading is lenient."""


class InvalidSystem(_AtLine):
    """A system file broke a rule."""


class Unusable(SimError):
    """A file or a combination of options cannot be used."""
