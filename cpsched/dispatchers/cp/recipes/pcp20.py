"""PCP'20 (pcp20): start times and places in one constraint model whose size does not depend on the system's."""

from __future__ import annotations

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.cp import certain, objective, window
from cpsched.dispatchers.cp.answer import decision, nothing_starts
from cpsched.dispatchers.cp.limit import Limit
from cpsched.errors import require
from cpsched.listing import Listing
from cpsched.model import Decision, Need, Snapshot


class Pcp20(Dispatcher):
    """Considers the jobs that could start now, plans them for least slowdown, and starts those whose time is now.

    - `limit_s` is the most that a call may take, in seconds.
    - `first_limit_s` is what the first search gets. A search after one that brought nothing gets twice as much. The
      papers give the first search 1 s, because their first plan came out of it; ours is known before any search.
    - `restarts` in a row that bring nothing end the call. (cp19 calls these three delta_max, delta and k.)
    - `effort` takes the place of the seconds: a number of branches of the solver. Then no clock is read, and the same
      snapshot and the same `seed` give the same decision.
    - `considered` is how many jobs are considered at most, cp19's m.
    - `model_s`: the solver is called where its first propagation is expected to take no longer. That grows with the
      square of the boxes, those of running jobs included. For larger models the dives decide alone: on KIT ForHLR II
      the solver never improved them within 0.4 s.
    """

    def __init__(
        self,
        limit_s: float = 16.0,
        first_limit_s: float = 0.01,
        effort: int | None = None,
        considered: int = 100,
        restarts: int = 2,
        model_s: float = 0.1,
        seed: int = 0,
    ) -> None:
        require(considered > 0, "considered", considered, "must be positive")
        self._considered, self._seed = considered, seed
        self._limit = Limit(limit_s, first_limit_s, restarts, effort, model_s)

    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """See `Dispatcher.decide`."""
        facts = window.facts_of(snapshot)
        slots = window.startable(facts, snapshot.queue, self._considered)
        if len(slots) == 0:
            return nothing_starts(snapshot, "nothing-fits" if len(snapshot.queue) else "empty-queue", need)
        facts = window.consider(facts, objective.by_slowdown(snapshot, slots))
        weights = objective.slowdown_weights(facts)
        answer = certain.all_start(facts) or certain.bound_met(facts, weights, self._seed)
        if not answer.certain:
            from cpsched.dispatchers.cp.engine import improve  # the solver is imported when it is first needed

            answer = improve(facts, answer, weights, self._limit, self._seed)
        return decision(snapshot, facts, answer, weights, need)


LISTED = (
    Listing(
        "pcp20",
        "Plans start times and places of all that could start now, for least slowdown, in one constraint model.",
        "pcp20; search control of cp19",
        Pcp20,
    ),
)
