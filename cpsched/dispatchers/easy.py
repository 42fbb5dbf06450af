"""Define the EASY dispatchers (Lifka 1995; Tsafrir et al. 2007; mod17)."""

from __future__ import annotations

from typing import Literal

from cpsched.dispatchers.list_dispatchers import ListSchedulerDispatcher
from cpsched.planning import DEFAULT_TAU_H, Allocation, ListSchedulerSpec, OrderName
from cpsched.registration import Registration


class EasyDispatcher(ListSchedulerDispatcher):
    """EASY backfilling, in which no job may delay the first job that cannot start.

    `order` is the queue order: `priority` is the site's order, and `boost` has the scale `tau_h` in hours. `backfill`
    orders the backfill candidates: `fcfs` (as in the queue) or `shortest` estimate first. The first job that cannot
    start reserves its earliest start, the *shadow time* of the literature. `shadow_time_on_pool` in
    `cpsched/kernels/pool_list_scheduling.py` computes it on a counted pool, and `earliest_start` in
    `cpsched/kernels/node_class_availability.py` computes it on nodes.
    """

    def __init__(
        self,
        backfill: Literal["fcfs", "shortest"] = "fcfs",
        allocation: Allocation = "first-fit",
        order: OrderName = "reg",
        tau_h: float = DEFAULT_TAU_H,
    ) -> None:
        self.scheme = ListSchedulerSpec(1, order, "reg" if backfill == "fcfs" else "shortest", allocation, tau_h)


class PostponedEasyDispatcher(EasyDispatcher):
    """EASY backfilling as in mod17, with the parameters of `easy`: a missed reservation is postponed."""

    overrun = "one-second"


REGISTRATIONS = (
    Registration("easy", "EASY backfilling: no job may delay the first pending job.", "Lifka 1995", EasyDispatcher),
    Registration(
        "easy-sjbf",
        "EASY backfilling, with the shortest estimate first among candidates.",
        "Tsafrir et al. 2007",
        EasyDispatcher,
        {"backfill": "shortest"},
    ),
    Registration(
        "ebf",
        "EASY backfilling as in mod17: a missed reservation is postponed, and no job is killed.",
        "mod17 section 4",
        PostponedEasyDispatcher,
    ),
)
