"""Requests to a child process that responds, is late, has ended or cannot be started.

The test provides the child.
"""

from __future__ import annotations

import math
import pickle
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from cpsched_bridge import child_server
from cpsched_bridge.child_server import (
    STALL_TIMEOUT_S,
    ChildProgram,
    ChildServer,
    StartupStep,
    receive_message,
    send_message,
)
from cpsched_bridge.errors import ChildDied, ChildStartFailed, ChildTimeout


class Child:
    """Stands where a process would: the test holds its end of the socket, and says whether it lives."""

    made: ClassVar[list[Child]] = []
    refused = False
    begins = True
    """Whether it says at once that it has begun."""

    def __init__(self, module: str, environment: dict[str, str] | None = None) -> None:
        if Child.refused:
            raise OSError("no more processes")
        self.channel, self.end = socket.socketpair()
        self.end.settimeout(10.0)
        self.module, self.environment = module, environment
        self.pid, self.lives, self.killed = 1000 + len(Child.made), True, 0
        if Child.begins:
            send_message(self.end, StartupStep())
        Child.made.append(self)

    def is_alive(self, wait_s: float = 0.0) -> bool:
        return self.lives

    def kill(self) -> int:
        self.killed += 1
        self.channel.close()
        return -9


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    monkeypatch.setattr(Child, "made", [])
    monkeypatch.setattr(Child, "refused", False)
    monkeypatch.setattr(Child, "begins", True)
    monkeypatch.setattr(child_server, "SocketChildProcess", Child)
    yield Child.made
    for child in Child.made:
        child.channel.close()
        child.end.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[float]:
    """How long the server waits for what does not come."""
    found: list[float] = []

    def select(read: Any, write: Any, odd: Any, seconds: float) -> tuple[Any, Any, Any]:
        found.append(seconds)
        clock.now_s += seconds + 0.001
        return [], [], []

    monkeypatch.setattr(child_server, "select", SimpleNamespace(select=select))
    return found


def a_server(environment: dict[str, str] | None = None, **more: Any) -> ChildServer:
    return ChildServer(ChildProgram("some.module", "the process", "importing", environment), "its settings", **more)


def a_ready_server() -> ChildServer:
    server = a_server()
    assert server.wait_until_ready(math.inf)
    return server


def test_first_use_starts_child_that_stays(children: list[Child]) -> None:
    server = a_server(environment={"A": "b"})
    assert (server.pid, server.starts, server.close()) == (None, 0, None)
    assert server.wait_until_ready(0.0)
    assert receive_message(children[0].end) == "its settings"
    for number in range(3):
        send_message(children[0].end, -number)
        assert server.call(("question", number), 5.0) == -number
        assert receive_message(children[0].end) == ("question", number)
    assert (len(children), server.starts, server.pid) == (1, 1, 1000)
    assert (children[0].module, children[0].environment) == ("some.module", {"A": "b"})
    assert server.close() == -9
    assert (server.pid, server.close(), children[0].killed) == (None, None, 1)


def test_replaces_only_child_that_ended(children: list[Child]) -> None:
    server = a_ready_server()
    server.discard_ended_child()
    assert server.pid == 1000
    children[0].lives = False
    server.discard_ended_child()
    assert server.wait_until_ready(0.0)
    assert (server.starts, server.pid, children[0].killed, children[1].killed) == (2, 1001, 1, 0)


