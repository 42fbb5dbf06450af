"""Run `cpsched` often in tests: each command is a process forked by a server that has imported it.

A fresh process spends most of its seconds of CPU time on imports and on loading compiled kernels. A forked
one inherits both from the server, and has its own arguments, folder, environment, standard streams, import path and
exit code. It runs the program's own `main`, and its replays are forked from it (`tests.forked`). Tests of imports,
compilation, kernel caches, the server that forks replays, and glibc's environment variables need a real one.

- `cpsched(*arguments)` runs a command and returns the result like `subprocess.run`.
- `Begun(server(), words)` starts one; the words `-c CODE ...` are Python code, as for `python`.
- `python -m tests.warm SOCKET --serve` is the server; it ends with the process that started it. With module names it
imports only those (`server(*modules)`), and its orders are Python code.
- `python tests/warm.py SOCKET ARGUMENTS...` is a program `cpsched` for shells: it forwards signals, and ends the
  command
when it is killed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_LENGTH = struct.Struct("!I")
_ENDED = struct.Struct("!id")
"""The exit code and the CPU seconds used."""


def ask(
    server: str,
    arguments: list[str],
    streams: tuple[int, int, int],
    folder: str | None = None,
    environment: dict[str, str] | None = None,
) -> socket.socket:
    """Start a command with these descriptors as its streams; `ended` of the connection is its exit code."""
    import json

    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server)
    order = json.dumps([arguments, folder or os.getcwd(), environment or dict(os.environ)]).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(order))], streams)
    connection.sendall(order)
    return connection


def ended(connection: socket.socket) -> tuple[int, float]:
    """Return the exit code of a command, negative for a signal, and its CPU seconds."""
    told = connection.recv(_ENDED.size, socket.MSG_WAITALL)
    if len(told) < _ENDED.size:
        raise RuntimeError("the server of tests/warm.py is gone")
    code, spent_s = _ENDED.unpack(told)
    return code, spent_s


def client(server: str, arguments: list[str]) -> int:
    """Run the program `cpsched`; return its exit code."""
    connection = ask(server, arguments, (0, 1, 2))
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: connection.sendall(bytes([number])))
    code, _ = ended(connection)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__" and sys.argv[2:3] != ["--serve"]:
    sys.exit(client(sys.argv[1], sys.argv[2:]))

import atexit  # noqa: E402  # the program above needs none of these, and begins sooner without
import json  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from contextlib import suppress  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    "cpsched.kernels", "cpsched.registry", "cpsched_sim.experiments.parallel_comparison", "cpsched_sim.terminal_tables",
    "cpsched_sim.cli.simulate_commands", "cpsched_bridge.program.bootstrap", "cpsched_bridge.program.terminal_views",
    "cpsched_bridge.adapters.mock",
)  # fmt: skip
"""Imports of the server in addition to the command line."""


spent_s = 0.0
"""CPU time of all ended commands of this process, which are not its children to the system."""


@cache
def server(*modules: str) -> str:
    """Return the socket of a server, started at the first call and ended with this process."""
    folder = tempfile.mkdtemp(prefix="cpsched-warm-")
    path = os.path.join(folder, "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", path, "--serve", *modules],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert process.stdout.readline() == b"ready\n"
    return path


class Begun:
    """A running command."""

    def __init__(
        self, server: str, words: list[str], folder: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.words = words
        self.out = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `done` closes them
        self.err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        with open(os.devnull) as nothing:
            streams = (nothing.fileno(), self.out.fileno(), self.err.fileno())
            self.connection = ask(server, words, streams, None if folder is None else str(folder), environment)

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        self.connection.sendall(bytes([number]))

    def done(self, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Wait for it; after `timeout` seconds end it and raise `subprocess.TimeoutExpired`."""
        global spent_s
        with self.connection, self.out, self.err:
            self.connection.settimeout(timeout)
            try:
                code, its_s = ended(self.connection)
            except TimeoutError as error:
                raise subprocess.TimeoutExpired(self.words, timeout or 0.0) from error
            spent_s += its_s
            self.out.seek(0)
            self.err.seek(0)
            return subprocess.CompletedProcess(self.words, code, self.out.read(), self.err.read())


def cpsched(*arguments: object, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its output; raise `subprocess.TimeoutExpired` after `timeout` seconds."""
    return Begun(server(), [str(argument) for argument in arguments]).done(timeout)


def serve(path: str, modules: list[str]) -> None:
    """Fork for each order until standard input is closed; return only in forked processes."""
    import gc
    import importlib

    atexit.register(_leave)  # the first to register is the last to be called
    for name in modules or ("cpsched_bridge.program.cli", *IMPORTED):
        importlib.import_module(name)
    if not modules:
        import typer

        from cpsched_bridge.program.cli import app
        from cpsched_sim.kernel_warm_up import load_registered_kernels
        from tests.forked import replays_fork

        load_registered_kernels(lambda words: None)
        replays_fork()
        typer.main.get_command = cache(typer.main.get_command)
        typer.main.get_command(app)  # the command tree, which all commands share
    gc.freeze()  # so that what commands collect leaves the pages alone that they share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the minders are not waited for
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listening.accept()
        minder = os.fork()
        if not minder:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            return _mind(connection)
        connection.close()


def _mind(connection: socket.socket) -> None:
    """Start the command in another process, forward signals, and send its exit code; return only in that process."""
    length, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    order = connection.recv(_LENGTH.unpack(length)[0], socket.MSG_WAITALL)
    command = os.fork()
    if not command:
        connection.close()
        return _become(json.loads(order), streams)
    for stream in (*streams, 0, 1):
        os.close(stream)
    over = os.pidfd_open(command)
    with suppress(OSError):  # the caller is gone and needs no answer
        while over not in select.select([over, connection], [], [])[0] and (numbers := connection.recv(64)):
            for number in numbers:
                os.kill(command, number)
        if over not in select.select([over], [], [], 0)[0]:
            os.kill(command, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        connection.sendall(_ENDED.pack(code, sum(os.times()[:4])))
    os._exit(0)


_exit_code: int | None = None


def leaving(command: Callable[[], object]) -> None:
    """Run a command to its `sys.exit`, and record its exit code."""
    global _exit_code
    try:
        command()
    except SystemExit as exit:
        _exit_code = 0 if exit.code is None else exit.code if isinstance(exit.code, int) else 1
        raise
    _exit_code = 0


def _leave() -> None:
    """Exit at once: freeing memory shared with the server takes longer than most commands.

    A command that raises, and one whose last output is not read, end as in Python.
    """
    if _exit_code is not None:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_exit_code & 0xFF)


def _become(order: tuple[list[str], str, dict[str, str]], streams: list[int]) -> None:
    """Become a process that starts with this order."""
    arguments, folder, environment = order
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))  # read at the server's start
    if "numba" in sys.modules:  # which read the server's environment when it was imported
        sys.modules["numba.core.config"].reload_config()  # type: ignore[attr-defined]
    further = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [folder, *further, *(path for path in sys.path[1:] if path not in further)]
    sys.argv[:] = ["cpsched", *arguments]


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[3:])
    if sys.argv[1:2] == ["-c"]:
        code = sys.argv[2]
        sys.argv[:] = ["-c", *sys.argv[3:]]
        leaving(lambda: exec(compile(code, "<order>", "exec"), {"__name__": "__main__"}))
        sys.exit()
    from cpsched_bridge.program import cli

    sys.modules["__main__"] = cli  # which processes of `compare` import, as after `python -m`
    leaving(cli.main)
