"""The client with a child process that responds, is late, has ended or cannot be started.

The test provides the child.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from cpsched_bridge.adapters.slurm.transport.pyslurm import pyslurm_client as clients
from cpsched_bridge.adapters.slurm.transport.pyslurm import wire_protocol
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_client import (
    START_TIMEOUT_S,
    PyslurmClient,
)
from cpsched_bridge.errors import (
    BackendDied,
    BackendStartFailed,
    BackendStarting,
    BackendTimeout,
    BackendUnavailable,
    CommandRefused,
)
from cpsched_bridge.socket_child_process import STALL_TIMEOUT_S


class Child:
    """Stands where a process would: the test holds its end of the socket, and says whether it lives."""

    made: ClassVar[list[Child]] = []
    refused = False
    begins = True
    """Whether it says at once that it has begun."""

    def __init__(self, module: str, *words: str, environment: dict[str, str] | None = None) -> None:
        if Child.refused:
            raise OSError("no more processes")
        self.channel, self.end = socket.socketpair()
        self.end.settimeout(10.0)
        self.words, self.environment = (module, *words), environment
        self.pid, self.lives, self.killed = 1000 + len(Child.made), True, 0
        if Child.begins:
            wire_protocol.send_frame(self.end, wire_protocol.READY_FRAME)
        Child.made.append(self)

    def is_alive(self) -> bool:
        return self.lives

    def kill(self) -> int:
        self.killed += 1
        self.channel.close()
        return -9


class Clock:
    """A clock that the test sets, in the client and in what reads from its channel."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    monkeypatch.setattr(Child, "made", [])
    monkeypatch.setattr(Child, "refused", False)
    monkeypatch.setattr(Child, "begins", True)
    monkeypatch.setattr(clients, "SocketChildProcess", Child)
    yield Child.made
    for child in Child.made:
        child.channel.close()
        child.end.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(clients, "time", found)
    monkeypatch.setattr(wire_protocol, "time", found)
    return found


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the client waits for, how long, and whether it comes."""
    found = SimpleNamespace(comes=False, seconds=[])

    def select(read: Any, write: Any, odd: Any, seconds: float) -> tuple[Any, Any, Any]:
        found.seconds.append(seconds)
        return (read if found.comes else []), [], []

    monkeypatch.setattr(clients, "select", select)
    return found


def a_client_whose_child_has_begun(waits: SimpleNamespace) -> PyslurmClient:
    client, waits.comes = PyslurmClient(), True
    assert client.wait_until_ready(0.0)
    waits.comes = False
    waits.seconds.clear()
    return client


def test_first_call_starts_child_that_stays(children: list[Child]) -> None:
    client = PyslurmClient("some_pyslurm", {"A": "b"})
    assert (client.pid, client.starts, client.close()) == (None, 0, None)
    for number in range(3):
        client.send_call("hello", 5.0, number=number)
        assert wire_protocol.receive_frame(children[0].end) == {"call": "hello", "arguments": {"number": number}}
        wire_protocol.send_frame(children[0].end, {"result": number})
        assert client.receive_answer() == number
    assert (len(children), client.starts, client.pid) == (1, 1, 1000)
    assert children[0].words == (clients.CHILD_MODULE, "some_pyslurm")
    assert children[0].environment == {"A": "b"}
    assert client.close() == -9
    assert (client.pid, client.close(), children[0].killed) == (None, None, 1)


def test_default_child_uses_pyslurm_and_bridge_environment(children: list[Child]) -> None:
    PyslurmClient().send_call("hello", 5.0)
    assert (children[0].words, children[0].environment) == ((clients.CHILD_MODULE, "pyslurm"), None)


def test_replaces_child_that_ended_between_calls(children: list[Child]) -> None:
    client = PyslurmClient()
    client.send_call("hello", 5.0)
    children[0].lives = False
    client.send_call("hello", 5.0)
    assert (client.starts, client.pid, children[0].killed, children[1].killed) == (2, 1001, 1, 0)


def test_unstartable_child_means_unavailable_controller(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    client = PyslurmClient()
    monkeypatch.setattr(Child, "refused", True)
    with pytest.raises(BackendUnavailable, match="the pyslurm process cannot start: no more processes"):
        client.call("hello", 5.0)
    assert (client.starts, client.pid) == (0, None)
    monkeypatch.setattr(Child, "refused", False)
    client.send_call("hello", 5.0)
    assert client.starts == 1


def test_child_startup_has_no_call_deadline(
    children: list[Child], clock: Clock, waits: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing pyslurm is no answer of the controller: the child goes on, and each call says what is waited for."""
    monkeypatch.setattr(Child, "begins", False)
    client = PyslurmClient()
    for second in (0.0, 30.0, 500.0):
        clock.now_s = 100.0 + second
        with pytest.raises(
            BackendStarting, match=f"^hello: not sent yet: .* has been importing pyslurm for {second:.0f} s$"
        ):
            client.call("hello", 0.01)
    assert waits.seconds == [START_TIMEOUT_S, 0.0] * 3, "a while, then a look"
    assert (client.starts, children[0].killed) == (1, 0)
    wire_protocol.send_frame(children[0].end, wire_protocol.READY_FRAME)
    waits.comes = True
    client.send_call("hello", 5.0)
    assert wire_protocol.receive_frame(children[0].end) == {"call": "hello", "arguments": {}}, (
        "the first that it is asked"
    )
    wire_protocol.send_frame(children[0].end, {"result": 7})
    assert client.receive_answer() == 7


