"""The exceptions of the simulator.

SimulationError         a `CpschedError`: an invalid file, setting, or combination of settings (exit code 2)
├── InvalidFile         the content of a file breaks a rule: `file:line: field: value: rule`
│   ├── InvalidTrace    a line of a trace breaks a rule
│   ├── InvalidSystem   a system file breaks a rule
│   └── InvalidPolicy   a policy file, or a dump that it refers to, breaks a rule
├── InputError          a file or a combination of options is unusable; the message states the reason
│   ├── UnknownFormat   a file is not a trace in a known format
│   └── MissingFile     a file is missing; also a `FileNotFoundError`
└── Stalled             a plug-in hangs; the message contains file and line (exit code 1)
"""

from __future__ import annotations

from pathlib import Path

from cpsched.errors import CodeLocation, CpschedError, escape_controls

MAX_QUOTED_CHARS = 80
"""Maximum number of characters of a value to quote in a message."""


class SimulationError(CpschedError):
    """Base class of all exceptions that this package raises."""


class InvalidFile(SimulationError):
    """A file that breaks a rule. The message is `file:line: field: value: rule`."""

    def __init__(self, path: Path, line: int, field: str, value: object, rule: str) -> None:
        super().__init__(
            f"{quote_value(path, 1000)}:{line}: {quote_value(field)}: {quote_value(value)}: {quote_value(rule, 1000)}"
        )
        self.path = path
        self.line = line
        self.field = field
        self.value = value
        self.rule = rule


class InvalidTrace(InvalidFile):
    """A line of a trace that breaks a rule. A lenient reader skips and counts it."""


class InvalidSystem(InvalidFile):
    """A system file that breaks a rule."""


class InvalidPolicy(InvalidFile):
    """A policy file, or a Slurm dump that it refers to, that breaks a rule."""


class InputError(SimulationError):
    """An unusable file or combination of options. The message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(quote_value(message, 2000))


class UnknownFormat(InputError):
    """A file that is not a trace in a known format."""


class MissingFile(InputError, FileNotFoundError):
    """A missing file or folder."""


class Stalled(SimulationError):
    """A plug-in that made no progress in time. `place` is the line that it executed."""

    exit_code = 1

    def __init__(self, limit_s: float, place: CodeLocation | None) -> None:
        where = f" ({quote_value(place, 1000)})" if place else ""
        super().__init__(
            f"no progress within {limit_s:g} s{where}; set a longer limit with --decide-timeout, or 0 for none"
        )
        self.place = place


def quote_value(value: object, most: int = MAX_QUOTED_CHARS) -> str:
    """Format `value` for a message, as one line without terminal control codes.

    A longer text than `most` characters is cut, and its length is added.
    """
    try:
        text = str(value)
    except ValueError:  # Python refuses to convert integers of more than 4,300 digits
        return "a number with thousands of digits"
    return escape_controls(text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)")
