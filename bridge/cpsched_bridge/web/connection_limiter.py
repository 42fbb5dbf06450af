"""Limit the number and rate of client connections.

The limits protect the process's file descriptors. The kernel accepts a connection long before the program does, and
asyncio accepts all connections, with one descriptor each. With this limiter, a client waits in the kernel's queue until
there is capacity. To make room, the limiter closes the least recently used connection.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from typing import Protocol

MAX_CLIENTS = 64
"""Maximum number of open connections, if the process may open enough files."""
BACKLOG = 128
"""Maximum number of connections that wait in the kernel's queue."""

_MIN_CLIENTS = 4
_FILES_DIVISOR = 4
"""Divisor of the open-file limit: clients may use a quarter of the files."""
ACCEPTS_PER_BURST, ACCEPT_PAUSE_S = 16, 0.025
"""Number of connections accepted between two pauses, and the length of a pause in seconds.

The server thus accepts at most 640 connections per second, which limits the time taken from the main loop.
"""
_OUT_OF_FILES_PAUSE_S = 1.0


class LimitedConnection(Protocol):
    """The interface to an open connection that the limiter needs."""

    @property
    def closing_order_key(self) -> tuple[bool, float]:
        """Whether a request is in progress, and since what time in seconds.

        The limiter closes the connection with the smallest value first.
        """
        ...

    def close_immediately(self) -> None:
        """Close the connection immediately. It then unregisters itself from the limiter."""
        ...


def compute_max_connections(open_files: int | None = None) -> int:
    """Return the maximum number of connections for an open-file limit.

    By default, use the limit of this process.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if open_files is None else open_files
    return (
        MAX_CLIENTS if limit == resource.RLIM_INFINITY else max(_MIN_CLIENTS, min(MAX_CLIENTS, limit // _FILES_DIVISOR))
    )


class ConnectionLimiter:
    """A limiter that accepts connections on one socket, in the running event loop.

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
        self.most = compute_max_connections() if most is None else most
        self.clients: set[LimitedConnection] = set()
        self._closing: LimitedConnection | None = None
        self._open = 0
        """Number of descriptors in use by clients, accepted sockets, and sockets that are closing."""
        self._accepts_before_pause = ACCEPTS_PER_BURST
        self._loop = asyncio.get_running_loop()
        self._is_accepting = self._is_paused = self._closed = False
        listening.setblocking(False)
        self._start_accepting()

    def on_connect(self, client: LimitedConnection) -> None:
        """Register the client that uses an accepted socket."""
        self.clients.add(client)

    def on_disconnect(self, client: LimitedConnection | None) -> None:
        """Unregister a client whose socket is about to close.

        `client` is None for a socket that did not become a client.
        """
        if client is not None:
            self.clients.discard(client)
        if client is self._closing:
            self._closing = None
        # The descriptor becomes free after the current event.
        self._loop.call_soon(self._release_descriptor)

    def close(self) -> None:
        """Stop accepting connections."""
        self._closed = True
        self._stop_accepting()

    def _release_descriptor(self) -> None:
        self._open -= 1
        self._start_accepting()

    def _start_accepting(self) -> None:
        if not (self._is_accepting or self._is_paused or self._closed):
            self._is_accepting = True
            self._loop.add_reader(self._listening, self._accept)

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listening)

    def _pause_accepting(self, seconds: float) -> None:
        """Stop accepting connections for this number of seconds."""
        self._stop_accepting()
        self._is_paused = True
        self._loop.call_later(seconds, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._is_paused, self._accepts_before_pause = False, ACCEPTS_PER_BURST
        self._start_accepting()

    def _accept(self) -> None:
        """Accept one connection. If the limit is reached, close another connection first."""
        if self._open >= self.most:
            self._stop_accepting()
            self._close_least_recently_used()
            return
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._tell(f"the server cannot accept a connection: {error.strerror}")
            self._pause_accepting(_OUT_OF_FILES_PAUSE_S)
            return
        self._open += 1
        accepted.setblocking(False)
        self._let_in(accepted)
        self._accepts_before_pause -= 1
        if not self._accepts_before_pause:
            self._pause_accepting(ACCEPT_PAUSE_S)

    def _close_least_recently_used(self) -> None:
        """Close the least recently used connection unless one is already closing."""
        if self._closing is None and self.clients:
            self._closing = min(self.clients, key=lambda each: each.closing_order_key)
            self._tell(f"the server closed a connection to accept another; {self.most} connections were open")
            self._closing.close_immediately()
