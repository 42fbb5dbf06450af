"""Send changes one at a time to the standard input of a single scontrol process.

scontrol prints nothing after a successful command, and an error to standard error after a failed one. Few errors name
the job. The session therefore sends an unknown keyword after each command, and scontrol reports it on standard error.
Any text before that report is the command's error, and the report proves that the command has ended.

Only one command is in progress at any time, so a bridge that dies leaves at most one command unfinished.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import subprocess
import time
from types import TracebackType

from cpsched_bridge.adapters.slurm.transport.programs.call_limits import (
    SlurmRpcTokenBucket,
    count_calls_of_scontrol_input,
)
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    make_not_sent_error,
)
from cpsched_sim.program_runner import build_slurm_environment, start_process

MAX_ERROR_BYTES = 1 << 20
"""Maximum size in bytes of the errors for one command. A program that prints more is stopped."""
MAX_BATCH_TIME_FACTOR = 6
"""Maximum time for all commands of one batch, as a multiple of a single command's deadline."""
EXIT_TIMEOUT_S = 1.0
"""Seconds in which a program must exit after it has closed its standard error."""
_WORD = r"[\w.,:/=%&+~\[\]-]+"
PERMITTED_COMMAND = re.compile(rf"{_WORD}(?: {_WORD}){{0,100}}", re.ASCII)
"""Pattern of permitted commands: text without quotes, line breaks or other characters special to scontrol.

Characters special to its line editor are not permitted either.
"""


class _ScontrolLost(Exception):
    """An error for a scontrol process that ended, hung or printed too much."""


class ScontrolSession:
    """A scontrol process that runs from the first command to the context's end.

    scontrol must answer each command within `within_s` seconds, and all commands within `MAX_BATCH_TIME_FACTOR` times
    that. With a call limit, each command first waits for its tokens in `budget`. The waits last at most
    `wait_s` seconds in total and do not count as scontrol's time. A command that would exceed `wait_s` is not sent.
    """

    def __init__(
        self,
        within_s: float,
        program: str = "scontrol",
        budget: SlurmRpcTokenBucket | None = None,
        wait_s: float = 0.0,
    ) -> None:
        self._budget, self._wait_s = budget or SlurmRpcTokenBucket(), wait_s
        self._within_s = within_s + self._budget.deadline_extension_s
        self._most_s = MAX_BATCH_TIME_FACTOR * self._within_s
        self._end_s = time.monotonic() + self._most_s
        self._until_s = 0.0
        """Deadline of the command in progress, in `time.monotonic` seconds."""
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = f"cpsched-{secrets.token_hex(8)}"  # random, so that no job name contains it
        self._sent_count = 0
        self._over = ""

    def __enter__(self) -> ScontrolSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def send_command(self, command: str) -> str:
        """Send the command, and return scontrol's error, or "" on success.

        Raise `JobCommandRefused` if the text may not be sent. Raise `ControllerCallError` if the command is not sent or
        not answered. An unanswered command may have taken effect, and no further command is sent after it.
        """
        if not PERMITTED_COMMAND.fullmatch(command):
            raise JobCommandRefused(f"{command!r}: contains characters that cannot be sent to scontrol")
        if not self._over and time.monotonic() >= self._end_s:
            self._over = f"{self._program} exceeded the time limit of {self._most_s:g} s"
        if self._over:
            raise make_not_sent_error(self._over)
        waited_s = self._budget.acquire_tokens(count_calls_of_scontrol_input(command), self._wait_s)
        if waited_s is None:
            raise make_not_sent_error("slurmctld's call limit is reached (rl_enable)")
        self._wait_s -= waited_s
        self._end_s += waited_s
        self._until_s = min(self._end_s, time.monotonic() + self._within_s)
        process = self._process or self._start_scontrol()
        self._sent_count += 1
        mark = f"{self._mark}-{self._sent_count}"
        began_s = time.monotonic()
        try:
            reply = self._write_and_read_until(
                process, f"{command}\n{mark}\n".encode(), f"invalid keyword: {mark}\n".encode()
            )
        except _ScontrolLost as lost:
            self._over = str(lost)
            self.close()
            raise ControllerCallError(self._over, lost=True) from lost
        self._budget.correct_tokens_by_call_duration(time.monotonic() - began_s)
        return _join_lines(reply)

    def close(self) -> None:
        """Stop scontrol."""
        process, self._process = self._process, None
        if process is None:
            return
        self._over = self._over or "the scontrol session is closed"
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                pipe.close()

    def _start_scontrol(self) -> subprocess.Popen[bytes]:
        try:
            process = start_process(
                [self._program], build_slurm_environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
        except OSError as error:
            self._over = f"{self._program} cannot run: {error.strerror or error}"
            raise ControllerCallError(self._over, lost=False) from error
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._process = process
        return process

    def _write_and_read_until(self, process: subprocess.Popen[bytes], text: bytes, until: bytes) -> bytes:
        """Write `text`, and return the output before `until`. Raise `_ScontrolLost`."""
        assert process.stdin is not None
        assert process.stderr is not None
        stdin, stderr = process.stdin.fileno(), process.stderr.fileno()
        waits = select.poll()
        waits.register(stdin, select.POLLOUT)
        waits.register(stderr, select.POLLIN)
        reply = bytearray()
        while until not in reply:
            left_s = self._until_s - time.monotonic()
            ready = dict(waits.poll(1000.0 * left_s)) if left_s > 0 else {}
            if not ready:
                raise _ScontrolLost(f"no response from {self._program} within {self._within_s:g} s; killed")
            if stdin in ready:
                try:
                    text = text[os.write(stdin, text) :]
                except OSError:  # the program stopped reading; its standard error or exit status shows why
                    text = b""
                if not text:
                    waits.unregister(stdin)
            if stderr in ready:
                part = os.read(stderr, 1 << 16)
                if not part:
                    raise _ScontrolLost(
                        f"{self._program} ended (exit status {_wait_for_exit_status(process)}): {_join_lines(reply)}"
                    )
                reply += part
                if len(reply) > MAX_ERROR_BYTES:
                    raise _ScontrolLost(f"{self._program} printed more than {MAX_ERROR_BYTES} bytes of errors; killed")
        return bytes(reply[: reply.index(until)])


def _wait_for_exit_status(process: subprocess.Popen[bytes]) -> int:
    """Return a process's exit status, killing it after `EXIT_TIMEOUT_S` seconds."""
    try:
        return process.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _join_lines(reply: bytes | bytearray) -> str:
    lines = reply.decode("utf-8", errors="backslashreplace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())
