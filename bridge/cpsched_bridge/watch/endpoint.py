"""A web server in a thread of its own; it answers whatever the loop is waiting for. The only door to uvicorn."""

from __future__ import annotations

import logging
import socket
import sys
import time
from asyncio import CancelledError
from threading import Thread
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from cpsched_bridge.errors import AddressTaken

MOST_CONNECTIONS = 64
"""Open connections; for one more, the one on which nothing was asked for the longest time is closed."""

_START_S = 10.0
_SWITCH_S = 0.0005
"""How long the loop may keep the interpreter while a request waits; Python's own 5 ms come up at each step of one."""


def _worth_telling(record: logging.LogRecord) -> bool:
    """Whether a line of the server's log is: that an answer was given up at the end is not, with a traceback each."""
    return record.exc_info is None or not isinstance(record.exc_info[1], CancelledError)


logging.getLogger("uvicorn.error").addFilter(_worth_telling)


class _Connection(H11Protocol):
    """A connection that has to make room where there are too many, so that clients who say nothing, or never read
    their answer, keep nobody out: neither Prometheus nor a reader.
    """

    since_s = 0.0

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.since_s = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            oldest: Any = min(self.connections, key=lambda each: each.since_s)  # type: ignore[union-attr]
            self.connections.discard(oldest)
            oldest.transport.abort()

    def on_response_complete(self) -> None:
        """An answer was sent: the connection counts as a new one."""
        self.since_s = self.loop.time()
        super().on_response_complete()


class Endpoint:
    """Serves an ASGI application at an address; port 0 takes any free one, and `url` says which.

    `setting` is what an error calls the port.
    """

    def __init__(self, app: Any, host: str, port: int, setting: str = "metrics.port") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(128)
        except OSError as error:
            self._socket.close()
            raise AddressTaken(f"{setting}={port}: cannot listen on {host}: {error.strerror}") from error
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
            http=_Connection, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._server.run, args=([self._socket],), name="watch", daemon=True)
        self._thread.start()
        until_s = time.monotonic() + _START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < until_s:
            time.sleep(0.005)
        named = f"[{host}]" if family == socket.AF_INET6 else host
        self.url = f"http://{named}:{self._socket.getsockname()[1]}/"

    def close(self) -> None:
        """Stop serving; what is being answered has a second left."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
