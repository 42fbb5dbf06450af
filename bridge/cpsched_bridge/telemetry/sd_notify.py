"""Send messages to systemd through NOTIFY_SOCKET; see sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket


class SystemdNotifier:
    """A connection to the service manager that started the bridge, if any."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]

    def notify(self, *assignments: str) -> None:
        """Send assignments such as `READY=1`, `WATCHDOG=1` or `STATUS=...`.

        Do nothing if no service manager is listening.
        """
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as s,
        ):
            s.sendto("\n".join(assignments).encode(), self._address)

    @property
    def is_listening(self) -> bool:
        """Whether a service manager started the bridge and expects its messages."""
        return bool(self._address)

    @property
    def watchdog_s(self) -> float | None:
        """systemd's watchdog interval in seconds, or None if there is no watchdog."""
        microseconds = os.environ.get("WATCHDOG_USEC", "")
        return int(microseconds) / 1e6 if microseconds.isdigit() else None
