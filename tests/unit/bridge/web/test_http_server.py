"""Which connections are accepted, and which are closed."""

import asyncio
import errno
import resource
import socket
from contextlib import ExitStack, contextmanager

import pytest

from cpsched_bridge.web import http_server as gates
from cpsched_bridge.web.http_server import MAX_CLIENTS, ConnectionLimiter, compute_max_connections


class Guest:
    """A client that the gate let in."""

    def __init__(self, gate, accepted, number):
        self.gate, self.socket, self.closing_order_key, self.polite = gate, accepted, (False, float(number)), True

    def close_immediately(self):
        if self.polite:
            self.leave()

    def leave(self):
        self.socket.close()
        self.gate.on_disconnect(self)


class House:
    """A gate on loopback, and those that come."""

    def __init__(self, most):
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.told, self.guests, self.most_open = [], [], 0
        self.gate = ConnectionLimiter(self.listening, self._accept_connection, self.told.append, most)
        self.visitors = ExitStack()

    def _accept_connection(self, accepted):
        self.guests.append(Guest(self.gate, accepted, len(self.guests)))
        self.gate.on_connect(self.guests[-1])
        self.most_open = max(self.most_open, len(self.gate.clients))

    async def come(self, number):
        for _ in range(number):
            visitor = self.visitors.enter_context(socket.socket())
            visitor.setblocking(False)
            await asyncio.get_running_loop().sock_connect(visitor, self.listening.getsockname())
        await self.settled()

    async def settled(self):
        for _ in range(200):
            await asyncio.sleep(0)

    def inside(self):
        return [self.guests.index(guest) for guest in self.guests if guest in self.gate.clients]


@contextmanager
def a_house(most):
    house = House(most)
    try:
        yield house
    finally:
        house.gate.close()
        house.visitors.close()
        house.listening.close()
        for guest in house.guests:
            guest.socket.close()


def within(most, visit):
    async def run():
        with a_house(most) as house:
            return await visit(house)

    return asyncio.run(run())


def test_accepts_connections_up_to_maximum(monkeypatch):
    monkeypatch.setattr(gates, "ACCEPT_PAUSE_S", 0.0)

    async def visit(house):
        await house.come(40)
        assert house.most_open == 8
        assert len(house.guests) == 40, "everybody had a turn"
        assert house.inside() == list(range(32, 40)), "the longest idle went first"
        assert set(house.told) == {"the server closed a connection to accept another; 8 connections were open"}

    within(8, visit)


def test_keeps_active_connections_while_others_are_idle():
    async def visit(house):
        await house.come(3)
        house.guests[0].closing_order_key = (True, 0.0)
        await house.come(1)
        assert house.inside() == [0, 2, 3]

    within(3, visit)


def test_accepts_only_after_connection_is_closed():
    """A descriptor is in use until it is closed."""

    async def visit(house):
        await house.come(2)
        for guest in house.guests:
            guest.polite = False
        await house.come(5)
        assert len(house.guests) == 2
        assert len(house.told) == 1, "one has been asked to go, and no other"
        house.guests[0].leave()
        await house.settled()
        assert len(house.guests) > 2

    within(2, visit)


@pytest.mark.parametrize("most", [64, 2], ids=["there is room", "others go"])
def test_accepts_few_at_a_time(monkeypatch, most):
    monkeypatch.setattr(gates, "ACCEPT_PAUSE_S", 1000.0)

    async def visit(house):
        await house.come(40)
        assert len(house.guests) == gates.ACCEPTS_PER_BURST

    within(most, visit)


def test_reports_and_pauses_without_file_descriptors(monkeypatch):
    """Others in the process may have taken all of them."""

    class Exhausted:
        def accept(self):
            raise OSError(errno.EMFILE, "Too many open files")

    async def visit(house):
        house.gate._listening, real = Exhausted(), house.gate._listening  # noqa: SLF001
        monkeypatch.setattr(house.gate._loop, "remove_reader", lambda _, r=house.gate._loop.remove_reader: r(real))  # noqa: SLF001
        await house.come(1)
        assert house.told == ["the server cannot accept a connection: Too many open files"]
        assert house.gate._is_paused  # noqa: SLF001

    within(8, visit)


@pytest.mark.parametrize(
    ("open_files", "clients"),
    [(resource.RLIM_INFINITY, MAX_CLIENTS), (524_288, 64), (1024, 64), (256, 64), (128, 32), (20, 5), (3, 4)],
)
def test_connections_use_at_most_quarter_of_descriptors(open_files, clients):
    assert compute_max_connections(open_files) == clients
