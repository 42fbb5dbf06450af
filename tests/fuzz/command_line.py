"""Run a command in this process with a deadline, and check how it ends."""

from __future__ import annotations

import faulthandler
import io
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer

from cpsched_bridge.program.cli import app

CPU_S = 10.0
"""Limit of processor time; a case takes milliseconds."""
WALL_S = 100.0
"""The same for commands that wait; the limit allows for a busy machine."""


class Hang(BaseException):
    """The deadline passed. Not an `Exception`, so that it is not counted as a failure of the file."""


@contextmanager
def deadline() -> Iterator[None]:
    """Raise `Hang` in the block after the deadline; if compiled code blocks it, end the process."""

    def ring(number: int, frame: object) -> None:
        raise Hang(f"not through after {CPU_S} s of processor time, or {WALL_S} s")

    before = [signal.signal(number, ring) for number in (signal.SIGVTALRM, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
    faulthandler.dump_traceback_later(2 * WALL_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGVTALRM, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


@cache
def program() -> Any:
    """Return the command tree of the program, built once, since building costs more than most cases."""
    return typer.main.get_command(app)


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a command: `error` is its exception for `invoke_catching`, None if it exited."""

    exit_code: int
    stdout: str
    stderr: str
    error: BaseException | None = None


def invoke(*arguments: object) -> Ended:
    """Run the command in this process with streams like a terminal's; an exception fails the test."""
    ended = invoke_catching(*arguments)
    if ended.error is not None:
        raise ended.error
    return ended


def invoke_catching(*arguments: object) -> Ended:
    """Run the command with strict UTF-8 output and return its exception, too."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    code, error = 0, None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            program().main([str(argument) for argument in arguments], prog_name="cpsched")
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
        except Exception as raised:
            error = raised
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]  # type: ignore[attr-defined]
    return Ended(code, *texts, error)


def complaint(*arguments: object) -> str:
    """Return what is wrong with the end of a command; "" if it succeeded or failed with one line and exit code 2."""
    with deadline():
        result = invoke_catching(*arguments)
    if result.error is not None:
        return "".join(traceback.format_exception(result.error)[-12:])
    if result.exit_code == 0:
        return ""
    if result.exit_code != 2:
        return f"exit code {result.exit_code}: {result.stderr}"
    errors = [text for text in result.stderr.split("\n")[:-1] if not text.startswith(("note: ", "warning: "))]
    if len(errors) != 1 or not errors[0].startswith("error: "):
        return f"not one line that says what is wrong: {result.stderr!r}"
    if not errors[0].isprintable():
        return f"raw control characters: {errors[0]!r}"
    return ""
