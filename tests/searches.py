"""What tests and studies ask of a search, and `lookahead` itself does not."""

from __future__ import annotations

from typing import Any

from cpsched.compile.handles import Reals
from cpsched.compile.jit import kernel
from cpsched.dispatchers.lookahead.dispatcher import ALL_CANDIDATES, Lookahead
from cpsched.kernels.moves import ALL_MOVES
from cpsched.kernels.search_state import Search
from cpsched.model import NEVER


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


@kernel
def weights(search: Search, count: int) -> Reals:
    """What a second costs of each of `count` queued jobs, by queue position, as the last round had it."""
    return search.queued.weight[:count].copy()
