"""Send changes one by one to the standard input of one scontrol.

scontrol is silent after a successful command, and prints an error to standard error after a failed one. Few errors name
a job. So after each command the session sends an unknown word. scontrol reports that, too, on standard error: any text
before is the error of the command, and the report proves that the command has ended.

Only one command is under way at any time. So a bridge that dies leaves at most one command behind.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import subprocess
import time
from types import TracebackType

from cpsched_bridge.adapters.slurm.transport.programs.call_budget import SlurmRpcTokenBucket, count_update_calls
from cpsched_bridge.adapters.slurm.transport.programs.command_rules import (
    ControllerCallError,
    JobCommandRefused,
    make_not_sent_error,
)
from cpsched_bridge.adapters.slurm.transport.programs.slurm_environment import build_environment
from cpsched_bridge.child_processes import kill_with_parent

MAX_OUTPUT = 1 << 20
"""Maximum number of bytes of errors about one command; a program that prints more is stopped."""
ENDING_S = 1.0
"""Time limit for a program to end after it closed its standard error."""
_WORD = r"[\w.,:/=%&+~\[\]-]+"
COMMAND = re.compile(rf"{_WORD}(?: {_WORD}){{0,100}}", re.ASCII)
"""The commands that may be sent: words without quotes, line breaks, and other special characters of scontrol or its
line editor.
"""


class _Lost(Exception):
    """The program has ended, hangs, or prints too much."""


class ScontrolSession:
    """Start scontrol with the first command, and stop it when the context ends.

    scontrol answers each command within `within_s` seconds, and all of them within `most_s`, by default the same: a
    program that answers is not stuck. With a limit on calls, each command first waits for its share of `budget`. All
    waits together last at most `wait_s`, which does not count as scontrol's time. A command that would wait longer is
    not sent.
    """

    def __init__(
        self,
        within_s: float,
        program: str = "scontrol",
        most_s: float = 0.0,
        budget: SlurmRpcTokenBucket | None = None,
        wait_s: float = 0.0,
    ) -> None:
        self._budget, self._wait_s = budget or SlurmRpcTokenBucket(), wait_s
        self._within_s = within_s + self._budget.deadline_extension_s
        self._most_s = max(most_s, self._within_s)
        self._end_s = time.monotonic() + self._most_s
        self._until_s = 0.0
        """The deadline of the command under way, in `time.monotonic`."""
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = f"cpsched-{secrets.token_hex(8)}"  # random, so that no job's name contains it
        self._told = 0
        self._over = ""

    def __enter__(self) -> ScontrolSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def send_command(self, command: str) -> str:
        """Send the command, and return scontrol's error; empty for success.

        Raise `JobCommandRefused` for words that may not be sent, and `ControllerCallError` without an answer. Then the
        command may
        have been executed, and no other one is sent.
        """
        if not COMMAND.fullmatch(command):
            raise JobCommandRefused(f"cannot be told to scontrol: {command!r}")
        if not self._over and time.monotonic() >= self._end_s:
            self._over = f"{self._program} has taken {self._most_s:g} s"
        if self._over:
            raise make_not_sent_error(self._over)
        waited_s = self._budget.acquire_tokens(count_update_calls(command), self._wait_s)
        if waited_s is None:
            raise make_not_sent_error("slurmctld accepts no more calls now (rl_enable)")
        self._wait_s -= waited_s
        self._end_s += waited_s
        self._until_s = min(self._end_s, time.monotonic() + self._within_s)
        process = self._process or self._begin()
        self._told += 1
        mark = f"{self._mark}-{self._told}"
        began_s = time.monotonic()
        try:
            said = self._exchange(process, f"{command}\n{mark}\n".encode(), f"invalid keyword: {mark}\n".encode())
        except _Lost as lost:
            self._over = str(lost)
            self.close()
            raise ControllerCallError(self._over, lost=True) from lost
        self._budget.record_duration(time.monotonic() - began_s)
        return _in_one_line(said)

    def close(self) -> None:
        """Stop scontrol."""
        process, self._process = self._process, None
        if process is None:
            return
        self._over = self._over or "the dialogue is over"
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                pipe.close()

    def _begin(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                [self._program],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=build_environment(),
                preexec_fn=kill_with_parent,
            )
        except OSError as error:
            self._over = f"{self._program} cannot be run: {error.strerror or error}"
            raise ControllerCallError(self._over, lost=False) from error
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._process = process
        return process

    def _exchange(self, process: subprocess.Popen[bytes], words: bytes, until: bytes) -> bytes:
        """Write `words`, and return what comes before `until`, or raise `_Lost`."""
        assert process.stdin is not None
        assert process.stderr is not None
        stdin, stderr = process.stdin.fileno(), process.stderr.fileno()
        waits = select.poll()
        waits.register(stdin, select.POLLOUT)
        waits.register(stderr, select.POLLIN)
        said = bytearray()
        while until not in said:
            left_s = self._until_s - time.monotonic()
            ready = dict(waits.poll(1000.0 * left_s)) if left_s > 0 else {}
            if not ready:
                raise _Lost(f"no answer from {self._program} in {self._within_s:g} s: killed")
            if stdin in ready:
                try:
                    words = words[os.write(stdin, words) :]
                except OSError:  # it stopped reading: standard error or its end shows why
                    words = b""
                if not words:
                    waits.unregister(stdin)
            if stderr in ready:
                part = os.read(stderr, 1 << 16)
                if not part:
                    raise _Lost(f"{self._program} ended (exit status {_status(process)}): {_in_one_line(said)}")
                said += part
                if len(said) > MAX_OUTPUT:
                    raise _Lost(f"{self._program} complains without an end: killed")
        return bytes(said[: said.index(until)])


def _status(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a process that is silent; kill one that does not end."""
    try:
        return process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _in_one_line(said: bytes | bytearray) -> str:
    lines = said.decode("utf-8", errors="backslashreplace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())
