"""The bridge's child processes: their start, and the bridge's control over them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cpsched_bridge import child_server
from cpsched_bridge.child_server import SocketChildProcess
from tests.patience import ENOUGH_S, is_gone, until

TALKER = """
    import os, socket, sys, time
    channel = socket.socket(fileno=int(sys.argv[1]))
    facts = (sys.argv[2:], os.getppid(), os.getsid(0), sys.stdin.read(), os.environ.get("MOOD"), "PATH" in os.environ)
    channel.sendall(repr(facts).encode() + b"\\n")
    asked = channel.recv(1)
    if asked:
        os._exit(ord(asked))
    time.sleep(60)  # a hang-up alone does not end it
"""


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., SocketChildProcess]]:
    """Start a child that reports its input, then ends with the status that it is sent."""
    (tmp_path / "talker.py").write_text(textwrap.dedent(TALKER))
    made: list[SocketChildProcess] = []

    def started(**environment: str) -> SocketChildProcess:
        made.append(SocketChildProcess("talker", environment={"PYTHONPATH": str(tmp_path), **environment}))
        made[-1].channel.settimeout(ENOUGH_S)
        return made[-1]

    yield started
    for child in made:
        child.kill()


def told(child: SocketChildProcess) -> tuple[list[str], int, int, str, str | None, bool]:
    found = b""
    while not found.endswith(b"\n"):
        part = child.channel.recv(4096)
        assert part, "the child has ended"
        found += part
    return eval(found)


def forked(work: Callable[[], None]) -> int:
    """Do work in a forked process, which must end by itself; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(99)  # neither pytest nor its plug-ins are to go on here
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_child_gets_socket_and_parent(
    begin: Callable[..., SocketChildProcess],
) -> None:
    child = begin(MOOD="good")
    words, parent, session, read, mood, inherited = told(child)
    assert (words, parent) == ([str(os.getpid())], os.getpid())
    assert session == child.pid, "a session of its own: what the terminal sends to the bridge does not reach it"
    assert (read, mood, inherited) == ("", "good", True)


def test_child_inherits_environment_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(textwrap.dedent(TALKER))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("MOOD", "inherited")
    child = SocketChildProcess("talker")
    assert told(child)[4] == "inherited"
    child.kill()


def test_child_lives_until_exit_and_can_be_awaited(begin: Callable[..., SocketChildProcess]) -> None:
    child = begin()
    told(child)
    assert [child.is_alive(), child.is_alive(0.05)] == [True, True]
    child.channel.sendall(bytes([7]))
    assert [child.is_alive(ENOUGH_S), child.is_alive(), child.kill()] == [False, False, 7]


def test_killed_child_and_its_channel_are_gone(begin: Callable[..., SocketChildProcess]) -> None:
    child = begin()
    told(child)
    pid = child.pid
    assert child.kill() == -signal.SIGKILL
    assert not child.is_alive()
    assert child.channel.fileno() == -1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_only_child_holds_its_socket_end(begin: Callable[..., SocketChildProcess]) -> None:
    """Otherwise its end would go unnoticed."""
    child = begin()
    told(child)
    child.channel.sendall(bytes([1]))
    assert child.channel.recv(1) == b""


def test_unstartable_process_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    gc.collect()  # what other tests left open is not to be closed in between
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no more processes") as error:
        SocketChildProcess("talker")
    assert set(os.listdir("/proc/self/fd")) == before
    del error


# ------------------------------------------------------------------------------------------- what a child does first


def test_child_without_parent_exits_cleanly() -> None:
    assert forked(lambda: child_server.prepare_child_process(os.getppid() + 1)) == 0


def test_child_ignores_interrupt() -> None:
    def work() -> None:
        child_server.prepare_child_process(os.getppid())
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(5)

    assert forked(work) == 5


def test_child_prints_to_standard_error(tmp_path: Path) -> None:
    """Libraries and plug-ins may print; nothing but the socket is the bridge's."""
    said, complained = tmp_path / "stdout", tmp_path / "stderr"
    program = """
        import os, sys
        from cpsched_bridge import child_server
        child_server.prepare_child_process(os.getppid())
        print("a library's words", flush=True)
"""

    def work() -> None:
        for stream, path in ((1, said), (2, complained)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        exec(textwrap.dedent(program), {})
        os._exit(3)

    assert forked(work) == 3
    assert (said.read_text(), complained.read_text()) == ("", "a library's words\n")


def test_child_exits_with_parent_at_any_time(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def parent() -> None:
        middle = os.getpid()
        child = os.fork()
        if child == 0:
            child_server.prepare_child_process(middle)
            note.write_text(str(os.getpid()))
            time.sleep(600)
            os._exit(1)
        until(lambda: note.exists() and note.read_text())
        os._exit(4)

    assert forked(parent) == 4
    child = int(note.read_text())
    until(lambda: is_gone(child))
