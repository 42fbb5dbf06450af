"""`cpsched` for tests that run it often: each command is a process of its own, forked by a server that has imported it.

A process that begins anew spends most of its second of CPU time on imports. A forked one has its own arguments,
folder, environment, standard streams, import path and exit code, and goes through the program's own `main`. What it
shares with a new process but by its imports is all the same, so that tests of imports themselves, of compiling, and of
what Numba or glibc read from the environment at their start need a real one.

- `cpsched(*arguments)` runs a command and returns what `subprocess.run` would.
- `python -m tests.warm SOCKET --serve` is the server; it ends with the process that started it.
- `python tests/warm.py SOCKET ARGUMENTS...` is a program `cpsched` for shells: it passes signals on, and takes the
  command with it when it is killed.
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
_CODE = struct.Struct("!i")


def ask(server: str, arguments: list[str], streams: tuple[int, int, int]) -> socket.socket:
    """Have a command begin with these descriptors as its streams; `ended` of the connection is its exit code."""
    import json

    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server)
    order = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(order))], streams)
    connection.sendall(order)
    return connection


def ended(connection: socket.socket) -> int:
    """The exit code of a command, negative where a signal ended it."""
    code = connection.recv(_CODE.size, socket.MSG_WAITALL)
    if len(code) < _CODE.size:
        raise RuntimeError("the server of tests/warm.py is gone")
    return int(_CODE.unpack(code)[0])


def client(server: str, arguments: list[str]) -> int:
    """The program `cpsched`: its exit code."""
    connection = ask(server, arguments, (0, 1, 2))
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: connection.sendall(bytes([number])))
    code = ended(connection)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__" and sys.argv[2:] != ["--serve"]:
    sys.exit(client(sys.argv[1], sys.argv[2:]))

import atexit  # noqa: E402  # the program above needs none of these, and begins sooner without
import json  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from contextlib import suppress  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    "cpsched.kernels", "cpsched.catalogue", "cpsched_sim.processes", "cpsched_sim.views", "cpsched_sim.cli.replays",
    "cpsched_bridge.program.assembly", "cpsched_bridge.program.views", "cpsched_bridge.adapters.mock",
)  # fmt: skip
"""What the server has imported beside the command line itself."""


@cache
def server() -> str:
    """The socket of a server, which is started when it is first asked for and ends with this process."""
    folder = tempfile.mkdtemp(prefix="cpsched-warm-")
    path = os.path.join(folder, "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", path, "--serve"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert process.stdout.readline() == b"ready\n"
    return path


def cpsched(*arguments: object, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its output; raises `subprocess.TimeoutExpired` once `timeout` seconds are over."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as nothing:
        with ask(server(), words, (nothing.fileno(), out.fileno(), err.fileno())) as connection:
            connection.settimeout(timeout)
            try:
                code = ended(connection)
            except TimeoutError as error:
                raise subprocess.TimeoutExpired(words, timeout or 0.0) from error
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["cpsched", *words], code, out.read(), err.read())


def serve(path: str) -> None:
    """Fork for each order that comes, until standard input is closed; returns in forked processes only."""
    import importlib

    for name in ("cpsched_bridge.program.cli", *IMPORTED):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the minders
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
    """Begin the command in one more process, pass signals on to it, and answer its exit code; returns in it alone."""
    length, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
    order = connection.recv(_LENGTH.unpack(length)[0], socket.MSG_WAITALL)
    command = os.fork()
    if not command:
        connection.close()
        return _become(json.loads(order), streams)
    for stream in (*streams, 0, 1):
        os.close(stream)
    over = os.pidfd_open(command)
    with suppress(OSError):  # whoever asked is gone, and wants no answer
        while over not in select.select([over, connection], [], [])[0] and (numbers := connection.recv(64)):
            for number in numbers:
                os.kill(command, number)
        if over not in select.select([over], [], [], 0)[0]:
            os.kill(command, signal.SIGKILL)
        connection.sendall(_CODE.pack(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])))
    os._exit(0)


def _become(order: tuple[list[str], str, dict[str, str]], streams: list[int]) -> None:
    """Be as a process that begins with this order."""
    arguments, folder, environment = order
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    further = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [folder, *further, *(path for path in sys.path[1:] if path not in further)]
    sys.argv[:] = ["cpsched", *arguments]


if __name__ == "__main__":
    serve(sys.argv[1])
    from cpsched_bridge.program import cli

    sys.modules["__main__"] = cli  # which processes of `compare` import, as after `python -m`
    cli.main()
