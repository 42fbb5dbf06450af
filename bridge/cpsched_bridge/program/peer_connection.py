"""Exchange messages with the other bridge over TCP, once a second.

Each message has its own connection. The receiver sends a random word first. The sender answers with its own word, its
message, and a code (HMAC-SHA256) over both words and the message, made with a secret that both bridges read from a
file. The receiver's answer has a code over the same words, so a recorded message is refused. A program without the
secret can only interrupt the link, after which the long lease applies.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from cpsched_bridge.cycle.leader_election import PeerLink, PeerMessage
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.settings import LeaseSettings, parse_address

INTERVAL_S = 1.0
"""Seconds between two messages."""
TIMEOUT_S = 1.0
"""Time limit of an exchange in seconds."""
MIN_SECRET_BYTES = 16
MAX_MESSAGE_BYTES = 8192
_WORD_BYTES = 16
_CODE_BYTES = 32
_LENGTH_BYTES = 2
_REQUEST, _ANSWER = b"request", b"answer"


class InvalidPeerMessage(Exception):
    """An error for a message without a valid code, or a malformed one."""


def read_secret(path: Path) -> bytes:
    """Return the secret in a file. Raise `SettingsError` if it is short, or readable by other users."""
    where = f"lease.secret_file={path}"
    try:
        secret, mode = path.read_bytes().strip(), path.stat().st_mode
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror or error}") from error
    if mode & 0o077:
        raise SettingsError(f"{where}: must be readable only by its owner; run `chmod 600 {path}`")
    if len(secret) < MIN_SECRET_BYTES:
        raise SettingsError(f"{where}: must contain at least {MIN_SECRET_BYTES} bytes")
    return secret


def make_code(secret: bytes, *parts: bytes) -> bytes:
    """Return the code over these parts, whose boundaries count."""
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, text, hashlib.sha256)


@dataclass(slots=True)
class _Exchange:
    """One connection, whose steps all end at a deadline."""

    connection: socket.socket
    secret: bytes
    until_s: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_S)

    def read(self, count: int) -> bytes:
        """Return exactly this many bytes. Raise `OSError` at the deadline or at the end of the connection."""
        found = b""
        while len(found) < count:
            self.connection.settimeout(max(0.001, self.until_s - time.monotonic()))
            part = self.connection.recv(count - len(found))
            if not part:
                raise ConnectionResetError("the connection was closed")
            found += part
        return found

    def send(self, *parts: bytes) -> None:
        """Send all parts."""
        self.connection.settimeout(max(0.001, self.until_s - time.monotonic()))
        self.connection.sendall(b"".join(parts))

    def send_message(self, kind: bytes, words: bytes, message: PeerMessage) -> None:
        """Send a message with its code."""
        text = message.to_text()
        self.send(make_code(self.secret, kind, words, text), len(text).to_bytes(_LENGTH_BYTES, "big"), text)

    def read_message(self, kind: bytes, words: bytes) -> PeerMessage:
        """Return a message. Raise `InvalidPeerMessage` if its code is wrong."""
        code, length = self.read(_CODE_BYTES), int.from_bytes(self.read(_LENGTH_BYTES), "big")
        if length > MAX_MESSAGE_BYTES:
            raise InvalidPeerMessage("too long")
        text = self.read(length)
        if not hmac.compare_digest(code, make_code(self.secret, kind, words, text)):
            raise InvalidPeerMessage("wrong code")
        try:
            return PeerMessage.from_text(text)
        except (ValueError, TypeError) as error:
            raise InvalidPeerMessage(str(error)) from error


class PeerConnection:
    """The threads that exchange messages: one answers the other bridge, and one sends messages and keeps the lease."""

    def __init__(self, settings: LeaseSettings) -> None:
        assert settings.secret_file is not None
        self._secret = read_secret(settings.secret_file)
        self._peer = parse_address(settings.peer)
        self._ended = threading.Event()
        self.link = PeerLink(self.send)
        try:
            self._server = _MessageServer(parse_address(settings.listen), self._answer)
        except OSError as error:
            raise SettingsError(f"lease.listen={settings.listen}: {error.strerror or error}") from error

    @property
    def port(self) -> int:
        """The port on which messages arrive."""
        return int(self._server.server_address[1])

    @contextmanager
    def run(self, keep_link: Callable[[float], None]) -> Iterator[None]:
        """Run the threads. Call `keep_link` with the monotonic time once a second."""
        threads = [
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True),
            threading.Thread(target=self._keep, args=(keep_link,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._server.shutdown()
            self._server.server_close()
            for thread in threads:
                thread.join()

    def _keep(self, keep_link: Callable[[float], None]) -> None:
        while not self._ended.wait(INTERVAL_S):
            keep_link(time.monotonic())

    def send(self, message: PeerMessage) -> PeerMessage | None:
        """Send a message, and return the answer, or None if there is no valid one."""
        try:
            with socket.create_connection(self._peer, TIMEOUT_S) as connection:
                exchange = _Exchange(connection, self._secret)
                own_word = secrets.token_bytes(_WORD_BYTES)
                words = exchange.read(_WORD_BYTES) + own_word
                exchange.send(own_word)
                exchange.send_message(_REQUEST, words, message)
                answer = exchange.read_message(_ANSWER, words)
                # Look up a name only until then, because a slow name server would delay the return to the long lease.
                self._peer = connection.getpeername()[:2]
                return answer
        except (OSError, InvalidPeerMessage):
            return None

    def _answer(self, connection: socket.socket) -> None:
        exchange, own_word = _Exchange(connection, self._secret), secrets.token_bytes(_WORD_BYTES)
        with contextlib.suppress(OSError, InvalidPeerMessage):
            exchange.send(own_word)
            words = own_word + exchange.read(_WORD_BYTES)
            message = exchange.read_message(_REQUEST, words)
            exchange.send_message(_ANSWER, words, self.link.receive(message, time.monotonic()))


class _MessageServer(socketserver.ThreadingTCPServer):
    """A server that passes each connection to a function."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answer: Callable[[socket.socket], None]) -> None:
        self._answer_connection = answer
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        super().__init__(address, socketserver.BaseRequestHandler)

    @override
    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._answer_connection(request)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the other bridge gets no answer."""
