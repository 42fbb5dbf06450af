"""What a dispatcher is."""

from __future__ import annotations

from typing import Protocol

from cpsched.model import Decision, EndedJob, Need, Snapshot


class Dispatcher(Protocol):
    """Decides which queued jobs start now, and on which nodes. Same snapshots in the same order, same decisions."""

    learns: bool
    """Whether `learn` must be called for every ended job."""

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """A decision that `verify` finds no fault with. Every job of the snapshot has its estimate."""
        ...

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended (expected waits)."""
        ...


class Unlearned:
    """Base of dispatchers that learn nothing."""

    learns = False

    def learn(self, ended: EndedJob) -> None:
        """Nothing to learn."""
