"""Run a web server in a thread, so that it responds while the loop waits.

Only this module imports uvicorn.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from threading import Thread
from typing import Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from cpsched_bridge.errors import AddressInUse
from cpsched_bridge.telemetry.log_rate_limit import LogRateLimit, RateLimitedHandler
from cpsched_bridge.web.connection_limiter import BACKLOG, ConnectionLimiter, LimitedConnection

REQUEST_TIMEOUT_S = 10.0
"""Maximum time in seconds for a client to send a whole request, measured from the connection or the last response."""
RESPONSE_TIMEOUT_S = 60.0
"""Maximum time in seconds for a client to read a whole response."""

_START_TIMEOUT_S = 10.0
_SWITCH_INTERVAL_S = 0.0005
"""Interpreter switch interval in seconds. Python's default of 5 ms would delay each step of a request."""

CLIENT_LOG_LIMIT = LogRateLimit()
"""Rate limit for log messages caused by clients, shared by all endpoints of the process."""


class _TimedConnection(H11Protocol, LimitedConnection):
    """A connection that reports to a limiter and has a time limit for each step."""

    def __init__(self, gate: ConnectionLimiter, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate
        self._since_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    @override
    def closing_order_key(self) -> tuple[bool, float]:
        unread = self.transport.get_write_buffer_size() > 0
        return unread or self._is_answering(), self._since_s

    @override
    def close_immediately(self) -> None:
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
