"""Dispatchers `list-*`, `fcfs`, `greedy`, `sjf`, `ljf`: order the queue, then go job by job (debs24 Algorithm 1)."""

from __future__ import annotations

from typing import Literal

from cpsched import planning as availability
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import require
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import EVERY, GREEDY, STRICT, Allocation, Rule


class ListDispatcher(Dispatcher):
    """Jobs in `order`; what a job that cannot start means for later ones is the `option`.

    `strict`: none of them starts. `greedy`: they start whenever they fit. `backfill`: it reserves its earliest slot,
    and they may not delay it; `reservations` limits that to the first K such jobs (what Slurm does), None to none.
    """

    def __init__(
        self,
        order: Literal["reg", "shortest", "longest", "sjf", "ljf", "saf", "laf", "spf"] = "reg",
        option: Literal["backfill", "greedy", "strict"] = "backfill",
        reservations: int | None = None,
        allocation: Allocation = "first-fit",
    ) -> None:
        require(reservations is None or reservations >= 0, "reservations", reservations, "must not be negative")
        by_option = {"strict": STRICT, "greedy": GREEDY, "backfill": EVERY if reservations is None else reservations}
        self.rule = Rule(by_option[option], order, allocation=allocation)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        return availability.plan(snapshot, need, self.rule)
