"""Run programs in the background, with deadlines and in a defined environment. Define that of Slurm's programs.

Every program of a resource manager is started here, for the bridge and for the collection of a site's data. A result is
complete if the program exited by itself and printed at most `MAX_OUTPUT_BYTES`. Programs are killed at their deadline,
and when this process dies. Any output extends the deadline, up to a final one, because a program that prints a long
answer is not hung.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import IO, Protocol

from cpsched_sim.errors import InputError, quote_value

MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""Maximum length of an answer in bytes. 10,000 ordinary jobs need about 15 MB."""
_CHUNK = 1 << 18
_MAX_STDERR_BYTES = 4096
_CLOSING_CHECK_S = 0.1
"""Seconds after which `close` interrupts the wait for output."""
_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)  # loaded before a fork, which would leave the locks of other threads locked
COMMAND_TIMEOUT_S = 120
"""Time limit in seconds for a Slurm command."""
USE_FILE_HINT = "run `{command} > nodes.txt` on a host with Slurm, and pass that file"
KEPT_VARIABLES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
"""Variables that identify the cluster and the user."""
UNIX_TIME_FORMAT = "%s"
FIXED_ENVIRONMENT = {
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": UNIX_TIME_FORMAT,
    "TZ": "UTC0",
    "SLURM_BITSTR_LEN": "0",
    "INPUTRC": os.devnull,
}
"""Settings for untranslated messages, times in Unix seconds, and complete task lists of arrays.

- Without a named time zone, the C library opens the host's time zone file for each printed time. This takes most of
  squeue's CPU time when it prints thousands of jobs.
- The user's readline settings must not bind keys while scontrol reads commands.
"""
_DROPPED_PREFIXES = (
    "SLURM_", "SLURMDB_", "SCONTROL_", "SQUEUE_", "SINFO_", "SACCT_", "SACCTMGR_", "SPRIO_", "SSHARE_", "SCANCEL_",
)  # fmt: skip


class ProgramFailure(Enum):
    """Why a program did not exit by itself."""

    NOT_FOUND = auto()
    CANNOT_RUN = auto()
    TIMED_OUT = auto()
    OUTPUT_TOO_LONG = auto()


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What a program printed and how it ended. Invalid UTF-8 is escaped."""

    command: str
    """The first words of the command."""
    complaint: str
    """The error output, or the reason of a failure."""
    output: str = ""
    status: int = 0
    failure: ProgramFailure | None = None

    @property
    def has_succeeded(self) -> bool:
        """Return whether the output is complete and the exit status is 0."""
        return self.failure is None and self.status == 0

    @property
    def error(self) -> str:
        """Return the error output as one line, or the exit status if it is empty."""
        lines = (line.strip() for line in self.complaint.splitlines())
        return "; ".join(filter(None, lines)) or f"exit status {self.status}"


Interpreter = Callable[[ProgramResult], Exception | None]
"""A function that returns the error that a result indicates, or None on success."""


class CallBudget(Protocol):
    """A count of the calls that programs make, where the resource manager limits them."""

    def count_programs(self, commands: Mapping[str, Sequence[str]], typed: Mapping[str, str]) -> float:
        """Count the calls of programs that start now. Return the additional seconds that they may take."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramRunner:
    """A starter of programs in one environment. `interpret` returns the errors of their results."""

    build_environment: Callable[[], Mapping[str, str]]
    interpret: Interpreter = lambda result: None
    budget: CallBudget | None = None

    def start(
        self,
        commands: Mapping[str, Sequence[str]],
        deadline_s: float,
        typed: Mapping[str, str] | None = None,
        most_s: float = 0.0,
    ) -> RunningPrograms:
        """Start programs in parallel.

        `commands` maps the name of each answer to its program, and `typed` maps it to the program's standard input. If
        `most_s` exceeds `deadline_s`, the programs may print nothing for `deadline_s` seconds, and take `most_s`
        seconds in total.
        """
        extra_s = self.budget.count_programs(commands, typed or {}) if self.budget is not None else 0.0
        return RunningPrograms(self, commands, typed or {}, deadline_s + extra_s, most_s + extra_s)

    def run(self, command: Sequence[str], deadline_s: float) -> ProgramResult:
        """Run one program and return its result. Raise the error that `interpret` returns."""
        return self.start({"": command}, deadline_s).collect_results()[""]


