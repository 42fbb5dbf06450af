"""Dispatchers `list-*`, `fcfs`, `greedy`, `sjf`, `ljf`: order the queue, then go job by job (debs24 Algorithm 1)."""

from __future__ import annotations

from typing import Literal

from cpsched.dispatchers.list_scheduler import ListSchedulerDispatcher
from cpsched.errors import require
from cpsched.planning import EVERY, GREEDY, ORDERS, STRICT, Allocation, ListScheduler, OrderName
from cpsched.registration import Registration


class ListDispatcher(ListSchedulerDispatcher):
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
        unread = f"needs option=backfill, not {option}"
        require(reservations is None or option == "backfill", "reservations", reservations, unread)
        by_option = {"strict": STRICT, "greedy": GREEDY, "backfill": EVERY if reservations is None else reservations}
        self.scheme = ListScheduler(by_option[option], order, allocation=allocation)


_DEBS24 = "debs24 Algorithm 1"
_MOD17 = "mod17 section 4"
_SOURCES = {"debs24": _DEBS24, "Slurm": "Slurm's own order of the queue (job_scheduler.c)"}
_STOPS = "the first that does not fit stops the round."
_OTHERS = [(name, row) for name, row in ORDERS.items() if row.source != "mod17"]
"""The orders that make a `list-NAME`: all but those of mod17, whose `sjf` and `ljf` are listed by name."""


def _listed(name: str, summary: str, source: str, **fixed: object) -> Registration:
    return Registration(name, summary, source, ListDispatcher, fixed)


LISTED = (
    _listed("fcfs", "First come, first served: nobody overtakes.", _DEBS24, option="strict"),
    _listed("greedy", "First come, first served, but whatever fits starts.", _DEBS24, option="greedy"),
    *(
        _listed(f"list-{name}", f"{row.sentence}, with reservations.", _SOURCES.get(row.source, row.source), order=name)
        for name, row in _OTHERS
    ),
    _listed("sjf", f"Shortest estimate first; {_STOPS}", _MOD17, order="shortest", option="strict"),
    _listed("ljf", f"Longest estimate first; {_STOPS}", _MOD17, order="longest", option="strict"),
)
