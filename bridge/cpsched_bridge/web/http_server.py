"""Run a web server in a thread, so that it responds while the loop waits, and limit its connections.

The limits on the number and rate of client connections protect the process's file descriptors. The kernel accepts a
connection long before the program does, and asyncio accepts all connections, with one descriptor each. With the
limiter, a client waits in the kernel's queue until there is capacity. To make room, the limiter closes the least
recently used connection.

Only this module imports uvicorn.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from cpsched_bridge.errors import AddressInUse
from cpsched_bridge.telemetry.bridge_log import LogRateLimit, RateLimitedHandler

REQUEST_TIMEOUT_S = 10.0
"""Maximum time in seconds for a client to send a whole request, measured from the connection or the last response."""
RESPONSE_TIMEOUT_S = 60.0
"""Maximum time in seconds for a client to read a whole response."""

_START_TIMEOUT_S = 10.0
_SWITCH_INTERVAL_S = 0.0005
"""Interpreter switch interval in seconds. Python's default of 5 ms would delay each step of a request."""

CLIENT_LOG_LIMIT = LogRateLimit()
"""Rate limit for log messages caused by clients, shared by all endpoints of the process."""
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


class _TimedConnection(H11Protocol):
    """A connection that reports to a limiter and has a time limit for each step."""

    def __init__(self, gate: ConnectionLimiter, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate
        self._since_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def closing_order_key(self) -> tuple[bool, float]:
        """Whether a request is in progress, and since what time in seconds.

        The limiter closes the connection with the smallest value first.
        """
        unread = self.transport.get_write_buffer_size() > 0
        return unread or self._is_answering(), self._since_s

    def close_immediately(self) -> None:
        """Close the connection immediately. It then unregisters itself from the limiter."""
        self.transport.abort()

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._gate.on_connect(self)
        self._set_deadline(REQUEST_TIMEOUT_S)

    def handle_events(self) -> None:
        """Handle received bytes or the next pipelined request.

        Each response has its own time limit.
        """
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._is_answering():
            self._set_deadline(RESPONSE_TIMEOUT_S)

    def on_response_complete(self) -> None:
        """Restart the time limit when the server has written a response.

        It then applies to reading the rest of the response, or to the next request.
        """
        self._set_deadline(RESPONSE_TIMEOUT_S if self.transport.get_write_buffer_size() else REQUEST_TIMEOUT_S)
        super().on_response_complete()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)
        self._gate.on_disconnect(self)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self, seconds: float) -> None:
        """Set the time limit for the next step."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._since_s = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.close_immediately)


class _LimitedUvicornServer(uvicorn.Server):
    """A uvicorn server with a limiter that accepts its connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._gate: ConnectionLimiter | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start without a socket, because uvicorn itself would accept every connection."""
        await super().startup(sockets=[])
        (listening,) = sockets or []
        self._gate = gate = ConnectionLimiter(
            listening, lambda accepted: self._accept_connection(gate, accepted), CLIENT_LOG_LIMIT.log
        )

    def _accept_connection(self, gate: ConnectionLimiter, accepted: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(gate, accepted))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, gate: ConnectionLimiter, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection = _TimedConnection(
            gate, config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
        )
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError as error:
            CLIENT_LOG_LIMIT.log(f"a client disconnected before the server accepted its connection: {error.strerror}")
            accepted.close()
            if connection not in gate.clients:
                gate.on_disconnect(None)

    @override
    async def on_tick(self, counter: int) -> bool:
        """Write the collected log lines. Uvicorn calls this ten times per second."""
        CLIENT_LOG_LIMIT.flush_minute()
        return await super().on_tick(counter)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._gate is not None:
            self._gate.close()
        await super().shutdown(sockets)


class HttpServer:
    """A server for an ASGI application on a host and port.

    Port 0 selects a free port, which `url` contains. `setting` is the name of the port's setting in error messages.
    """

    def __init__(self, app: Any, host: str, port: int, setting: str = "metrics.port") -> None:
        RateLimitedHandler(CLIENT_LOG_LIMIT).capture_loggers("uvicorn.error", "asyncio")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError as error:
            self._socket.close()
            raise AddressInUse(
                f"{setting}={port}: cannot listen on {host}: {error.strerror}; choose another port"
            ) from error
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = _LimitedUvicornServer(config)
        self._thread = Thread(target=self._server.run, args=([self._socket],), name="watch", daemon=True)
        self._thread.start()
        until_s = time.monotonic() + _START_TIMEOUT_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < until_s:
            time.sleep(0.005)
        named = f"[{host}]" if family == socket.AF_INET6 else host
        self.url = f"http://{named}:{self._socket.getsockname()[1]}/"

    def close(self) -> None:
        """Stop the server. Responses in progress get one more second."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


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

    - `on_accept` receives each accepted socket. The receiver must call `on_connect` and later `on_disconnect` with the
      socket's client, or only `on_disconnect` with None if the socket did not become a client.
    - `log` receives notable events for the log.
    """

    def __init__(
        self,
        listening: socket.socket,
        on_accept: Callable[[socket.socket], None],
        log: Callable[[str], None],
        max_clients: int | None = None,
    ) -> None:
        self._listening, self._on_accept, self._log = listening, on_accept, log
        self.max_clients = compute_max_connections() if max_clients is None else max_clients
        self.clients: set[_TimedConnection] = set()
        self._closing: _TimedConnection | None = None
        self._open = 0
        """Number of descriptors in use by clients, accepted sockets, and sockets that are closing."""
        self._accepts_before_pause = ACCEPTS_PER_BURST
        self._loop = asyncio.get_running_loop()
        self._is_accepting = self._is_paused = self._closed = False
        listening.setblocking(False)
        self._start_accepting()

    def on_connect(self, client: _TimedConnection) -> None:
        """Register the client that uses an accepted socket."""
        self.clients.add(client)

    def on_disconnect(self, client: _TimedConnection | None) -> None:
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
        if self._open >= self.max_clients:
            self._stop_accepting()
            self._close_least_recently_used()
            return
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._log(f"the server cannot accept a connection: {error.strerror}")
            self._pause_accepting(_OUT_OF_FILES_PAUSE_S)
            return
        self._open += 1
        accepted.setblocking(False)
        self._on_accept(accepted)
        self._accepts_before_pause -= 1
        if not self._accepts_before_pause:
            self._pause_accepting(ACCEPT_PAUSE_S)

    def _close_least_recently_used(self) -> None:
        """Close the least recently used connection unless one is already closing."""
        if self._closing is None and self.clients:
            self._closing = min(self.clients, key=lambda each: each.closing_order_key)
            self._log(f"the server closed a connection to accept another; {self.max_clients} connections were open")
            self._closing.close_immediately()