def test_child_that_never_starts_is_killed_and_replaced(
    children: list[Child], clock: Clock, waits: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "begins", False)
    client = PyslurmClient()
    assert not client.wait_until_ready(0.0)
    clock.now_s += STALL_TIMEOUT_S - 1.0
    with pytest.raises(BackendUnavailable, match=r"^the pyslurm process did not import pyslurm within 600 s; killed$"):
        client.call("hello", 5.0)
    assert waits.seconds == [0.0, 1.0]
    assert (children[0].killed, client.pid) == (1, None)
    assert not client.wait_until_ready(0.0)
    assert client.starts == 2


def test_child_dying_at_startup_received_no_call(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "begins", False)
    client = PyslurmClient()
    assert not client.wait_until_ready(0.0)
    children[0].end.close()
    with pytest.raises(BackendUnavailable, match=r"^the pyslurm process ended \(exit status -9\): ") as raised:
        client.call("start", 5.0)
    assert type(raised.value) is BackendStartFailed
    assert client.pid is None


def test_answer_not_awaited_in_time_kills_child(children: list[Child], clock: Clock) -> None:
    client = PyslurmClient()
    client.send_call("hello", 60.0)
    wire_protocol.send_frame(children[0].end, {"result": "late"})
    clock.now_s += 60.0
    with pytest.raises(BackendTimeout, match=r"^hello: no response from the pyslurm process within 60 s; killed$"):
        client.receive_answer()
    assert (children[0].killed, client.pid) == (1, None)


def test_call_without_child_fails_at_once(children: list[Child], clock: Clock) -> None:
    client = PyslurmClient()
    client.send_call("past", 5.0)
    client.close()
    with pytest.raises(
        BackendDied, match=r"^past: the pyslurm process died \(exit status None\): the process has already ended$"
    ):
        client.receive_answer()


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        ({"error": "unavailable", "detail": "gone"}, BackendUnavailable, "hold: gone"),
        ({"error": "timeout", "detail": "slow"}, BackendTimeout, "hold: slow"),
        ({"error": "refused", "detail": "no"}, CommandRefused, "hold: no"),
    ],
)
def test_error_answer_keeps_child(
    children: list[Child], reply: dict[str, str], error: type[Exception], words: str
) -> None:
    client = PyslurmClient()
    client.send_call("hold", 5.0)
    wire_protocol.send_frame(children[0].end, reply)
    with pytest.raises(error, match=f"^{words}$"):
        client.receive_answer()
    assert (children[0].killed, client.pid) == (0, 1000)


def test_child_that_closes_connection_is_dead(children: list[Child]) -> None:
    client = PyslurmClient()
    client.send_call("hold", 5.0)
    children[0].end.close()
    with pytest.raises(BackendDied, match=r"^hold: the pyslurm process died \(exit status -9\): "):
        client.receive_answer()
    assert (children[0].killed, client.pid) == (1, None)


def test_dead_child_accepts_no_call(children: list[Child]) -> None:
    client = PyslurmClient()
    client.send_call("hello", 5.0)
    children[0].end.close()
    with pytest.raises(BackendDied, match=r"^start: the pyslurm process died"):
        client.send_call("start", 5.0)
    assert (children[0].killed, client.pid) == (1, None)


def test_invalid_message_kills_child(children: list[Child]) -> None:
    client = PyslurmClient()
    client.send_call("hello", 5.0)
    children[0].end.sendall(wire_protocol.HEADER.pack(3) + b"abc")
    with pytest.raises(BackendUnavailable, match=r"^hello: the pyslurm process sent an invalid message: "):
        client.receive_answer()
    assert (children[0].killed, client.pid) == (1, None)


def test_blocked_send_ends_at_deadline(children: list[Child]) -> None:
    client = PyslurmClient()
    with pytest.raises(BackendTimeout, match=r"^hello: no response from the pyslurm process within 0.05 s; killed$"):
        client.send_call("hello", 0.05, words="x" * 10_000_000)
    assert (children[0].killed, client.pid) == (1, None)


def test_call_sends_request_and_receives_answer(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    client, done = PyslurmClient(), []
    monkeypatch.setattr(
        client, "send_call", lambda name, deadline_s, **arguments: done.append((name, deadline_s, arguments))
    )
    monkeypatch.setattr(client, "receive_answer", lambda: "answered")
    assert client.call("hold", 3.0, orders=[1]) == "answered"
    assert done == [("hold", 3.0, {"orders": [1]})]