@dataclass(slots=True)
class _RunningProgram:
    command: str
    process: subprocess.Popen[bytes]
    printed: bytearray
    complained: bytearray


class RunningPrograms:
    """Programs that run in parallel. A thread reads their output, so that a caller may wait or return later.

    The first result that indicates an error ends all of them.
    """

    def __init__(
        self,
        runner: ProgramRunner,
        commands: Mapping[str, Sequence[str]],
        typed: Mapping[str, str],
        deadline_s: float,
        most_s: float,
    ) -> None:
        self._interpret, environment = runner.interpret, runner.build_environment()
        self._deadline_s, self._until_s = deadline_s, time.monotonic() + deadline_s
        self._last_s = time.monotonic() + max(deadline_s, most_s)
        self._selector = selectors.DefaultSelector()
        self._running: dict[str, _RunningProgram] = {}
        self._results: dict[str, ProgramResult] = {}
        self._error: Exception | None = None
        self._is_closed = False
        for name, command in commands.items():
            try:
                self._start_program(name, command, environment, typed.get(name))
            except OSError as error:
                self._record(name, _make_unstarted_result(command[0], error, environment))
        self._reader = threading.Thread(target=self._read_outputs, name="program output", daemon=True)
        self._reader.start()

    def wait_for_outputs(self, wait_s: float) -> bool:
        """Wait at most `wait_s` seconds. Return whether all answers or an error are available."""
        self._reader.join(wait_s)
        return not self._reader.is_alive()

    def collect_results(self) -> dict[str, ProgramResult]:
        """Return all results by name, by the deadline. Raise the first error that a result indicates."""
        self._reader.join()
        if self._error is not None:
            raise self._error
        return dict(self._results)

    def collect_outputs(self) -> dict[str, str]:
        """Return all outputs by name, as `collect_results`."""
        return {name: result.output for name, result in self.collect_results().items()}

    def close(self) -> None:
        """Kill the programs that are still running."""
        self._is_closed = True
        self._reader.join()

    def _start_program(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], typed: str | None
    ) -> None:
        with contextlib.ExitStack() as files:
            stdin: int | IO[bytes] = subprocess.DEVNULL
            if typed is not None:
                stdin = files.enter_context(tempfile.TemporaryFile())
                stdin.write(typed.encode())
                stdin.seek(0)
            process = start_process(command, environment, stdin=stdin, stdout=subprocess.PIPE)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            self._selector.register(pipe, selectors.EVENT_READ, name)
        self._running[name] = _RunningProgram(" ".join(command[:3]), process, bytearray(), bytearray())

    def _read_outputs(self) -> None:
        while self._running and self._error is None and not self._is_closed:
            left_s = self._until_s - time.monotonic()
            for key, _ in self._selector.select(min(max(0.0, left_s), _CLOSING_CHECK_S)):
                self._read_chunk(key)
            self._collect_exited_programs()
            if left_s <= 0.0:
                why = f"no response within {self._deadline_s:.3g} s; killed"
                for name in list(self._running):
                    self._fail(name, ProgramFailure.TIMED_OUT, why)
        for name in list(self._running):
            self._stop(name)
        self._selector.close()

    def _read_chunk(self, key: selectors.SelectorKey) -> None:
        program = self._running.get(key.data)
        if program is None:  # its other pipe brought it to an end
            return
        chunk = os.read(key.fd, _CHUNK)
        if not chunk:
            self._selector.unregister(key.fileobj)
            return
        self._until_s = max(self._until_s, min(self._last_s, time.monotonic() + self._deadline_s))
        if key.fileobj is program.process.stderr:
            program.complained.extend(chunk[: _MAX_STDERR_BYTES - len(program.complained)])
        else:
            program.printed.extend(chunk)
        if len(program.printed) > MAX_OUTPUT_BYTES:
            why = f"printed more than {MAX_OUTPUT_BYTES} bytes; killed"
            self._fail(key.data, ProgramFailure.OUTPUT_TOO_LONG, why)

    def _collect_exited_programs(self) -> None:
        """Record the results of programs that have closed both outputs."""
        open_names = {key.data for key in self._selector.get_map().values()}
        for name in [name for name in self._running if name not in open_names]:
            process = self._running[name].process
            try:
                process.wait(max(0.1, self._until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
            program = self._stop(name)
            complaint = program.complained.decode(errors="backslashreplace").strip()
            output = program.printed.decode(errors="backslashreplace")
            self._record(name, ProgramResult(program.command, complaint, output, process.returncode))

    def _fail(self, name: str, failure: ProgramFailure, why: str) -> None:
        self._record(name, ProgramResult(self._stop(name).command, why, failure=failure))

    def _record(self, name: str, result: ProgramResult) -> None:
        self._results[name] = result
        self._error = self._error or self._interpret(result)

    def _stop(self, name: str) -> _RunningProgram:
        """Kill the program unless it has ended, and close its pipes."""
        program = self._running.pop(name)
        program.process.kill()
        for pipe in (program.process.stdout, program.process.stderr):
            if pipe is not None:
                pipe.close()
        program.process.wait()
        return program


def _make_unstarted_result(program: str, error: OSError, environment: Mapping[str, str]) -> ProgramResult:
    if isinstance(error, FileNotFoundError) and os.sep not in program:
        where = f"not found in PATH={environment.get('PATH', '')}"
        return ProgramResult(program, where, failure=ProgramFailure.NOT_FOUND)
    return ProgramResult(program, f"cannot run: {error.strerror or error}", failure=ProgramFailure.CANNOT_RUN)


def start_process(
    command: Sequence[str], environment: Mapping[str, str], *, stdin: int | IO[bytes], stdout: int
) -> subprocess.Popen[bytes]:
    """Start a program that ends with the thread that starts it. Raise `OSError`.

    Use `ProgramRunner` for a program that answers once. The pipes are not buffered.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    prefix = find_parent_death_prefix() if program is not None else ()
    return subprocess.Popen(
        [*prefix, program or command[0], *command[1:]],
        bufsize=0,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=None if prefix else kill_with_parent,
    )


@functools.cache
def find_parent_death_prefix() -> tuple[str, ...]:
    """Return a command that runs its arguments as a program that the kernel kills when its parent ends, or ().

    A `preexec_fn` has the same effect, but then each start copies this process's page tables: 8 ms instead of 1.5 ms of
    CPU time at 300 MB. `setpriv` has the option since util-linux 2.33.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    prefix = (setpriv, "--pdeathsig", "KILL")
    trial = subprocess.run([*prefix, setpriv, "--version"], capture_output=True, check=False)
    return prefix if trial.returncode == 0 else ()


def kill_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, where the kernel offers that."""
    if sys.platform == "linux":
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def run_slurm_command(
    command: str,
    time_format: str = UNIX_TIME_FORMAT,
    limit_s: float = COMMAND_TIMEOUT_S,
    elsewhere: str = USE_FILE_HINT,
) -> str:
    """Return the output of a Slurm command.

    The caller's Slurm settings, locale and time zone do not reach the command, which prints times in `time_format`.

    Raise `InputError` if the command is missing (with the advice `elsewhere`), fails, or exceeds `limit_s`.
    """
    runner = ProgramRunner(lambda: build_slurm_environment() | {"SLURM_TIME_FORMAT": time_format})
    result = runner.run(command.split(), limit_s)
    if result.failure is ProgramFailure.NOT_FOUND:
        raise InputError(f"{result.command} is not installed on this machine: {elsewhere.format(command=command)}")
    if result.failure is not None:
        raise InputError(f"{command}: {result.complaint}")
    if result.status:
        raise InputError(f"{command}: exit code {result.status}: {quote_value(result.complaint, 500)}")
    return result.output


def build_slurm_environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without unneeded Slurm settings.

    The omitted settings may select another cluster, change the output, or belong to an enclosing job.
    """
    kept = {
        name: value
        for name, value in (os.environ if own is None else own).items()
        if name in KEPT_VARIABLES or name.startswith("SLURM_SACK") or not name.startswith(_DROPPED_PREFIXES)
    }
    return kept | FIXED_ENVIRONMENT
