"""Report to clients and to systemd whether the loop is alive and its last cycle succeeded."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched.errors import escape_controls
from cpsched_bridge.cycle_report import LATE_INTERVALS, OK_RESULT, CycleReport
from cpsched_bridge.settings import CycleSettings

_CYCLE_MARGIN_S = 30.0
"""Seconds allowed for reading the cluster and sending commands, beyond the decision and the pause."""
_MAX_LISTED_EVENTS = 5


@dataclass(slots=True)
class LoopHealth:
    """The health of the loop, updated after each cycle and read by another thread."""

    cycle: CycleSettings
    clock: Callable[[], float] = time.monotonic
    _last_s: float = field(init=False)
    _report: CycleReport | None = None
    _waits_for: str = ""

    def __post_init__(self) -> None:
        self._last_s = self.clock()

    @property
    def max_cycle_gap_s(self) -> float:
        """Maximum time in seconds between the ends of two cycles if the loop is alive."""
        return (
            self.cycle.decide_timeout_s
            + max(self.cycle.max_backoff_s, self.cycle.max_interval_factor * self.cycle.interval_s)
            + _CYCLE_MARGIN_S
        )

    @property
    def max_ready_age_s(self) -> float:
        """Maximum seconds from the end of a successful cycle to the end of the next.

        If a cycle ends later, the bridge is not ready.
        """
        return (self.cycle.max_interval_factor + LATE_INTERVALS) * self.cycle.interval_s

    def __call__(self, report: CycleReport) -> None:
        """Record one cycle."""
        self._report, self._last_s, self._waits_for = report, self.clock(), report.decided.waits_for

    def on_startup_step(self, step: str) -> None:
        """Record a start-up step, which proves that the bridge is alive.

        An empty step ends the start-up.
        """
        self._waits_for, self._last_s = step, self.clock()

    def list_stall_reasons(self) -> list[str]:
        """Return why the loop appears to hang, or an empty list if it is alive."""
        age_s = self.clock() - self._last_s
        if age_s <= self.max_cycle_gap_s:
            return []
        return [f"no cycle has ended for {age_s:.0f} s; the limit is {self.max_cycle_gap_s:.0f} s"]

    def list_unready_reasons(self) -> list[str]:
        """Return why the bridge is not ready.

        Return an empty list if its last cycle succeeded recently.
        """
        report, found = self._report, self.list_stall_reasons()
        if self._waits_for:
            found.append(f"no decision yet: {self._waits_for}")
        if report is None:
            return [*found, "no cycle has ended yet"]
        if report.result != OK_RESULT:
            details = [h.detail for h in report.bridge_events if h.kind == report.result][:_MAX_LISTED_EVENTS]
            found.append(f"round {report.number} failed: {report.result}")
            found += [escape_controls(detail)[:500] for detail in details]
        elif not found and (age_s := self.clock() - self._last_s) > self.max_ready_age_s:
            found.append(
                f"the last good cycle ended {age_s:.0f} s ago; cycle.interval_s is {self.cycle.interval_s:g} s"
            )
        return found

    def describe_last_cycle(self) -> str:
        """Return a one-line summary of the last cycle."""
        report = self._report
        if report is None:
            return "no cycle has ended yet"
        return f"round {report.number}, {report.role.mode}, {report.result}"


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
