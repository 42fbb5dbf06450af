"""Configure the bridge's log, and limit the lines that clients can cause.

The first line of each kind in a minute is logged, and the others are counted.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import structlog
from typing_extensions import override

from cpsched.errors import escape_controls

MINUTE_S = 60.0
_MAX_KINDS = 32
_OTHER = "other lines"
_MAX_MESSAGE_CHARS = 300

Tell = Callable[[str, int, str], None]
"""A function that receives a message, its count since the last output, and a traceback or an empty string."""


def configure_logging(form: Literal["auto", "json", "text"], level: int = logging.INFO) -> None:
    """Configure logging to stderr in the given format."""
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if text else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def write_client_log_line(message: str, times: int, traced: str) -> None:
    """Write one line to the bridge's log."""
    more = {"traceback": "\n".join(map(escape_controls, traced.splitlines()))} if traced else {}
    structlog.get_logger("bridge").warning("clients", detail=escape_controls(message), times=times, **more)


@dataclass(slots=True)
class LogRateLimit:
    """A rate limit for log messages by kind. `clock` returns seconds."""

    tell: Tell = write_client_log_line
    clock: Callable[[], float] = time.monotonic
    _counts: dict[str, int] = field(default_factory=dict)
    """Number of messages of each kind in the current minute since the last output."""
    _since_s: float | None = None

    def log(self, message: str, kind: str = "", traced: str = "") -> None:
        """Log the first message of its kind in this minute, and count the others.

        By default, each distinct message is a kind of its own.
        """
        self.flush_minute()
        kind = kind or message
        if kind not in self._counts and len(self._counts) >= _MAX_KINDS:
            kind = message = _OTHER
        if kind in self._counts:
            self._counts[kind] += 1
        else:
            self._counts[kind] = 0
            self.tell(message[:_MAX_MESSAGE_CHARS], 1, traced)

    def flush_minute(self) -> None:
        """At the end of a minute, log the remaining count of each kind.

        The caller must call this regularly.
        """
        now_s = self.clock()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < MINUTE_S:
            return
        self._since_s, counts = now_s, self._counts
        self._counts = {kind: 0 for kind, times in counts.items() if times}
        for kind, times in counts.items():
            if times:
                self.tell(kind[:_MAX_MESSAGE_CHARS], times, "")


class RateLimitedHandler(logging.Handler):
    """A handler that applies the rate limit to a library's log lines."""

    def __init__(self, limit: LogRateLimit) -> None:
        super().__init__(logging.WARNING)
        self._said = limit

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Log the record unless it reports a response cancelled on shutdown."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CancelledError):
            return
        first = record.getMessage().strip().partition("\n")[0]
        message = f"{first}: {type(error).__name__}: {error}" if error else first
        kind = f"{str(record.msg).partition(chr(10))[0]} {type(error).__name__}"
        self._said.log(message, kind, "".join(traceback.format_exception(error)) if error else "")

    def capture_loggers(self, *names: str) -> None:
        """Redirect the named loggers to this handler alone."""
        for name in names:
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self], False
