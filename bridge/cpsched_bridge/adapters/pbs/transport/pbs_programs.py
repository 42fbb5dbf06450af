"""Run PBS's programs with deadlines."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cpsched_bridge.adapters.shared.adapter_errors import make_failure_error
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_sim.program_runner import ProgramResult, ProgramRunner

FIXED_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0"}
"""Environment settings: untranslated messages, and UTC because PBS prints local times without a zone."""


def build_pbs_environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with the settings in `FIXED_ENVIRONMENT`.

    The environment locates pbs.conf.
    """
    return dict(os.environ if own is None else own) | FIXED_ENVIRONMENT


PROGRAM_NAMES = ("qstat", "pbsnodes", "pbs_rstat", "qmgr", "qrun", "qmove", "qalter")
_UNREACHABLE_ERRORS = re.compile(
    r"cannot connect|connection refused|no default server|connection timed out|end of file|communication failure|"
    r"server shutting down|could not connect|pbs_iff|errno=15(?:031|034|096)|broken pipe|connection reset",
    re.I,
)
_REFUSED_ERRORS = re.compile(r"unauthorized|permission denied|access .*denied|illegal option|invalid option", re.I)


def interpret_result(result: ProgramResult) -> BackendError | None:
    """Return the error that a query's result indicates.

    Return None on success.
    """
    error = _interpret_command_result(result)
    if error is None or result.failure is not None or _REFUSED_ERRORS.search(result.complaint):
        return error
    return BackendUnavailable(str(error))


class PbsProgramRunner:
    """A runner for PBS's programs in the folder `bin`, or on the search path if "".

    A query takes at most `within_s` seconds.
    """

    def __init__(self, bin: str = "", within_s: float = 10.0) -> None:
        self._bin = bin
        self.within_s = within_s

    def list_missing_programs(self) -> list[str]:
        """Return the names of missing programs."""
        return [name for name in PROGRAM_NAMES if shutil.which(self._resolve_path(name)) is None]

    def query(self, commands: Mapping[str, Sequence[str]], until_s: float | None = None) -> dict[str, str]:
        """Return all outputs by name. Raise a `BackendError` if an output is missing.

        `until_s` is a deadline on the monotonic clock.
        """
        left_s = self.within_s if until_s is None else until_s - time.monotonic()
        if left_s <= 0:
            raise BackendTimeout(f"{', '.join(commands)}: exceeded the time limit of {self.within_s:g} s")
        placed = {name: self._place(command) for name, command in commands.items()}
        return _QUERIES.start(placed, left_s).collect_outputs()

    def run_command(self, command: Sequence[str], within_s: float | None = None) -> None:
        """Run one command.

        Raise `CommandRefused` if PBS rejected it, and `BackendTimeout` if the result is unknown.
        """
        (error,) = self.run_commands([command], within_s)
        if error is not None:
            raise error

    def run_commands(
        self, commands: Sequence[Sequence[str]], within_s: float | None = None
    ) -> list[BackendError | None]:
        """Run commands in parallel. Return the error that `run_command` would raise for each, or None."""
        placed = {str(at): self._place(command) for at, command in enumerate(commands)}
        results = _COMMANDS.start(placed, self.within_s if within_s is None else within_s).collect_results()
        return [_interpret_as_command(results[name]) for name in placed]

    def run_directives(self, directives: Sequence[str]) -> str:
        """Run directives of `qmgr` in order, until one fails. Return their output.

        Raise the errors of `run_command`. `qmgr -c` would run only one directive.
        """
        typed = "".join(f"{directive}\n" for directive in directives)
        running = _COMMANDS.start({"": self._place(["qmgr", "-a"])}, self.within_s, {"": typed})
        result = running.collect_results()[""]
        error = _interpret_as_command(result)
        if error is not None:
            raise error
        return result.output

    def _place(self, command: Sequence[str]) -> list[str]:
        return [self._resolve_path(command[0]), *command[1:]]

    def _resolve_path(self, name: str) -> str:
        return str(Path(self._bin) / name) if self._bin else name


def _interpret_as_command(result: ProgramResult) -> BackendError | None:
    """Return a command's error, or None on success. A command without a response may have had an effect."""
    error = _interpret_command_result(result)
    return BackendTimeout(str(error)) if isinstance(error, BackendUnavailable) else error


def _interpret_command_result(result: ProgramResult) -> BackendError | None:
    """Return a command's error, or None on success.

    An error message from the server counts as a refusal.
    """
    if result.failure is not None or result.has_succeeded:
        return make_failure_error(result)
    text = f"{result.command}: {result.error}"
    return BackendUnavailable(text) if _UNREACHABLE_ERRORS.search(result.complaint) else CommandRefused(text)


_QUERIES = ProgramRunner(build_pbs_environment, interpret_result)
_COMMANDS = ProgramRunner(build_pbs_environment)

Clock = Callable[[], float]
