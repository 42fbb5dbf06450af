"""A simulated site in its own process, behind a Unix socket: like Slurm, it outlives the bridge.

`adapter: tests.remote_site` in a settings file; `python -m tests.remote_site CONFIG` serves the site of that file.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from pydantic import Field
from typing_extensions import override

from cpsched.model import EndedJob
from cpsched_bridge.adapters import mock
from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import Backend, Capabilities, Observation, SupportsBoost
from cpsched_bridge.settings import load_settings

_CALLS = frozenset(
    {
        "read",
        "read_history",
        "start",
        "hold",
        "release",
        "unpin",
        "read_ranks",
        "set_boosts",
        "acquire_lease",
        "run_checks",
    }
)


def serve(backend: MockBackend, path: Path) -> None:
    """Serve clients for ever, one call at a time. The call of a client that dies is completed."""
    at_a_time = Lock()
    with Listener(str(path), "AF_UNIX") as listener:
        while True:
            Thread(target=_serve, args=(backend, listener.accept(), at_a_time), daemon=True).start()


def _serve(backend: MockBackend, client: Connection[Any, Any], at_a_time: Lock) -> None:
    with client, contextlib.suppress(EOFError, OSError):
        while True:
            name, arguments = client.recv()
            with at_a_time:
                answer = _answer(backend, name, arguments)
            client.send(answer)


def _answer(backend: MockBackend, name: str, arguments: tuple[Any, ...]) -> Any:
    if name not in _CALLS:
        raise ValueError(f"call={name}: must be one of {', '.join(sorted(_CALLS))}")
    return getattr(backend, name)(*arguments)


def _forward(name: str) -> Any:
    """Return a method that asks the server."""
    return lambda backend, *arguments: backend._ask(name, *arguments)  # noqa: SLF001


class RemoteBackend(Backend, SupportsBoost):
    """A backend that calls the server at `path` and reconnects automatically."""

    start, hold, release, unpin = map(_forward, ("start", "hold", "release", "unpin"))
    acquire_lease, run_checks = map(_forward, ("acquire_lease", "run_checks"))
    read_ranks, set_boosts = map(_forward, ("read_ranks", "set_boosts"))

    def __init__(self, path: Path, deadline_s: float) -> None:
        self._path, self._deadline_s = path, deadline_s
        self._connection: Connection[Any, Any] | None = None
        self._told = 0

    def _ask(self, name: str, *arguments: Any) -> Any:
        connection = self._connected()
        try:
            connection.send((name, arguments))
            if not connection.poll(self._deadline_s):
                raise BackendTimeout(f"{name}: no answer from {self._path} within {self._deadline_s:g} s")
            return connection.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise BackendTimeout(f"{name}: {self._path} hung up: {error}") from error
        except BackendTimeout:
            self.close()
            raise

    def _connected(self) -> Connection[Any, Any]:
        if self._connection is None:
            try:
                self._connection = Client(str(self._path), "AF_UNIX")
            except OSError as error:
                raise BackendUnavailable(f"{self._path}: {error.strerror}") from error
        return self._connection

    @override
    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Return an observation. A lost response is harmless, because the count is stored here."""
        seen: Observation = self._ask("read", self._told)
        self._told += len(seen.ended)
        return seen

    @override
    def read_history(self) -> Sequence[EndedJob]:
        ended: Sequence[EndedJob] = self._ask("read_history")
        self._told = len(ended)
        return ended

    @override
    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Options(mock.Options):
    """Options of the mock adapter, and the socket of its process."""

    site_socket: Path = Field(description="Unix socket of the site's process.")
    deadline_s: float = Field(default=5.0, gt=0, description="Seconds that process may take to answer.")


def can(options: Options) -> Capabilities:
    return Capabilities(boosts=True)


def connect(options: Options) -> RemoteBackend:
    return RemoteBackend(options.site_socket, options.deadline_s)


def main() -> None:
    path = sys.argv[1]
    options = load_settings(Path(path)).parse_adapter_options(Options, path)
    serve(mock.connect(options), options.site_socket)


if __name__ == "__main__":
    main()
