"""What a dispatcher is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from cpsched.model import Decision, EndedJob, Need, Snapshot


class Dispatcher(ABC):
    """Decides which queued jobs start now, and on which nodes. Same snapshots in the same order, same decisions.

    Derive from it and write `decide`; the rest has working defaults. The smallest jobs first, while the first of them
    that must wait keeps its earliest start:

    >>> from cpsched.planning import plan
    >>> class SmallestFirst(Dispatcher):
    ...     def decide(self, snapshot, need="plan"):
    ...         return plan(snapshot, order="saf", reservations=1, need=need)
    """

    learns: bool = False
    """Whether `learn` must be called for every ended job."""

    @abstractmethod
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """A decision that `verify` finds no fault with. Every job of the snapshot has its estimate.

        `need` is "starts" where the caller needs only what starts now; the plan and the waits may then be left out.
        """

    def learn(self, ended: EndedJob) -> None:
        """Take note of a job that ended."""

    def memory(self) -> Any:
        """What `learn` has taught it, as JSON, so that a recorded decision can be taken again; None: it cannot tell."""
        return None

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Know what `memory` says, and nothing else."""
