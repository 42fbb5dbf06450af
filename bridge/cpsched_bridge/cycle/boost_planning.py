"""Compute priority boosts to make the cluster's job order match the plan.

Slurm sorts by tier, then by priority, then by job number. Advise mode adds a boost between 0 and a bound to the
priority of some jobs. A job can therefore pass another job in its tier only if their own priorities differ by less than
the bound.

This module is pure: it receives jobs in plan order and returns boosts.

Example: the plan's order is 3, 1, 2, and Slurm's own priorities of jobs 3, 1 and 2 are 50, 60 and 40. Job 3 must pass
job 1, so it gets a boost of 10 plus a margin. Jobs 1 and 2 are already in order and get no boost.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cpsched.errors import require
from cpsched_bridge.ordered_subsequence import find_longest_ordered_subsequence

HEADROOM_DIVISOR = 2
"""Divisor of the bound for a new order. The rest of the bound is left for jobs that move to the front later."""


@dataclass(frozen=True, slots=True)
class RankedPendingJob:
    """A pending job with its rank on the cluster."""

    id: int
    """Id of the entry. Among jobs with equal priority, the cluster starts the job with the lowest id first."""
    own: int
    """Priority without the boost, as computed by the cluster. A value below 1 is displayed as 1."""
    points: int = 0
    """The current boost, regardless of who set it."""
    tier: int = 0
    movable: bool = True
    """Whether the bridge may change the boost, because no other actor set it and it has an effect."""

    @property
    def displayed_priority(self) -> int:
        """The priority by which the cluster sorts. It is at least 1."""
        return max(1, self.own + self.points)


@dataclass(frozen=True, slots=True)
class PriorityBoostLimits:
    """Limits on the boosts that the bridge may set."""

    points: int
    """Maximum boost per job."""
    depth: int = 100
    """Number of jobs to order, at the front of the plan. Later jobs get no boost."""
    changes: int = 100
    """Maximum number of boosts changed at a time, beginning at the front of the plan."""

    def __post_init__(self) -> None:
        for name in ("points", "depth", "changes"):
            require(getattr(self, name) > 0, name, getattr(self, name), "must be positive")

    @property
    def min_priority_gap(self) -> int:
        """Minimum priority gap of ordered jobs: the permitted drift before jobs swap."""
        return max(1, self.points // (HEADROOM_DIVISOR * (self.depth + 1)))


def plan_boost_changes(
    wished: Sequence[RankedPendingJob], others: Iterable[RankedPendingJob], bounds: PriorityBoostLimits
) -> list[tuple[int, int]]:
    """Return (job id, new boost) pairs: changes from the plan's front, then removals.

    `wished` contains the planned jobs in order. `others` are jobs outside the plan, which lose their boosts.
    """
    front, behind = wished[: bounds.depth], [*wished[bounds.depth :], *others]
    found: dict[int, int] = {}
    for tier in {each.tier for each in front}:
        ahead = [each for each in front if each.tier == tier]
        found.update(_plan_tier_boosts(ahead, [each for each in behind if each.tier == tier], bounds))
    changes = [(each.id, found[each.id]) for each in front if found.get(each.id, each.points) != each.points]
    changes += [(each.id, 0) for each in behind if each.movable and each.points]
    return changes[: bounds.changes]


def compute_order_agreement(wished: Sequence[RankedPendingJob]) -> float:
    """Return the share of same-tier job pairs in plan order, or 1 without pairs.

    The result is 1 minus the normalized Kendall distance.
    """
    pairs = right = 0
    for tier in {each.tier for each in wished}:
        before: list[tuple[int, int]] = []
        for each in (candidate for candidate in wished if candidate.tier == tier):
            place = (-each.displayed_priority, each.id)
            right += bisect_right(before, place)
            pairs += len(before)
            insort(before, place)
    return right / pairs if pairs else 1.0


def _plan_tier_boosts(
    front: Sequence[RankedPendingJob], behind: Sequence[RankedPendingJob], bounds: PriorityBoostLimits
) -> dict[int, int]:
    """Return the boosts for the movable jobs at the front of one tier, by job id."""
    floor = sorted(max(1, each.own) if each.movable else each.displayed_priority for each in behind)
    layout = _compute_lowest_priorities(front, floor, bounds.points, bounds.min_priority_gap)
    order = sorted(range(len(front)), key=lambda at: (-layout[at], at))
    ahead, fresh = [front[at] for at in order], [layout[at] for at in order]
    tight = _compute_lowest_priorities(ahead, floor, bounds.points, 1)
    later = min((each.id for each in behind), default=0) > max((each.id for each in front), default=0)
    level = _compute_lowest_priorities(
        ahead, floor if later or not behind else [value + 1 for value in floor], bounds.points, 0
    )
    # Change as few jobs as possible: first allow equal priorities, where job numbers decide, then
    # require a distance of one, then compute a new order.
    tries = [
        _keep_longest_run(ahead, fresh, level, bounds, True),
        _keep_longest_run(ahead, fresh, tight, bounds, False),
        fresh,
    ]
    best = min(tries, key=lambda values: (_count_adjacent_inversions(ahead, values), _count_moved_jobs(ahead, values)))
    return {
        each.id: _compute_boost(each, value, bounds) for each, value in zip(ahead, best, strict=True) if each.movable
    }


def _compute_lowest_priorities(
    front: Sequence[RankedPendingJob], floor: Sequence[int], most: int, gap: int
) -> list[int]:
    """Return the lowest priorities that put jobs before all later jobs they can pass.

    The priorities are computed from the last job to the first. A job ignores the jobs that it cannot pass.
    """
    values, taken = [0] * len(front), list(floor)
    for at in range(len(front) - 1, -1, -1):
        each = front[at]
        value = each.displayed_priority
        if each.movable:
            value = max(1, each.own)
            passed = bisect_right(taken, each.own + most - gap)
            if passed:
                value = max(value, taken[passed - 1] + gap)
        values[at] = value
        insort(taken, value)
    return values


def _keep_longest_run(
    front: Sequence[RankedPendingJob],
    fresh: Sequence[int],
    least: Sequence[int],
    bounds: PriorityBoostLimits,
    ties: bool,
) -> list[int]:
    """Return priorities that keep the longest ordered run and move the other jobs.

    `least` contains the minimum priorities. With `ties`, job numbers decide the order of jobs with equal priority.
    """
    scale = len(front) + 1
    by_number = {each.id: rank for rank, each in enumerate(sorted(front, key=lambda each: -each.id))}
    keys = [each.displayed_priority * scale + (by_number[each.id] if ties else 0) for each in front]
    step = 1 if ties else scale
    may_stay = [
        at
        for at, each in enumerate(front)
        if each.displayed_priority >= min(least[at], fresh[at])
        and (not each.movable or 0 <= each.points <= bounds.points)
    ]
    stay = [may_stay[i] for i in find_longest_ordered_subsequence([-keys[at] - step * at for at in may_stay])]
    values = [each.displayed_priority for each in front]
    for above, below in zip([None, *stay], [*stay, None], strict=True):
        between = range(0 if above is None else above + 1, len(front) if below is None else below)
        for at in between:
            if below is None:
                room = fresh[at] if above is None else min(fresh[at], values[above] - (at - above))
            elif above is None:
                room = front[below].displayed_priority + bounds.min_priority_gap * (below - at)
            else:
                high, low = front[above].displayed_priority, front[below].displayed_priority
                room = low + (high - low) * (below - at) // (below - above)
            values[at] = _find_nearest_reachable_priority(front[at], room, bounds)
    return values


def _compute_boost(each: RankedPendingJob, value: int, bounds: PriorityBoostLimits) -> int:
    """Return the boost for priority `value`: the current boost if it suffices."""
    if each.displayed_priority == value and 0 <= each.points <= bounds.points:
        return each.points
    return max(0, min(bounds.points, value - each.own)) if each.own + bounds.points > 1 else 0


def _find_nearest_reachable_priority(each: RankedPendingJob, value: int, bounds: PriorityBoostLimits) -> int:
    """Return the priority nearest to `value` that a job can reach."""
    if not each.movable:
        return each.displayed_priority
    return max(1, each.own + max(0, min(bounds.points, value - each.own)))


def _count_adjacent_inversions(front: Sequence[RankedPendingJob], values: Sequence[int]) -> int:
    places = [(-value, each.id) for each, value in zip(front, values, strict=True)]
    return sum(one > other for one, other in pairwise(places))


def _count_moved_jobs(front: Sequence[RankedPendingJob], values: Sequence[int]) -> int:
    return sum(each.movable and each.displayed_priority != value for each, value in zip(front, values, strict=True))
