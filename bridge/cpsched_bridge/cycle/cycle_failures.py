"""What the exceptions of a cycle are called in the journal, in the metrics and as a cycle's result."""

from __future__ import annotations

import contextlib
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from cpsched.errors import FOREIGN_CHARS, PolicyError, exception_message
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused, InvalidSetting

INTERNAL = "internal_error"
"""An exception that nobody expected: a bug of the bridge, of an adapter or of a listener."""

STORAGE = "storage_error"

_LONGEST_TRACEBACK = 10_000
_CALLS = 30
"""Calls that a traceback in the log shows."""

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (BackendTimeout, "backend_timeout"),
    (BackendUnavailable, "backend_unavailable"),
    (CommandRefused, "command_refused"),
    (BackendError, "backend_error"),
    (sqlite3.Error, STORAGE),
)


def kind_of(error: Exception) -> str:
    """The snake-case name of what failed."""
    return next((name for kind, name in _KINDS if isinstance(error, kind)), INTERNAL)


def describe_failure(error: BaseException) -> str:
    """Type and message of an exception, at bounded length, even if the exception cannot tell its message.

    A `PolicyError` names the part of the policy and what that raised, so its own type adds nothing.
    """
    words = exception_message(error)
    named = words if isinstance(error, PolicyError) else f"{type(error).__name__}: {words}"
    return named[:FOREIGN_CHARS]


def traceback_of(error: BaseException) -> str:
    """The innermost calls of an exception's traceback for the log, at bounded length."""
    return "".join(traceback.format_exception(error, limit=-_CALLS))[:_LONGEST_TRACEBACK]


@contextmanager
def failing_cycle(report: CycleReport, *storage: type[Exception]) -> Iterator[None]:
    """An exception in here fails the cycle and goes no further; those of type `storage` mean the disk.

    A `InvalidSetting` is raised: the bridge must not go on with it.
    """
    try:
        yield
    except InvalidSetting:
        raise
    except Exception as error:
        kind = STORAGE if isinstance(error, storage) else kind_of(error)
        if kind == INTERNAL:
            log_traceback(report, error)
        report.fail(kind, describe_failure(error) if kind == INTERNAL else str(error))


def log_traceback(report: CycleReport, error: Exception) -> None:
    """Show an unexpected exception of a cycle in the log, where that takes anything."""
    with contextlib.suppress(OSError, ValueError):
        structlog.get_logger("bridge").error(INTERNAL, round=report.number, exception=traceback_of(error))
