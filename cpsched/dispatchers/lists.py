"""Dispatchers `list-*`, `fcfs`, `greedy`, `sjf`, `ljf`: order the queue, then go job by job (debs24 Algorithm 1)."""

from __future__ import annotations

from typing import Literal

from cpsched import planning as availability
from cpsched.dispatchers.base import Dispatcher
from cpsched.errors import require
from cpsched.listing import Listing
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


_DEBS24 = "debs24 Algorithm 1"
_MOD17 = "mod17 section 4"
_STOPS = "the first that does not fit stops the round."


def _listed(name: str, summary: str, source: str, **fixed: object) -> Listing:
    return Listing(name, summary, source, ListDispatcher, fixed)


LISTED = (
    _listed("fcfs", "First come, first served: nobody overtakes.", _DEBS24, option="strict"),
    _listed("greedy", "First come, first served, but whatever fits starts.", _DEBS24, option="greedy"),
    _listed("list-reg", "By arrival; every job that waits reserves its earliest slot.", _DEBS24, order="reg"),
    _listed("list-sjf", "Shortest estimate first, with reservations.", _DEBS24, order="sjf"),
    _listed("list-ljf", "Longest estimate first, with reservations.", _DEBS24, order="ljf"),
    _listed("list-saf", "Smallest area first, with reservations.", _DEBS24, order="saf"),
    _listed("list-laf", "Largest area first, with reservations.", _DEBS24, order="laf"),
    _listed("list-spf", "Smallest processors times squared estimate first.", _DEBS24, order="spf"),
    _listed("sjf", f"Shortest estimate first; {_STOPS}", _MOD17, order="shortest", option="strict"),
    _listed("ljf", f"Longest estimate first; {_STOPS}", _MOD17, order="longest", option="strict"),
)
