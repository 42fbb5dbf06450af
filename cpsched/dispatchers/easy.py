"""Dispatchers `easy` and `easy-sjbf`: EASY backfilling (Lifka 1995; Tsafrir et al. 2007 for shortest job first)."""

from __future__ import annotations

from typing import Literal

from cpsched.dispatchers.list_scheduler import ListSchedulerDispatcher
from cpsched.planning import Allocation, ListScheduler, OrderName
from cpsched.registration import Registration


class EasyDispatcher(ListSchedulerDispatcher):
    """First come, first served; the first that cannot start reserves its earliest slot, others may not delay it.

    `order` may be another than that of arrival (`priority`: the site's own). `backfill` is the order in which the
    others are tried: `fcfs`, which is the same order, or `shortest` estimate first. The earliest slot of the first job
    that waits is the *shadow time* of the textbooks. `shadow` in `cpsched/kernels/pool_scheduling.py` computes it on a
    counted
    pool, `first_slot` in `cpsched/kernels/availability.py` on nodes.
    """

    def __init__(
        self,
        backfill: Literal["fcfs", "shortest"] = "fcfs",
        allocation: Allocation = "first-fit",
        order: OrderName = "reg",
    ) -> None:
        self.scheme = ListScheduler(1, order, "reg" if backfill == "fcfs" else "shortest", allocation)


LISTED = (
    Registration(
        "easy", "First come, first served; others may not delay the first that waits.", "Lifka 1995", EasyDispatcher
    ),
    Registration(
        "easy-sjbf",
        "EASY whose other jobs are tried shortest estimate first.",
        "Tsafrir et al. 2007",
        EasyDispatcher,
        {"backfill": "shortest"},
    ),
    Registration(
        "ebf",
        "EASY backfilling as in mod17: a missed reservation moves, nothing is killed.",
        "mod17 section 4",
        EasyDispatcher,
    ),
)
