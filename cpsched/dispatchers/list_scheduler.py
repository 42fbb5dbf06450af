"""Dispatchers `list-*`, `fcfs`, `greedy`: order the queue, then start and reserve job by job (debs24 Algorithm 1)."""

from __future__ import annotations

from typing import Literal

from cpsched import availability
from cpsched.availability import EVERY, GREEDY, STRICT, Allocation
from cpsched.dispatchers.base import Unlearned
from cpsched.dispatchers.orders import ORDERS, OrderName
from cpsched.errors import require
from cpsched.model import Decision, Need, Snapshot


class ListDispatcher(Unlearned):
    """Jobs in `order`; what a job that cannot start means for later ones is the `option`.

    `strict`: none of them starts. `greedy`: they start whenever they fit. `backfill`: it reserves its earliest slot,
    and they may not delay it; `reservations` limits that to the first K such jobs (what Slurm does), None to none.
    """

    def __init__(
        self,
        order: OrderName = "reg",
        option: Literal["backfill", "greedy", "strict"] = "backfill",
        reservations: int | None = None,
        allocation: Allocation = "first-fit",
    ) -> None:
        require(reservations is None or reservations >= 0, "reservations", reservations, "must not be negative")
        self.order: OrderName = order
        self.reservations = EVERY if reservations is None else reservations
        if option != "backfill":
            self.reservations = STRICT if option == "strict" else GREEDY
        self.allocation: Allocation = allocation

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        order = ORDERS[self.order](snapshot)
        return availability.plan(snapshot, need, self.reservations, order, allocation=self.allocation)
