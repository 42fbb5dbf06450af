"""Conventions of all commands: one-line errors, `-h`, and unwritable output.

A command exits with code 0, or prints a one-line `error: ...` on stderr. The exit code is 2 for invalid input or an
external failure, 1 for a failed check or replay, and 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import typer
from pydantic_core import to_jsonable_python
from rich.markup import escape
from typer.core import TyperGroup

from cpsched.errors import CpschedError
from cpsched_sim import kernel_warm_up
from cpsched_sim.errors import quote_value

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_HELP_OPTIONS = ["-h", "--help"]
SHORT_HELP = {"help_option_names": _HELP_OPTIONS}
"""Typer context settings of a program, inherited by its commands."""
MAX_MESSAGE_CHARS = 4_000
_UsageError: Any = typer.BadParameter.__mro__[2]
"""The base class of all usage errors, which Typer does not export."""


def print_message(kind: str, message: object) -> None:
    """Print `kind: message` as one line on stderr."""
    typer.echo(f"{kind}: {quote_value(message, MAX_MESSAGE_CHARS)}", err=True)


_printed_objects: list[object] = []
"""The JSON objects printed on stdout so far: results, or an error."""


def print_json(content: object) -> None:
    """Print one JSON object on stdout."""
    _printed_objects.append(content)
    typer.echo(json.dumps(content))
    sys.stdout.flush()


def print_report(
    report: T, print_text: Callable[[T], object], as_json: bool, to_json: Callable[[T], Any] = to_jsonable_python
) -> None:
    """Print the output of a command: `report` as text, or as JSON."""
    if as_json:
        print_json(to_json(report))
    else:
        print_text(report)


def error_to_json(error: Exception) -> dict[str, Any]:
    """Return an error as JSON: its kind, its message and a plug-in's source line."""
    place = getattr(error, "place", None)
    where = {"file": place.file, "line": place.line} if place is not None else {"file": None, "line": None}
    return {"error": {"kind": type(error).__name__, "message": quote_value(error, MAX_MESSAGE_CHARS), **where}}


def with_error_reporting(first: Callable[[], object] | None = None) -> Callable[[F], F]:
    """Return a decorator with which a command reports an error as one line.

    There is no traceback. `first` runs before the command. Exit codes:

    - A `CpschedError`: the `exit_code` of the exception, or 2 if it has none.
    - Ctrl-C: 130.

    With `--json` (the command's argument `as_json`), the error is also printed as a JSON object on stdout, unless
    results have already been printed (see `error_to_json`).
    """

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def run_with_error_reporting(*args: Any, **kwargs: Any) -> Any:
            if first is not None:
                first()
            if not kwargs.get("quiet"):
                kernel_warm_up.show_compile_progress()
            _printed_objects.clear()
            try:
                return command(*args, **kwargs)
            except CpschedError as error:
                print_message("error", error)
                if kwargs.get("as_json") and not _printed_objects:
                    print_json(error_to_json(error))
                raise typer.Exit(getattr(error, "exit_code", 2)) from error
            except KeyboardInterrupt:
                typer.echo("interrupted", err=True)
                raise typer.Exit(130) from None

        return run_with_error_reporting  # type: ignore[return-value]

    return decorate


class ErrorReportingCommandGroup(TyperGroup):
    """The commands of a program. Usage errors and failed output are one-line errors."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _escape_help_texts(self)

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        """Resolve the command. Two words may name one command."""
        if " ".join(words[:2]) in self.commands:
            words = [" ".join(words[:2]), *words[2:]]
        return super().resolve_command(context, words)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit with its exit code."""
        standalone = extra.get("standalone_mode", True)
        run = partial(super().main, *args, **{**extra, "standalone_mode": False})
        return sys.exit(_run_to_exit_code(run)) if standalone else run()


def _iterate_option_names(command: Any) -> Iterator[str]:
    """Yield the option names of a command and its subcommands."""
    for parameter in command.params:
        yield from parameter.opts
    for below in getattr(command, "commands", {}).values():
        yield from _iterate_option_names(below)


def _escape_help_texts(command: Any) -> None:
    """Escape the help texts of a command and its subcommands.

    Typer would parse them as Rich markup.
    """
    for holder in (command, *command.params):
        for text in ("help", "epilog"):
            if shown := getattr(holder, text, None):
                setattr(holder, text, escape(shown).replace(":", ":[none][/none]"))  # prevents emoji codes after a tag
    for below in getattr(command, "commands", {}).values():
        _escape_help_texts(below)


def _run_to_exit_code(run: Callable[[], Any]) -> int:
    """Run a command, flush its output and return its exit code."""
    try:
        try:
            code = run()
        finally:
            sys.stdout.flush()
    except _UsageError as error:
        return _report_usage_error(error)
    except OSError as error:
        _discard_buffered_stdout()
        if error.errno != errno.EPIPE:
            print_message("error", f"{error.filename or 'output'}: {error.strerror or error}")
        return 1 if error.errno == errno.EPIPE else 2
    except MemoryError:
        print_message("error", "not enough memory")
        return 2
    except typer.Abort:
        print_message("error", "aborted")
        return 1
    return code if isinstance(code, int) else 0


def _report_usage_error(error: Any) -> int:
    """Report a usage error, with the command whose help explains it.

    Return the exit code.
    """
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        where = f"; `{context.command_path} -h` explains the usage" if context is not None else ""
        message = " ".join(error.format_message().split()).removesuffix(".").partition(" (Possible options: ")[0]
        close = list(getattr(error, "possibilities", None) or ())
        meant = f"; did you mean {close[0]!r}?" if close and "Did you mean" not in message else ""
        print_message("error", message + meant + where)
    return int(error.exit_code)


def _discard_buffered_stdout() -> None:
    """Discard what remains in stdout's buffer.

    Otherwise, Python would fail again at exit.
    """
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return


def run_all_steps_despite_errors(*steps: Callable[[], object]) -> None:
    """Run every step, even if an earlier one fails.

    For example, results that cannot be saved are still printed.

    Raise the exception of the first failed step and print the others.
    """
    failed: list[Exception] = []
    for step in steps:
        try:
            step()
        except (CpschedError, OSError) as error:
            failed.append(error)
    for other in failed[1:]:
        print_message("error", other)
    if failed:
        raise failed[0]
