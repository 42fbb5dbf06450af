"""Lets clients in: so many at once that the rest of the process keeps its descriptors, and so many a second.

The kernel accepts a connection long before a program does, and asyncio accepts all that it can, a descriptor each.
Here nobody is accepted for whom there is no room: a client waits in the kernel's queue until another has gone, and
whoever is of least use goes.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import Protocol

MOST_CLIENTS = 64
"""Open connections, where the process may open enough files."""
BACKLOG = 128
"""Connections that wait in the kernel."""

_FEWEST = 4
_SHARE = 4
"""Of the files that the process may open, a quarter is for clients; the rest is for the loop."""
AT_ONCE, PAUSE_S = 16, 0.025
"""Accepting costs the interpreter that the loop needs: 640 connections a second at most."""
_OUT_OF_FILES_S = 1.0


class LimitedConnection(Protocol):
    """An open connection, as the gate sees it."""

    @property
    def use(self) -> tuple[bool, float]:
        """Whether it is being answered, and since when that is so; the least of all clients has to go first."""
        ...

    def close_idle(self) -> None:
        """Close the connection at once; the gate is told by `ConnectionLimiter.gone`."""
        ...


def max_connections(open_files: int | None = None) -> int:
    """How many connections may be open, where the process may open so many files; by default what it may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if open_files is None else open_files
    return MOST_CLIENTS if limit == resource.RLIM_INFINITY else max(_FEWEST, min(MOST_CLIENTS, limit // _SHARE))


class ConnectionLimiter:
    """Accepts the connections of one listening socket, in the event loop that runs.

    - `let_in` takes over an accepted socket. `came` and `gone` are to be called with the client that becomes of it;
      `gone` alone, with None, where none does.
    - `tell` is called with what is worth a line of a log.
    """

    def __init__(
        self,
        listening: socket.socket,
        let_in: Callable[[socket.socket], None],
        tell: Callable[[str], None],
        most: int | None = None,
    ) -> None:
        self._listening, self._let_in, self._tell = listening, let_in, tell
        self.most = max_connections() if most is None else most
        self.clients: set[LimitedConnection] = set()
        self._leaving: LimitedConnection | None = None
        self._open = 0
        """Descriptors in use: of clients, of those who are about to become clients, and of those who leave."""
        self._left_of_turn = AT_ONCE
        self._loop = asyncio.get_running_loop()
        self._reading = self._resting = self._closed = False
        listening.setblocking(False)
        self._read()

    def came(self, client: LimitedConnection) -> None:
        """An accepted socket has become a client."""
        self.clients.add(client)

    def gone(self, client: LimitedConnection | None) -> None:
        """A client's socket is about to be closed, or an accepted one has not become a client."""
        if client is not None:
            self.clients.discard(client)
        if client is self._leaving:
            self._leaving = None
        # The descriptor is free once the event that tells of it is over.
        self._loop.call_soon(self._freed)

    def close(self) -> None:
        """Let nobody in from now on."""
        self._closed = True
        self._stop()

    def _freed(self) -> None:
        self._open -= 1
        self._read()

    def _read(self) -> None:
        if not (self._reading or self._resting or self._closed):
            self._reading = True
            self._loop.add_reader(self._listening, self._accept)

    def _stop(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._listening)

    def _rest(self, seconds: float) -> None:
        """Accept nobody for so long."""
        self._stop()
        self._resting = True
        self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._resting, self._left_of_turn = False, AT_ONCE
        self._read()

    def _accept(self) -> None:
        """Accept one connection where there is room; make room where there is none."""
        if self._open >= self.most:
            self._stop()
            self._make_room()
            return
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._tell(f"no connection can be accepted: {error.strerror}")
            self._rest(_OUT_OF_FILES_S)
            return
        self._open += 1
        accepted.setblocking(False)
        self._let_in(accepted)
        self._left_of_turn -= 1
        if not self._left_of_turn:
            self._rest(PAUSE_S)

    def _make_room(self) -> None:
        """Turn out whoever is of least use, unless somebody is on the way out already."""
        if self._leaving is None and self.clients:
            self._leaving = min(self.clients, key=lambda each: each.use)
            self._tell(f"a connection was closed to make room for another: {self.most} were open")
            self._leaving.close_idle()
