"""The application that contains the commands, and its error reporting."""

from __future__ import annotations

import os
import sys

import typer

from cpsched_sim import command_conventions
from cpsched_sim.command_conventions import SHORT_HELP, ErrorReportingCommandGroup, print_json

app = typer.Typer(
    cls=ErrorReportingCommandGroup,
    help="Replay traces, list dispatchers and predictors, generate workloads.",
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    pretty_exceptions_enable=False,
)


def add_current_directory() -> None:
    """Let `package.module:Class` refer to modules in the current folder.

    Installed modules take precedence.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


__all__ = ["add_current_directory", "app", "print_json", "reporting"]

reporting = command_conventions.with_error_reporting(first=add_current_directory)
"""Report a command's errors in one line, and allow plug-ins in the current folder."""
