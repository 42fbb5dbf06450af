"""Monitor slurmctld's load with `sdiag` in the background."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched_bridge.adapters.slurm.policy.site_policy_commands import BackgroundCommandQuery

COMMAND = ("sdiag",)
OUTPUT_NAME = "sdiag"
"""Name of the command's output."""
QUERY_INTERVAL_S = 15.0
"""Interval between queries in seconds while slurmctld is not busy. While it is busy, each cycle queries it."""

BUSY_REQUESTS = 100
"""Number of concurrent requests at which slurmctld counts as busy, because users begin to wait for commands."""
BUSY_MESSAGES = 1000
"""Number of messages queued for nodes at which slurmctld counts as busy."""

_HEADER_END = "\nJobs submitted:"
_THREADS = re.compile(r"^Server thread count:\s+(\d{1,9})\b", re.MULTILINE)
_MESSAGES = re.compile(r"^Agent queue size:\s+(\d{1,9})\b", re.MULTILINE)
_QUEUED = re.compile(r"^\t[A-Z][A-Z0-9_]*\s*\(\s*\d+\) count:.* queued:(\d{1,9})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ControllerLoad:
    """The current load on slurmctld."""

    requests: int
    """Calls in progress (`Server thread count`) and queued calls (`queued`, in releases that report it)."""
    messages: int
    """Messages queued for nodes (`Agent queue size`)."""


def parse_controller_load(text: str) -> ControllerLoad | None:
    """Return the load in the output of `sdiag`, or None if its form is unexpected.

    User names appear only after the parsed part.
    """
    head, _, rest = text.partition(_HEADER_END)
    threads, messages = _THREADS.search(head), _MESSAGES.search(head)
    if threads is None or messages is None:
        return None
    types = rest.partition("\nRemote Procedure Call statistics by user")[0]
    queued = sum(int(count) for count in _QUEUED.findall(types))
    return ControllerLoad(int(threads[1]) + queued, int(messages[1]))


@dataclass(slots=True)
class ControllerLoadMonitor:
    """A monitor that reports when slurmctld is too busy for the usual calls."""

    asking: BackgroundCommandQuery
    clock: Callable[[], float]
    busy: str = ""
    """Why slurmctld counts as busy according to the last output, or "" if it is not busy.

    Missing output does not change this value.
    """
    _asked: bool = False
    _due_s: float = field(default=float("-inf"))

    def poll(self) -> str:
        """Collect an available answer, start a query if it is due, and return `busy`.

        This method never waits.
        """
        if self._asked and (found := self.asking.collect_output()) is not None:
            self._asked = False
            load = parse_controller_load(found.texts.get(OUTPUT_NAME, ""))
            if load is not None:
                self.busy = self._overload_reason(load)
            self._due_s = self.clock() + (0.0 if self.busy else QUERY_INTERVAL_S)
        if not self._asked and self.clock() >= self._due_s:
            self.asking.start()
            self._asked = True
        return self.busy

    def _overload_reason(self, load: ControllerLoad) -> str:
        if load.requests >= BUSY_REQUESTS:
            return f"slurmctld has {load.requests:,} concurrent requests (limit: {BUSY_REQUESTS})"
        if load.messages >= BUSY_MESSAGES:
            return f"slurmctld has {load.messages:,} unsent messages (limit: {BUSY_MESSAGES:,})"
        return ""

    def close(self) -> None:
        """Stop any running query."""
        self.asking.close()
