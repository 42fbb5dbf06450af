"""Configure the bridge's log: text on a terminal, otherwise JSON lines."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


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
