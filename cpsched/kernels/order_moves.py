"""Change an order at random: the moves of the local search."""

from __future__ import annotations

from cpsched.jit.decorators import scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column
from cpsched.kernels.node_classes import hash64
from cpsched.kernels.order_search_state import OrderSearchState

ADJACENT, INSERTION, TO_FRONT, PUSH_BACK, SWAP, REINSERT = range(6)
"""The moves.

- `ADJACENT`: two neighbours swap places.
- `INSERTION`: a job moves to another place.
- `TO_FRONT`: a job moves to the front.
- `PUSH_BACK`: a job moves back.
- `SWAP`: two jobs swap places.
- `REINSERT`: a tenth of the jobs is removed and reinserted at random places.
"""

MOVE_PERCENTAGES = (25, 25, 20, 10, 10, 10)
"""Probability of each move in percent, scaled up if some moves are disabled."""

ALL_MOVES = 63


@subroutine
def random_below(search: OrderSearchState, below: int) -> int:
    """Return a random integer in [0, below)."""
    search.counts.drawn += 1
    return (hash64(search.counts.drawn) & ((1 << 62) - 1)) % below


@subroutine
def random_move_kind(search: OrderSearchState) -> int:
    """Return a random move from `settings.moves`, weighted by `MOVE_PERCENTAGES`."""
    total = 0
    for which in range(len(MOVE_PERCENTAGES)):
        total += MOVE_PERCENTAGES[which] * ((search.settings.moves >> which) & 1)
    dice, which = random_below(search, total), -1
    while dice >= 0:
        which += 1
        dice -= MOVE_PERCENTAGES[which] * ((search.settings.moves >> which) & 1)
    return which


@scalar_subroutine
def move_order_entry(order: Column, from_: int, to: int) -> None:
    """Move an entry in an order from one place to another."""
    entry = order[from_]
    for k in range(from_, to):
        order[k] = order[k + 1]
    for k in range(from_, to, -1):
        order[k] = order[k - 1]
    order[to] = entry


@subroutine
def reinsert_random_jobs(search: OrderSearchState, low: int, high: int) -> int:
    """Reinsert a tenth of the jobs in [low, high). Return the first changed place."""
    order, taken, n, first = search.trial.order, search.last.spare, high, high
    search.shared.upto = high
    out = max(2, (high - low) // 10)
    for i in range(out):
        place = low + random_below(search, n - low)
        taken[i] = order[place]
        move_order_entry(order, place, n - 1)
        n -= 1
        first = min(first, place)
    for i in range(out):
        place = low + random_below(search, n - low + 1)
        order[n] = taken[i]
        move_order_entry(order, n, place)
        n += 1
        first = min(first, place)
    return first


@subroutine
def propose_move(search: OrderSearchState) -> int:
    """Set the trial order to the best order, changed by one random move.

    The move does not affect the fixed jobs. Return the first changed place. Set `shared.upto` to the place after the
    last changed place.
    """
    order, trial, low, high = search.best.order, search.trial.order, search.fixed, search.head
    for k in range(high):
        trial[k] = order[k]
    kind, a, b = (
        random_move_kind(search),
        low + random_below(search, high - low),
        low + random_below(search, high - low),
    )
    if kind == REINSERT:
        return reinsert_random_jobs(search, low, high)
    if kind == ADJACENT:
        a = min(a, high - 2)
        search.shared.upto = a + 2
        trial[a], trial[a + 1] = trial[a + 1], trial[a]
        return a
    if kind == TO_FRONT:
        b = low
    elif kind == PUSH_BACK:
        a, b = min(a, b), max(a, b)
    search.shared.upto = max(a, b) + 1
    if kind == SWAP:
        trial[a], trial[b] = trial[b], trial[a]
    else:
        move_order_entry(trial, a, b)
    return min(a, b)
