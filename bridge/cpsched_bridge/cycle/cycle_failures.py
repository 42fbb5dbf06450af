"""Name a cycle's exceptions for the journal, the metrics and the results."""

from __future__ import annotations

import contextlib
import sqlite3
import traceback

import structlog

from cpsched.errors import MAX_PLUGIN_MESSAGE_CHARS, PolicyError, exception_message
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused

INTERNAL = "internal_error"
"""Name of an unexpected exception, which indicates a bug in the bridge, an adapter or a listener."""

STORAGE = "storage_error"

_MAX_TRACEBACK_CHARS = 10_000
_MAX_TRACEBACK_CALLS = 30
"""Maximum number of calls shown in a logged traceback."""

_FAILURE_NAMES: tuple[tuple[type[Exception], str], ...] = (
    (BackendTimeout, "backend_timeout"),
    (BackendUnavailable, "backend_unavailable"),
    (CommandRefused, "command_refused"),
    (BackendError, "backend_error"),
    (sqlite3.Error, STORAGE),
)


def get_failure_kind(error: Exception) -> str:
    """Return the snake-case name of a failure."""
    return next((name for kind, name in _FAILURE_NAMES if isinstance(error, kind)), INTERNAL)


def describe_failure(error: BaseException) -> str:
    """Return an exception's type and message, with limited length. Never raise.

    The type of a `PolicyError` is omitted because its message names the part of the policy and the original exception.
    """
    text = exception_message(error)
    named = text if isinstance(error, PolicyError) else f"{type(error).__name__}: {text}"
    return named[:MAX_PLUGIN_MESSAGE_CHARS]


def format_traceback(error: BaseException) -> str:
    """Return the innermost calls of an exception's traceback, with limited length."""
    return "".join(traceback.format_exception(error, limit=-_MAX_TRACEBACK_CALLS))[:_MAX_TRACEBACK_CHARS]


def log_traceback(number: int, error: Exception) -> None:
    """Log the traceback of an unexpected exception in a cycle, if the log can be written."""
    with contextlib.suppress(OSError, ValueError):
        structlog.get_logger("bridge").error(INTERNAL, round=number, exception=format_traceback(error))
