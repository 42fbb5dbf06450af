"""Define the base class of dispatchers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from cpsched.model import Decision, EndedJob, Need, Snapshot
from cpsched.model.overrun import DEFAULT_OVERRUN, Overrun
from cpsched.predictors.base import set_learns_default


class Dispatcher(ABC):
    """Base class of dispatchers, which decide which queued jobs start now, and where.

    Equal sequences of snapshots must give equal decisions. Subclasses must define `decide`. All other methods have
    defaults. This example starts the smallest area first, and makes a reservation for the first job that must wait:

    >>> from cpsched.planning import plan
    >>> class SmallestFirst(Dispatcher):
    ...     def decide(self, snapshot, need="plan"):
    ...         return plan(snapshot, order="saf", reservations=1, need=need)
    """

    learns: bool = False
    """Whether `learn` must be called for each ended job. Defaults to True if the class overrides `learn`."""

    every_round: bool = False
    """Whether `decide` must be called even if no queued job can start, because the dispatcher tracks events."""

    overrun: Overrun = DEFAULT_OVERRUN
    """Default rule for the expected end of a running job that has outlived its estimate."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        set_learns_default(cls, Dispatcher)

    @abstractmethod
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Return a decision that passes `verify`.

        Every job in the snapshot has an estimate. If `need` is "starts", the decision may omit the plan and the waits.
        """

    def learn(self, ended: EndedJob) -> None:
        """Learn from an ended job."""

    def took(self, seconds: float) -> None:
        """Receive the duration of the last decision in seconds.

        Callers without a clock do not call this method. State that depends on the duration must be part of `memory`.
        """

    def memory(self) -> Any:
        """Return the state on which the next decision depends, as JSON, or None.

        State is everything that the dispatcher stores between rounds, such as results of `learn`, an order, or a random
        generator. The bridge records it before each `decide` to make the decision replayable, so this method must be
        cheap. State that changes little between rounds needs little space in the journal. JSON means None, booleans,
        finite numbers, strings, lists, and mappings with string keys.
        """
        return None

    def recall(self, memory: Any) -> None:
        """Restore an earlier `memory` so that `decide` repeats its decision.

        `memory` has made a JSON round trip. This method is called on a new dispatcher with the same settings, before
        the first `decide`. This example stores an order:

        >>> class Sticky(Dispatcher):
        ...     order: list[int] = []
        ...     def memory(self):
        ...         return self.order
        ...     def recall(self, memory):
        ...         self.order = memory
        ...     def decide(self, snapshot, need="plan"):
        ...         ...  # starts from `self.order`, and stores the new order of job ids in it
        """
