"""Define the list dispatchers (debs24 Algorithm 1; mod17 section 4)."""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import require
from cpsched.model import Decision, Need, Snapshot
from cpsched.planning import (
    DEFAULT_TAU_H,
    EVERY_JOB,
    GREEDY,
    ORDERS,
    STRICT,
    Allocation,
    ListSchedulerSpec,
    OrderName,
    plan_by_spec,
)
from cpsched.registration import Registration


class ListSchedulerDispatcher(Dispatcher):
    """A dispatcher defined by `scheme` alone, which a compiled loop can simulate."""

    scheme: ListSchedulerSpec

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        return plan_by_spec(self.scheme, snapshot, need)


class ListDispatcher(ListSchedulerDispatcher):
    """List scheduling in `order` (see `cpsched.planning.ORDERS`).

    `option` is the rule for a job that cannot start now:

    - `strict`: no later job starts.
    - `greedy`: later jobs start if they fit.
    - `backfill`: the job reserves its earliest start, and no later job may delay it. If `reservations` is not None, at
      most this many jobs make reservations, as in Slurm.

    `tau_h` is the scale of the order `boost` in hours: the larger it is, the longer small jobs may overtake older ones.
    """

    def __init__(
        self,
        order: OrderName = "reg",
        option: Literal["backfill", "greedy", "strict"] = "backfill",
        reservations: int | None = None,
        allocation: Allocation = "first-fit",
        tau_h: float = DEFAULT_TAU_H,
    ) -> None:
        require(reservations is None or reservations >= 0, "reservations", reservations, "must not be negative")
        unread = f"requires option=backfill, not {option}"
        require(reservations is None or option == "backfill", "reservations", reservations, unread)
        by_option = {
            "strict": STRICT,
            "greedy": GREEDY,
            "backfill": EVERY_JOB if reservations is None else reservations,
        }
        self.scheme = ListSchedulerSpec(by_option[option], order, allocation=allocation, tau_h=tau_h)


_DEBS24_CITATION = "debs24 Algorithm 1"
_MOD17 = "mod17 section 4"
_SOURCES = {"debs24": _DEBS24_CITATION, "Slurm": "Slurm's own order of the queue (job_scheduler.c)"}
_STOP_RULE = "until a job does not fit."
_NAMED_ORDERS = [(name, row) for name, row in ORDERS.items() if row.source != "mod17"]
"""Orders that have a dispatcher `list-NAME`: all except those from mod17, whose dispatchers are `sjf` and `ljf`."""


def _build_registration(name: str, summary: str, source: str, **fixed: object) -> Registration:
    return Registration(name, summary, source, ListDispatcher, fixed)


REGISTRATIONS = (
    _build_registration(
        "fcfs", "First come, first served: no job overtakes another.", _DEBS24_CITATION, option="strict"
    ),
    _build_registration(
        "greedy", "First come, first served, but every job that fits starts.", _DEBS24_CITATION, option="greedy"
    ),
    *(
        _build_registration(
            f"list-{name}", f"{row.sentence}, with reservations.", _SOURCES.get(row.source, row.source), order=name
        )
        for name, row in _NAMED_ORDERS
    ),
    _build_registration("sjf", f"Shortest estimate first, {_STOP_RULE}", _MOD17, order="shortest", option="strict"),
    _build_registration("ljf", f"Longest estimate first, {_STOP_RULE}", _MOD17, order="longest", option="strict"),
)
