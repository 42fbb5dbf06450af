"""What a dispatcher is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from cpsched.model import Decision, EndedJob, Need, Snapshot
from cpsched.model.overrun import Overrun
from cpsched.predictors.base import set_learns_default


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
    """Whether `learn` must be called for every ended job; True by default in a class that overrides `learn`."""

    every_round: bool = False
    """Whether it is to be asked also where no queued job can start, because it takes note of what happens."""

    overrun: Overrun = "one-second"
    """When a running job that outlived its estimate is expected to end, where the policy says nothing else."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_learns_default(cls, Dispatcher)

    @abstractmethod
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """A decision that `verify` finds no fault with. Every job of the snapshot has its estimate.

        `need` is "starts" where the caller needs only what starts now; the plan and the waits may then be left out.
        """

    def learn(self, ended: EndedJob) -> None:
        """Learn from a job that ended."""

    def took(self, seconds: float) -> None:
        """Take note of how long the last decision took, where the caller measures it: the core reads no clock.

        What is made of it must be part of `memory`.
        """

    def memory(self) -> Any:
        """What the next decision depends on besides its snapshot, as JSON; None: nothing, or it cannot tell.

        That is whatever it keeps from one round to the next: what `learn` has taught it, an order that it goes on from,
        the state of a random generator. The bridge asks for it right before each `decide` and writes it down, so that
        the recorded decision can be taken again; so it must be cheap. What changes little from round to round takes
        little room in the journal. JSON means: None, booleans, finite numbers, texts, lists, and mappings from texts.
        """
        return None

    def recall(self, memory: Any) -> None:
        """Know what `memory` said, after a trip through JSON, and nothing else: `decide` then decides as it did then.

        A new dispatcher of the same settings is told so, before its first `decide`. One that keeps an order:

        >>> class Sticky(Dispatcher):
        ...     order: list[int] = []
        ...     def memory(self):
        ...         return self.order
        ...     def recall(self, memory):
        ...         self.order = memory
        ...     def decide(self, snapshot, need="plan"):
        ...         ...  # goes on from `self.order`, and leaves the job ids there as it ordered them
        """
