"""Dispatchers `easy` and `easy-sjbf`: EASY backfilling (Lifka 1995; Tsafrir et al. 2007 for shortest job first)."""

from __future__ import annotations

from typing import Literal

from cpsched import planning as availability
from cpsched.dispatchers.base import Dispatcher
from cpsched.listing import Listing
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import Allocation, Rule


class EasyDispatcher(Dispatcher):
    """First come, first served; the first that cannot start reserves its earliest slot, others may not delay it.

    `backfill` is the order in which the others are tried: `fcfs`, or `shortest` estimate first.
    """

    def __init__(self, backfill: Literal["fcfs", "shortest"] = "fcfs", allocation: Allocation = "first-fit") -> None:
        self.rule = Rule(1, backfill="reg" if backfill == "fcfs" else "shortest", allocation=allocation)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        return availability.plan(snapshot, need, self.rule)


LISTED = (
    Listing(
        "easy", "First come, first served; others may not delay the first that waits.", "Lifka 1995", EasyDispatcher
    ),
    Listing(
        "easy-sjbf",
        "EASY whose other jobs are tried shortest estimate first.",
        "Tsafrir et al. 2007",
        EasyDispatcher,
        {"backfill": "shortest"},
    ),
    Listing(
        "ebf",
        "EASY backfilling as in mod17: a missed reservation moves, nothing is killed.",
        "mod17 section 4",
        EasyDispatcher,
    ),
)
