"""Dispatchers `list-*`, `fcfs`, `greedy`, `sjf`, `ljf`: order the queue, then go job by job (debs24 Algorithm 1)."""

from __future__ import annotations

from typing import Literal

from cpsched.dispatchers.by_scheme import SchemeDispatcher
from cpsched.errors import require
from cpsched.planning import EVERY, GREEDY, STRICT, Allocation, OrderName, Scheme


class ListDispatcher(SchemeDispatcher):
    """Jobs in `order` (see `cpsched.planning.ORDERS`); the `option` says what a job that cannot start means for others.

    - `strict`: no later job starts.
    - `greedy`: later jobs start whenever they fit.
    - `backfill`: the job reserves its earliest slot, and later jobs may not delay it. `reservations` limits that to
      the first K such jobs (what Slurm does); None sets no limit.
    """

    def __init__(
        self,
        order: OrderName = "reg",
        option: Literal["backfill", "greedy", "strict"] = "backfill",
        reservations: int | None = None,
        allocation: Allocation = "first-fit",
    ) -> None:
        require(reservations is None or reservations >= 0, "reservations", reservations, "must not be negative")
        by_option = {"strict": STRICT, "greedy": GREEDY, "backfill": EVERY if reservations is None else reservations}
        self.scheme = Scheme(by_option[option], order, allocation=allocation)
