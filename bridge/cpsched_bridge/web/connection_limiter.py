"""Limit the number of client connections, to protect the process's file descriptors, and their rate.

The kernel accepts a connection long before the program does, and asyncio accepts all connections, with one descriptor
each. With this limiter, a client waits in the kernel's queue until there is capacity. If there is none, the least
recently used connection is closed.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import Protocol

MOST_CLIENTS = 64
"""Maximum number of open connections, provided that the process may open enough files."""
BACKLOG = 128
"""Maximum number of connections that wait in the kernel's queue."""

_FEWEST = 4
_SHARE = 4
"""Divisor of the open-file limit: clients get a quarter of the files, and the loop keeps the rest."""
AT_ONCE, PAUSE_S = 16, 0.025
"""Accepts between two pauses, and the pause in seconds: at most 640 per second, since each costs the loop time."""
_OUT_OF_FILES_S = 1.0


class LimitedConnection(Protocol):
    """An open connection, from the limiter's point of view."""

    @property
    def activity(self) -> tuple[bool, float]:
        """Whether a request is being answered, and since when. The smallest value is closed first."""
        ...

    def close_idle(self) -> None:
        """Close the connection immediately. It then unregisters itself from the limiter."""
        ...


def max_connections(open_files: int | None = None) -> int:
    """Return the maximum number of connections for an open-file limit, by default that of the process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if open_files is None else open_files
    return MOST_CLIENTS if limit == resource.RLIM_INFINITY else max(_FEWEST, min(MOST_CLIENTS, limit // _SHARE))


class ConnectionLimiter:
    """A limiter that accepts the connections of one listening socket in the running event loop.

    - `let_in` receives each accepted socket. The receiver must call `on_connect` and later `on_disconnect` with the
      socket's client, or only `on_disconnect` with None if the socket did not become a client.
    - `tell` receives notable events for the log.
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
        """Number of descriptors in use by clients, accepted sockets, and sockets that are closing."""
        self._left_of_turn = AT_ONCE
        self._loop = asyncio.get_running_loop()
        self._reading = self._resting = self._closed = False
        listening.setblocking(False)
        self._read()

    def on_connect(self, client: LimitedConnection) -> None:
        """Register the client that uses an accepted socket."""
        self.clients.add(client)

    def on_disconnect(self, client: LimitedConnection | None) -> None:
        """Unregister a client whose socket is about to close; None for a socket that did not become a client."""
        if client is not None:
            self.clients.discard(client)
        if client is self._leaving:
            self._leaving = None
        # The descriptor becomes free after the current event.
        self._loop.call_soon(self._freed)

    def close(self) -> None:
        """Stop accepting connections."""
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
        """Accept no connections for this number of seconds."""
        self._stop()
        self._resting = True
        self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._resting, self._left_of_turn = False, AT_ONCE
        self._read()

    def _accept(self) -> None:
        """Accept one connection. If the limit is reached, close another connection first."""
        if self._open >= self.most:
            self._stop()
            self._make_room()
            return
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._tell(f"the server cannot accept a connection: {error.strerror}")
            self._rest(_OUT_OF_FILES_S)
            return
        self._open += 1
        accepted.setblocking(False)
        self._let_in(accepted)
        self._left_of_turn -= 1
        if not self._left_of_turn:
            self._rest(PAUSE_S)

    def _make_room(self) -> None:
        """Close the least recently used connection unless one is already closing."""
        if self._leaving is None and self.clients:
            self._leaving = min(self.clients, key=lambda each: each.activity)
            self._tell(f"the server closed a connection to accept another: {self.most} were open")
            self._leaving.close_idle()
