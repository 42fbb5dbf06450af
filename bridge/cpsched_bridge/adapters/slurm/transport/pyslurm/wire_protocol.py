"""Exchange frames between the bridge and its pyslurm child.

A frame consists of a length and one JSON value.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

HEADER = struct.Struct(">I")
CHUNK_BYTES = 1 << 20
READY_FRAME = {"begun": True}
"""The child's first frame: the import of pyslurm has ended, and the child answers calls."""


class WorkerChannelClosed(Exception):
    """An error for a channel that the peer closed."""


def send_frame(channel: socket.socket, value: Any) -> None:
    """Write one frame.

    Raise `WorkerChannelClosed`, or `TimeoutError` if the channel's timeout expires.
    """
    body = json.dumps(value, separators=(",", ":")).encode()
    try:
        channel.sendall(HEADER.pack(len(body)) + body)
    except (BrokenPipeError, ConnectionError) as error:
        raise WorkerChannelClosed(str(error)) from error


def receive_frame(channel: socket.socket, deadline_s: float | None = None) -> Any:
    """Return the next frame's value.

    It must arrive by `deadline_s` (monotonic clock). Raise `WorkerChannelClosed` or `TimeoutError`.
    """
    (length,) = HEADER.unpack(_receive_exactly(channel, HEADER.size, deadline_s))
    return json.loads(_receive_exactly(channel, length, deadline_s))


def _receive_exactly(channel: socket.socket, count: int, deadline_s: float | None) -> bytes:
    parts: list[bytes] = []
    while count:
        if deadline_s is not None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            channel.settimeout(left_s)
        try:
            part = channel.recv(min(count, CHUNK_BYTES))
        except ConnectionError as error:
            raise WorkerChannelClosed(str(error)) from error
        if not part:
            raise WorkerChannelClosed("end of stream")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
