"""What tests and studies ask of a search, and no production dispatcher offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from cpsched import catalogue
from cpsched.compile.doors import Door
from cpsched.compile.handles import Reals
from cpsched.compile.jit import inner, kernel
from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp.kit import ConstraintDispatcher
from cpsched.dispatchers.cp.per_objective import PerObjectiveDispatcher
from cpsched.dispatchers.cp.recipe import Recipe
from cpsched.dispatchers.lookahead.dispatcher import ALL_CANDIDATES, Lookahead
from cpsched.kernels import moves
from cpsched.kernels.costs import price
from cpsched.kernels.moves import ALL_MOVES
from cpsched.kernels.search import look_ahead
from cpsched.kernels.search_state import Price, Search
from cpsched.kernels.state import Site
from cpsched.model import NEVER

Compiled = Any
"""A kernel or a helper: what `cpsched.compile.jit` makes of a function."""


class Ablated(Lookahead):
    """`lookahead` with parts left out.

    - `candidates`: bits of the orders that are tried: last round's, reg, sjf, saf, spf, laf, Smith's.
    - `moves`: bits of the changes that the search makes, see `cpsched.kernels.moves`. The shares of those that are left
      grow in proportion.
    - `reservations`: so many of the jobs that cannot start now hold the slot that is planned for them, the first of an
      order; what is behind starts where it fits beside. None: all. On a pool alone.
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


class Priced(Lookahead):
    """`lookahead` that shows its prices."""

    def weights(self, count: int) -> Reals:
        """What a second costs of each of `count` queued jobs, by queue position, as the last round had it."""
        return weights(self._search, count)

    def prices(self, site: Site, start_s: int) -> Reals:
        """What it costs to start each queued job at a second, by queue position, without a bound."""
        return prices(site, self._search, self._objective, start_s)

    @property
    def aged_s(self) -> float:
        return float(self._objective.aged_s)


class Moving(Ablated):
    """`lookahead` whose search makes the moves of a study.

    `move` is a compiled function like `cpsched.kernels.moves.move`, whose contract it keeps; it may call that one.
    Each such function has a search of its own, compiled at the first decision and kept in the cache as all kernels are.
    """

    def __init__(self, move: Compiled, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, **named)
        self._look_ahead = exchanged(look_ahead, moves.move, move)


@lru_cache
def exchanged(door: Compiled, part: Compiled, own: Compiled) -> Compiled:
    """A door that does what `door` does, but calls `own` wherever `door` or its helpers call `part`.

    Helpers that lead to `part` are compiled again, under names that tell of `own`; the others are used as they are.
    """
    made: dict[Any, Compiled] = {part.py_func: own}

    def changed(compiled: Compiled) -> Compiled:
        function = compiled.py_func
        if function not in made:
            made[function] = compiled  # the name of a field may be that of a helper, even of this one
            called = {name: function.__globals__.get(name) for name in function.__code__.co_names}
            others = {name: changed(each) for name, each in called.items() if hasattr(each, "py_func")}
            if any(each is not called[name] for name, each in others.items()):
                copy = FunctionType(function.__code__, function.__globals__ | others, function.__name__)
                copy.__annotations__, copy.__doc__ = function.__annotations__, function.__doc__
                copy.__qualname__ = f"{function.__qualname__}_with_{own.__name__}"
                made[function] = Door(copy) if isinstance(compiled, Door) else inner(copy)
        return made[function]

    return changed(door)


@inner
def reverse(search: Search) -> int:
    """A move: the best order backwards, behind the fixed jobs."""
    low, high = search.fixed, search.head
    for k in range(low):
        search.trial.order[k] = search.best.order[k]
    for k in range(low, high):
        search.trial.order[k] = search.best.order[low + high - 1 - k]
    search.shared.upto = high
    return low


@kernel
def weights(search: Search, count: int) -> Reals:
    """What a second costs of each of `count` queued jobs, by queue position, as the last round had it."""
    return search.queued.weight[:count].copy()


@kernel
def prices(site: Site, search: Search, objective: Price, start_s: int) -> Reals:
    """What it costs to start each queued job at a second, by queue position, without a bound."""
    found, search.bound_s = np.empty(site.queued), NEVER
    for position in range(site.queued):
        found[position] = price(site, search, objective, position, start_s)
    return found


class Asking(ConstraintDispatcher):
    """A member of the CP family made of single words, which asks the solver in every round, as the papers did."""

    certain = False

    def __init__(self, certain: bool = False, in_order: bool = True, **words: Any) -> None:
        parts = {field.name: words.pop(field.name) for field in fields(Recipe) if field.name in words}
        super().__init__(Recipe(**parts), **words)
        self.certain, self.in_order = certain, in_order


def studied(name: str, settings: Mapping[str, str]) -> Dispatcher:
    """The dispatcher of that name, whose `settings` may be those of studies, too.

    `certain=no` asks the solver always; `equal_jobs=any-order` lets interchangeable jobs start in any order.
    """
    rest = dict(settings)
    certain, equal = rest.pop("certain", "yes"), rest.pop("equal_jobs", "in-order")
    found: Dispatcher = catalogue.dispatcher(name, rest)
    if isinstance(found, ConstraintDispatcher | PerObjectiveDispatcher):
        found.certain = certain == "yes"
    if isinstance(found, ConstraintDispatcher):
        found.in_order = equal == "in-order"
    return found