def test_unstartable_child_is_tried_again(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server()
    monkeypatch.setattr(Child, "refused", True)
    with pytest.raises(ChildStartFailed, match=r"^the process cannot start: no more processes$"):
        server.wait_until_ready(5.0)
    assert (server.starts, server.pid) == (0, None)
    monkeypatch.setattr(Child, "refused", False)
    assert server.wait_until_ready(0.0)
    assert server.starts == 1


def test_each_wait_for_starting_child_is_bounded(
    children: list[Child], clock: Clock, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting is no answer: the child goes on, and a later call waits again."""
    monkeypatch.setattr(Child, "begins", False)
    server = a_server(clock=clock)
    assert (server.not_ready_reason(), round(server.step_age_s)) == ("importing", 0)
    assert not server.wait_until_ready(20.0)
    assert waits == [0.0, pytest.approx(20.0)]
    assert (server.not_ready_reason(), round(server.step_age_s)) == ("importing", 20)
    assert (server.starts, children[0].killed) == (1, 0)


def test_step_extends_startup(children: list[Child], clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "begins", False)
    server = a_server(clock=clock)
    assert server.not_ready_reason() == "importing"
    clock.now_s += STALL_TIMEOUT_S
    send_message(children[0].end, StartupStep("compiling"))
    assert (server.not_ready_reason(), server.step_age_s) == ("compiling", 0.0)
    send_message(children[0].end, StartupStep("loading"))
    send_message(children[0].end, StartupStep())
    assert server.not_ready_reason() is None


def test_child_without_progress_is_killed_and_replaced(
    children: list[Child], clock: Clock, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "begins", False)
    server = a_server(clock=clock)
    assert not server.wait_until_ready(0.0)
    clock.now_s = 100.0 + STALL_TIMEOUT_S - 1.0
    with pytest.raises(ChildStartFailed, match=r"^the process hangs at this step: importing \(.* 600 s\); killed$"):
        server.wait_until_ready(5.0)
    assert (waits, children[0].killed, server.pid) == ([0.0, pytest.approx(1.0)], 1, None)
    assert not server.wait_until_ready(0.0)
    assert server.starts == 2


def test_child_dying_at_startup_received_no_request(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "begins", False)
    server = a_server()
    assert not server.wait_until_ready(0.0)
    with pytest.raises(ChildDied, match="has already ended"):
        server.call("question", 5.0)
    children[0].end.close()
    with pytest.raises(ChildStartFailed, match=r"^the process died \(exit status -9\): "):
        server.wait_until_ready(5.0)
    assert server.pid is None
    with pytest.raises(ChildDied, match=r"^the process has already ended$"):
        server.call("question", 5.0)


LATE = r"^no response from the process within 0.05 s; killed$"
DEAD = r"^the process died \(exit status -9\): "


@pytest.mark.parametrize(
    ("act", "question", "deadline_s", "error", "message"),
    [
        (lambda end: None, "question", 0.05, ChildTimeout, LATE),
        (lambda end: end.sendall((1000).to_bytes(8, "big") + b"abc"), "question", 0.05, ChildTimeout, LATE),
        (lambda end: None, "x" * 10_000_000, 0.05, ChildTimeout, LATE),
        (socket.socket.close, "question", 5.0, ChildDied, DEAD),
        (socket.socket.close, "x" * 10_000_000, 5.0, ChildDied, DEAD),
        (
            lambda end: end.sendall((3).to_bytes(8, "big") + b"abc"),
            "question",
            5.0,
            ChildDied,
            DEAD + "invalid message: ",
        ),
    ],
    ids=["late", "incomplete", "blocked", "closed", "closed while sending", "invalid"],
)
def test_child_without_valid_answer_is_killed(
    children: list[Child], act: Any, question: str, deadline_s: float, error: type[Exception], message: str
) -> None:
    server = a_ready_server()
    act(children[0].end)
    with pytest.raises(error, match=message):
        server.call(question, deadline_s)
    assert (children[0].killed, server.pid) == (1, None)


def test_deadline_of_one_call_does_not_reach_next(children: list[Child]) -> None:
    server = a_ready_server()
    for deadline_s in (0.5, None):
        send_message(children[0].end, "answer")
        assert server.call("question", deadline_s) == "answer"
    assert children[0].channel.gettimeout() is None


@pytest.mark.parametrize("question", [lambda: None, "question"])
def test_interrupted_call_kills_child(children: list[Child], monkeypatch: pytest.MonkeyPatch, question: Any) -> None:
    """Its answer may still come, and would be taken for that of the next request."""
    server = a_ready_server()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if question == "question":
        monkeypatch.setattr(child_server, "receive_message", interrupt)
    with pytest.raises((KeyboardInterrupt, AttributeError, pickle.PicklingError)):
        server.call(question)
    assert (children[0].killed, server.pid) == (1, None)


# ------------------------------------------------------------------------------------------------- the child's side


class Served:
    """What a child sends when it serves requests in this process, without a process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ours, theirs = socket.socketpair()
        self.parents: list[int] = []
        monkeypatch.setattr(child_server, "prepare_child_process", self.parents.append)
        monkeypatch.setattr("sys.argv", ["child.py", str(theirs.detach()), "1234"])

    def send(self, *messages: object) -> None:
        for each in messages:
            send_message(self.ours, each)
        self.ours.shutdown(socket.SHUT_WR)

    def receive(self, count: int) -> list[Any]:
        return [receive_message(self.ours) for _ in range(count)]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    found = Served(monkeypatch)
    yield found
    found.ours.close()


def test_serves_requests_in_turn_after_one_start(served: Served) -> None:
    starts: list[str] = []

    def start(init: str, report: Any) -> Any:
        starts.append(init)
        report("compiling")
        return lambda request: request * 2

    served.send("its settings", 1, "a")
    child_server.serve_requests(start, str)
    assert served.receive(4) == [StartupStep("compiling"), StartupStep(), 2, "aa"]
    assert (starts, served.parents) == (["its settings"], [1234])


def test_errors_of_handler_and_of_pickling_are_answers(served: Served) -> None:
    def answer(request: int) -> object:
        if request:
            raise EOFError("not the channel's")
        return lambda: None

    served.send("", 1, 0)
    child_server.serve_requests(lambda init, report: answer, lambda error: (type(error).__name__, str(error)))
    _, raised, unsendable = served.receive(3)
    assert raised == ("EOFError", "not the channel's")
    assert unsendable[0] in ("AttributeError", "PicklingError")


def test_child_exits_if_parent_is_gone(served: Served) -> None:
    """The bridge has gone while the child was at work: the answer cannot be sent."""
    send_message(served.ours, "")
    send_message(served.ours, "question")
    child_server.serve_requests(lambda init, report: lambda _: served.ours.close() or "x" * 10_000_000, str)
