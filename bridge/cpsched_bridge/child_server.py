"""Run child processes that answer requests, and that end with the bridge.

`ChildServer` is the bridge's end: it starts a child, sends requests with deadlines, and replaces a child that died or
hangs. The child's program calls `serve_requests`.

- A child starts by importing and compiling. Only the time without progress is limited then, because a busy machine may
  be slow. The deadline of a request applies only to a child that is ready.
- Messages are pickled. They travel only over a socket pair between the bridge and its own child. A pickle from a file
  or the network must never be loaded, because loading runs code.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cpsched_bridge.errors import ChildDied, ChildStartFailed, ChildTimeout
from cpsched_sim.program_runner import kill_with_parent

STALL_TIMEOUT_S = 600.0
"""Seconds without progress after which a starting child counts as hung."""
_EXIT_WAIT_S = 10.0
"""Seconds that a disconnected child may take to end, so that its own exit status is reported."""
_STEP_TIMEOUT_S = 5.0
"""Time limit in seconds for receiving a start-up step that has begun to arrive."""
_HEADER = struct.Struct(">Q")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StartupStep:
    """What a starting child does, or "" when it is ready."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """What a child process runs: `python -m MODULE FD PARENT_PID`."""

    module: str
    name: str
    """The child in messages."""
    startup_step: str
    """Its first step."""
    environment: Mapping[str, str] | None = None
    """Its environment variables, by default those of this process."""


class ChildServer:
    """A server that runs one child process at a time.

    `init` is the first message that the child receives. All calls must come from one thread, which outlives the child.
    Any exception that interrupts a call kills the child.
    """

    def __init__(self, program: ChildProgram, init: object, clock: Callable[[], float] = time.monotonic) -> None:
        self._program, self._init, self._clock = program, init, clock
        self._child: SocketChildProcess | None = None
        self._startup_step = ""
        """The step that a starting child is running, or "" when the child is ready."""
        self._progress_s = 0.0
        """Clock time of a starting child's last step."""
        self.starts = 0
        """Number of children started so far."""

    @property
    def pid(self) -> int | None:
        """The process id of the child, or None if there is no child."""
        return None if self._child is None else self._child.pid

    @property
    def step_age_s(self) -> float:
        """Seconds since the start of a starting child's last step."""
        return self._clock() - self._progress_s

    def start(self) -> None:
        """Start a child. Raise `ChildStartFailed`."""
        try:
            self._child = SocketChildProcess(self._program.module, environment=self._program.environment)
        except OSError as error:
            raise ChildStartFailed(f"{self._program.name} cannot start: {error}") from error
        self._startup_step, self._progress_s = self._program.startup_step, self._clock()
        self.starts += 1
        with contextlib.suppress(ChannelClosed):  # the next reading shows that the child has already ended
            send_message(self._child.channel, self._init)

    def discard_ended_child(self) -> None:
        """Close a child that ended between two calls, so that the next call starts another."""
        if self._child is not None and not self._child.is_alive():
            self.close()

    def not_ready_reason(self) -> str | None:
        """Return the step that a starting child is running, or None if the child is ready. Never block.

        Start a child if there is none. Raise the same errors as `wait_until_ready`.
        """
        return None if self.wait_until_ready(0.0) else self._startup_step

    def wait_until_ready(self, wait_s: float) -> bool:
        """Return whether the child is ready within `wait_s` seconds. Start a child if there is none.

        Raise `ChildStartFailed` if the child cannot start, dies, or makes no progress for `STALL_TIMEOUT_S` seconds.
        """
        if self._child is None:
            self.start()
        assert self._child is not None
        until_s = self._clock() + wait_s
        while self._startup_step:
            stalled_s = self._progress_s + STALL_TIMEOUT_S
            left_s = max(0.0, min(until_s, stalled_s) - self._clock())
            with self._close_after_failure(ChildStartFailed):
                if not select.select([self._child.channel], (), (), left_s)[0]:
                    break
                self._startup_step = receive_message(self._child.channel, _STEP_TIMEOUT_S).text
            self._progress_s = self._clock()
        if self._startup_step and self.step_age_s > STALL_TIMEOUT_S:
            step = self._startup_step
            self.close()
            raise ChildStartFailed(
                f"{self._program.name} hangs at this step: {step} (no progress within {STALL_TIMEOUT_S:g} s); killed"
            )
        return not self._startup_step

    def call(self, request: object, deadline_s: float | None = None) -> Any:
        """Return the answer of a ready child.

        Raise `ChildTimeout` if it does not arrive within `deadline_s` seconds, or `ChildDied`. Without a ready child,
        send nothing and raise `ChildDied`.
        """
        if self._child is None or self._startup_step:
            raise ChildDied(f"{self._program.name} has already ended")
        until_s = None if deadline_s is None else time.monotonic() + deadline_s
        try:
            with self._close_after_failure(ChildDied):
                send_message(self._child.channel, request, deadline_s)
                return receive_message(self._child.channel, None if until_s is None else until_s - time.monotonic())
        except TimeoutError:
            raise ChildTimeout(f"no response from {self._program.name} within {deadline_s:g} s; killed") from None

    @contextlib.contextmanager
    def _close_after_failure(self, kind: type[ChildStartFailed | ChildDied]) -> Iterator[None]:
        """Kill the child after any exception. Raise `kind` if the child disconnected."""
        try:
            yield
        except ChannelClosed as error:
            assert self._child is not None
            self._child.is_alive(_EXIT_WAIT_S)
            raise kind(f"{self._program.name} died (exit status {self.close()}): {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> int | None:
        """Kill the child. Return its exit status, or None if there is no child."""
        self._startup_step = ""
        if self._child is None:
            return None
        status = self._child.kill()
        self._child = None
        return status


class SocketChildProcess:
    """A process `python -m MODULE FD PARENT_PID` and the bridge's socket.

    Raises `OSError` if the process cannot be started.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self.channel, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=None if environment is None else {**os.environ, **environment},
                start_new_session=True,
            )
        except OSError:
            self.channel.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def is_alive(self, wait_s: float = 0.0) -> bool:
        """Wait up to `wait_s` seconds for the process to end. Return whether it is alive."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> int:
        """Kill the process unless it has ended. Return its exit status."""
        self.channel.close()
        self._process.kill()
        return self._process.wait()


class ChannelClosed(Exception):
    """The process at the other end has closed the channel, or sent something that is no message."""


def send_message(channel: socket.socket, value: object, timeout_s: float | None = None) -> None:
    """Send one message. Raise `ChannelClosed`, or `TimeoutError` if it is not sent within `timeout_s` seconds."""
    _send_pickled(channel, pickle.dumps(value), timeout_s)


def _send_pickled(channel: socket.socket, body: bytes, timeout_s: float | None = None) -> None:
    channel.settimeout(timeout_s)
    try:
        channel.sendall(_HEADER.pack(len(body)))
        channel.sendall(body)
    except ConnectionError as error:
        raise ChannelClosed(str(error)) from error


def receive_message(channel: socket.socket, timeout_s: float | None = None) -> Any:
    """Return the next message. Raise `ChannelClosed`, or `TimeoutError` if it is not complete in time."""
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _HEADER.unpack(_receive_bytes(channel, _HEADER.size, until_s))
    body = _receive_bytes(channel, length, until_s)
    try:
        return pickle.loads(body)
    except Exception as error:
        raise ChannelClosed(f"invalid message: {error}") from error


def _receive_bytes(channel: socket.socket, count: int, until_s: float | None) -> bytes:
    parts = list[bytes]()
    while count:
        left_s = None if until_s is None else until_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise TimeoutError
        channel.settimeout(left_s)
        try:
            part = channel.recv(min(count, _CHUNK_BYTES))
        except ConnectionError as error:
            raise ChannelClosed(str(error)) from error
        if not part:
            raise ChannelClosed("end of stream")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def serve_requests(
    make_handler: Callable[[Any, Callable[[str], None]], Callable[[Any], object]],
    answer_error: Callable[[Exception], object],
) -> None:
    """Run the child: start, then answer requests until the bridge closes the channel.

    `make_handler` takes the `init` of `ChildServer` and a function that reports a start-up step. It returns the
    function that answers a request. `answer_error` returns the answer if that function fails, or if its answer cannot
    be pickled.
    """
    prepare_child_process(int(sys.argv[2]))
    channel = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(ChannelClosed):
        handle = make_handler(receive_message(channel), lambda step: send_message(channel, StartupStep(step)))
        send_message(channel, StartupStep())
        while True:
            request = receive_message(channel)
            try:
                body = pickle.dumps(handle(request))
            except Exception as error:
                body = pickle.dumps(answer_error(error))
            _send_pickled(channel, body)


def prepare_child_process(parent: int) -> None:
    """Prepare a child: end with the parent, ignore Ctrl-C, and print only to stderr."""
    kill_with_parent()
    if os.getppid() != parent:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries and plug-ins may print; the socket must stay clean
