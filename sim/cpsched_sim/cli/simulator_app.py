"""The application that contains the commands, and their error reporting."""

from __future__ import annotations

import os
import sys

import typer

from cpsched_sim import cli_shell
from cpsched_sim.cli_shell import SHORT_HELP, CommandGroup, echo_json

app = typer.Typer(
    cls=CommandGroup,
    help="Replay traces, list dispatchers and predictors, generate workloads.",
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    pretty_exceptions_enable=False,
)


def add_current_directory() -> None:
    """Let `package.module:Class` name a module of the current folder, after all installed ones."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


__all__ = ["add_current_directory", "app", "echo_json", "reporting"]

reporting = cli_shell.report_errors(first=add_current_directory)
"""Report a command's errors in one line; plug-ins may be in the current folder."""
