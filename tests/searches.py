"""Variants of searches for tests and studies, which no production dispatcher offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from cpsched import registry
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp.constraint_dispatcher import ConstraintDispatcher
from cpsched.dispatchers.cp.cp_dispatcher_config import CpDispatcherConfig
from cpsched.dispatchers.cp.cp_sat_dispatcher import CpSatDispatcher
from cpsched.dispatchers.lookahead.lookahead_dispatcher import ALL_CANDIDATES, LookaheadDispatcher
from cpsched.jit.decorators import kernel
from cpsched.jit.shared_structs import Reals
from cpsched.kernels.order_moves import ALL_MOVES
from cpsched.kernels.order_search_state import OrderSearchState
from cpsched.kernels.plan_costs import start_cost
from cpsched.kernels.scheduling_state import SchedulingState
from cpsched.model import NEVER


class Ablated(LookaheadDispatcher):
    """`lookahead` with parts left out.

    - `candidates`: bits of the orders tried: last round's, reg, sjf, saf, spf, laf, Smith's.
    - `moves`: bits of the changes made by the search, see `cpsched.kernels.order_moves`. The shares of the remaining
      ones
    grow in proportion.
    - `reservations`: number of jobs that cannot start now and keep their planned slot, the first of an order; later
      jobs
    start where they fit beside them. None: all. Only on a pool.
    """

    def __init__(
        self,
        *settings: Any,
        candidates: int = ALL_CANDIDATES,
        moves: int = ALL_MOVES,
        reservations: int | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*settings, **named)
        found = self._search.settings
        found.candidates, found.moves = candidates, moves
        found.reservations = NEVER if reservations is None else reservations


class Priced(LookaheadDispatcher):
    """`lookahead` with accessible prices."""

    def weights(self, count: int) -> Reals:
        """Return the cost of a second of each of `count` queued jobs, by queue position, from the last round."""
        return weights(self._search, count)

    def prices(self, site: SchedulingState, start_s: int) -> Reals:
        """Return the cost of starting each queued job at a second, by queue position, without a bound."""
        return prices(site, self._search, start_s)

    @property
    def aged_s(self) -> float:
        return float(self._search.objective.aged_s)


@kernel
def weights(search: OrderSearchState, count: int) -> Reals:
    """Return the cost of a second of each of `count` queued jobs, by queue position, from the last round."""
    return search.queued.weight[:count].copy()


@kernel
def prices(site: SchedulingState, search: OrderSearchState, start_s: int) -> Reals:
    """Return the cost of starting each queued job at a second, by queue position, without a bound."""
    found, search.bound_s = np.empty(site.queued), NEVER
    for position in range(site.queued):
        found[position] = start_cost(site, search, position, start_s)
    return found


class Asking(ConstraintDispatcher):
    """A member of the CP family that calls the solver in every round, as in the papers."""

    certain = False

    def __init__(self, certain: bool = False, in_order: bool = True, **words: Any) -> None:
        parts = {field.name: words.pop(field.name) for field in fields(CpDispatcherConfig) if field.name in words}
        super().__init__(CpDispatcherConfig(**parts), **words)
        self.certain, self.in_order = certain, in_order


def studied(name: str, settings: Mapping[str, str]) -> Dispatcher:
    """Return the dispatcher of that name, with `settings` that may be those of studies.

    `certain=no` always calls the solver; `equal_jobs=any-order` lets interchangeable jobs start in any order.
    """
    rest = dict(settings)
    certain, equal = rest.pop("certain", "yes"), rest.pop("equal_jobs", "in-order")
    found: Dispatcher = registry.DISPATCHERS.build(name, rest)
    if isinstance(found, ConstraintDispatcher | CpSatDispatcher):
        found.certain = certain == "yes"
    if isinstance(found, ConstraintDispatcher):
        found.in_order = equal == "in-order"
    return found
