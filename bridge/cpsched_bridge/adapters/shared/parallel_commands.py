"""Run programs in parallel with one deadline, and return all answers or fail.

An answer is valid if its program exited, the adapter's `ExitInterpreter` reports no error, and the output has at most
`MAX_OUTPUT_BYTES`. Programs are killed at the deadline and when the bridge dies. Optionally, the deadline limits the
time without output instead: any output extends it, up to a final deadline.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, ProgramMissing
from cpsched_bridge.socket_child_process import kill_with_parent

MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""Maximum length of an answer in bytes. 10,000 ordinary jobs need about 15 MB."""
_CHUNK = 1 << 18
_MAX_STDERR_BYTES = 4096

ExitInterpreter = Callable[[str, int, str], BackendError | None]
"""A function that maps a command, its exit status and its error output to an error, or to None on success."""


@dataclass(slots=True)
class _RunningProgram:
    process: subprocess.Popen[bytes]
    printed: list[bytes] = field(default_factory=list)
    complained: list[bytes] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)


class ParallelCommands:
    """A set of programs that run in parallel.

    `commands` maps the name of each answer to its program, and `typed` maps it to the program's standard input. If
    `most_s` exceeds `deadline_s`, the programs may print nothing for `deadline_s` seconds, and take `most_s` seconds in
    total. The constructor raises `CommandRefused` if a program cannot be run.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        deadline_s: float,
        environment: Mapping[str, str],
        judge: ExitInterpreter,
        typed: Mapping[str, str] | None = None,
        most_s: float = 0.0,
    ) -> None:
        self._judge = judge
        self._deadline_s, self._until_s = deadline_s, time.monotonic() + deadline_s
        self._last_s = time.monotonic() + max(deadline_s, most_s)
        self._commands = {name: list(command) for name, command in commands.items()}
        self._selector = selectors.DefaultSelector()
        self._running: dict[str, _RunningProgram] = {}
        self._texts: dict[str, str] = {}
        self._error: BackendError | None = None
        for name, command in self._commands.items():
            try:
                self._running[name] = self._start_program(name, command, environment, (typed or {}).get(name))
            except OSError as error:
                self.close()
                where = f"not found in PATH={environment.get('PATH', '')}"
                why = where if isinstance(error, FileNotFoundError) else f"cannot run: {error.strerror or error}"
                raise ProgramMissing(f"{command[0]}: {why}") from error

    def _start_program(
        self, name: str, command: list[str], environment: Mapping[str, str], typed: str | None
    ) -> _RunningProgram:
        with contextlib.ExitStack() as files:
            stdin: int = subprocess.DEVNULL
            if typed is not None:
                source = files.enter_context(tempfile.TemporaryFile())
                source.write(typed.encode())
                source.seek(0)
                stdin = source.fileno()
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                bufsize=0,
                preexec_fn=kill_with_parent,
            )
        assert process.stdout is not None
        assert process.stderr is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, name)
        self._selector.register(process.stderr, selectors.EVENT_READ, name)
        return _RunningProgram(process)

    def wait_for_outputs(self, wait_s: float) -> bool:
        """Wait at most `wait_s` seconds.

        Return whether `collect_outputs` can then return immediately.
        """
        waits_until_s = time.monotonic() + wait_s
        while self._running and self._error is None:
            left_s = min(waits_until_s, self._until_s) - time.monotonic()
            for key, _ in self._selector.select(max(0.0, left_s)):
                self._read_chunk(key)
            self._collect_exited_programs()
            if left_s <= 0.0:
                break
        if self._running and self._error is None and time.monotonic() >= self._until_s:
            names = ", ".join(" ".join(self._commands[name][:3]) for name in self._running)
            self._error = BackendTimeout(f"{names}: no response within {self._deadline_s:.3g} s; killed")
        return self._error is not None or not self._running

    def collect_outputs(self) -> dict[str, str]:
        """Return all answers by name, with invalid UTF-8 escaped, by the deadline.

        - Raise `BackendUnavailable` if the controller was not reached, or if an answer is damaged.
        - Raise `BackendTimeout` if the deadline passes first.
        - Raise `CommandRefused` if the controller refuses to answer (privilege, version).
        """
        self.wait_for_outputs(self._last_s - time.monotonic())
        self.close()
        if self._error is not None:
            raise self._error
        return dict(self._texts)

    def close(self) -> None:
        """Kill the programs that are still running."""
        for running in self._running.values():
            running.process.kill()
            self._close_pipes(running)
        self._running.clear()
        self._selector.close()

    def _read_chunk(self, key: selectors.SelectorKey) -> None:
        running = self._running[key.data]
        chunk = os.read(key.fd, _CHUNK)
        if not chunk:
            self._selector.unregister(key.fileobj)
            return
        self._until_s = max(self._until_s, min(self._last_s, time.monotonic() + self._deadline_s))
        is_complaint = key.fileobj is running.process.stderr
        size = running.sizes[key.fd] = running.sizes.get(key.fd, 0) + len(chunk)
        if is_complaint and size <= _MAX_STDERR_BYTES + _CHUNK:
            running.complained.append(chunk)
        elif not is_complaint:
            running.printed.append(chunk)
        if size > MAX_OUTPUT_BYTES:
            command = " ".join(self._commands[key.data][:3])
            self._error = BackendUnavailable(f"{command}: printed more than {MAX_OUTPUT_BYTES} bytes; killed")

    def _collect_exited_programs(self) -> None:
        """Interpret the exit statuses of programs that have closed both outputs."""
        open_names = {key.data for key in self._selector.get_map().values()}
        for name in [name for name in self._running if name not in open_names]:
            running = self._running.pop(name)
            try:
                status = running.process.wait(max(0.1, self._until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                running.process.kill()
                status = running.process.wait()
            self._close_pipes(running)
            command = " ".join(self._commands[name][:3])
            complaint = b"".join(running.complained)[:_MAX_STDERR_BYTES].decode(errors="backslashreplace").strip()
            error = self._judge(command, status, complaint)
            if error is None:
                self._texts[name] = b"".join(running.printed).decode(errors="backslashreplace")
            elif self._error is None:
                self._error = error

    @staticmethod
    def _close_pipes(running: _RunningProgram) -> None:
        for pipe in (running.process.stdout, running.process.stderr):
            if pipe is not None:
                pipe.close()
        running.process.wait()


def format_error_output(complaint: str, status: int) -> str:
    """Return error output as one line, or the exit status if the output is empty."""
    return "; ".join(line.strip() for line in complaint.splitlines() if line.strip()) or f"exit status {status}"
