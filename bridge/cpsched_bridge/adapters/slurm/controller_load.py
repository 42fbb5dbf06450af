"""How busy slurmctld is, by `sdiag`: asked beside the cycle at a pace of its own, so that no cycle waits for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from cpsched_bridge.adapters.slurm.policy.policy_commands import PolicyQuery

COMMAND = ("sdiag",)
ANSWER = "sdiag"
"""The name of its answer."""
LOOK_EVERY_S = 15.0
"""How often slurmctld is asked while it is not busy; while it is, with every cycle."""

BUSY_REQUESTS = 100
"""Requests at once from which on slurmctld is busy: users begin to wait for commands."""
BUSY_MESSAGES = 1000
"""Messages to nodes that wait to be sent, from which on slurmctld is busy."""

_HEAD_ENDS = "\nJobs submitted:"
_THREADS = re.compile(r"^Server thread count:\s+(\d{1,9})\b", re.MULTILINE)
_MESSAGES = re.compile(r"^Agent queue size:\s+(\d{1,9})\b", re.MULTILINE)
_QUEUED = re.compile(r"^\t[A-Z][A-Z0-9_]*\s*\(\s*\d+\) count:.* queued:(\d{1,9})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ControllerLoad:
    """What slurmctld has to do at once."""

    requests: int
    """Calls that it works on (`Server thread count`) or keeps waiting (`queued`, in releases that tell it)."""
    messages: int
    """Messages to nodes that wait to be sent (`Agent queue size`)."""


def parse_load(text: str) -> ControllerLoad | None:
    """The load in what `sdiag` prints; None where it is no such text. Names of users stand below what is read."""
    head, _, rest = text.partition(_HEAD_ENDS)
    threads, messages = _THREADS.search(head), _MESSAGES.search(head)
    if threads is None or messages is None:
        return None
    types = rest.partition("\nRemote Procedure Call statistics by user")[0]
    queued = sum(int(count) for count in _QUEUED.findall(types))
    return ControllerLoad(int(threads[1]) + queued, int(messages[1]))


@dataclass(slots=True)
class ControllerLoadMonitor:
    """Says why slurmctld had rather be asked less often, by limits on its load."""

    asking: PolicyQuery
    clock: Callable[[], float]
    busy: str = ""
    """By the last answer; empty where nothing speaks for it. No answer changes nothing."""
    _asked: bool = False
    _due_s: float = field(default=float("-inf"))

    def look(self) -> str:
        """Take an answer that has come, and ask anew if it is time to; never waits. Returns `busy`."""
        if self._asked and (found := self.asking.answer()) is not None:
            self._asked = False
            load = parse_load(found.texts.get(ANSWER, ""))
            if load is not None:
                self.busy = self._judged(load)
            self._due_s = self.clock() + (0.0 if self.busy else LOOK_EVERY_S)
        if not self._asked and self.clock() >= self._due_s:
            self.asking.start()
            self._asked = True
        return self.busy

    def _judged(self, load: ControllerLoad) -> str:
        if load.requests >= BUSY_REQUESTS:
            return f"slurmctld has {load.requests:,} requests at once (busy from {BUSY_REQUESTS} on)"
        if load.messages >= BUSY_MESSAGES:
            return f"slurmctld has {load.messages:,} messages to send (busy from {BUSY_MESSAGES:,} on)"
        return ""

    def close(self) -> None:
        """End what is on its way."""
        self.asking.close()
