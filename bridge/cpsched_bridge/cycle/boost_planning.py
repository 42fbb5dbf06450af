"""Compute the boost of each pending job, so that the cluster's order becomes the plan's order.

Slurm sorts by tier, then by priority, then by job number. Advise mode boosts the priority of some jobs, from 0 to a
bound. So a job passes another one of its tier only if their own priorities differ by less than the bound.

This module is pure: jobs in the order of the plan go in, boosts come out.

Example: the plan wants 3, 1, 2, and Slurm's own priorities of the jobs 3, 1, 2 are 50, 60, 40. Job 3 must pass job 1:
it gets a boost of ten and a margin. Jobs 1 and 2 are in order and get none.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cpsched.errors import require

HEAD_ROOM = 2
"""Share of the bound that a new order may use; the rest is for jobs that are planned ahead of it later."""


@dataclass(frozen=True, slots=True)
class BoostableJob:
    """A pending job with its rank on the cluster."""

    id: int
    """Of two jobs with equal priority, the cluster starts the lower number first."""
    own: int
    """Priority that the cluster computes without the boost; below 1 if shown as 1."""
    points: int = 0
    """The current boost, of any actor."""
    tier: int = 0
    movable: bool = True
    """False: the boost is another actor's, or would have no effect."""

    @property
    def displayed_priority(self) -> int:
        """The priority by which the cluster sorts, at least 1."""
        return max(1, self.own + self.points)


@dataclass(frozen=True, slots=True)
class PriorityBoostLimits:
    """Limits of boosts."""

    points: int
    """Maximum boost of a job."""
    depth: int = 100
    """Number of jobs at the front of the plan that are ordered; those behind have no boost."""
    changes: int = 100
    """Maximum number of changed jobs at a time, those at the front first."""

    def __post_init__(self) -> None:
        for name in ("points", "depth", "changes"):
            require(getattr(self, name) > 0, name, getattr(self, name), "must be positive")

    @property
    def min_gap(self) -> int:
        """Distance of two ordered jobs: how far priorities may drift before they swap."""
        return max(1, self.points // (HEAD_ROOM * (self.depth + 1)))


def plan_boost_changes(
    wished: Sequence[BoostableJob], others: Iterable[BoostableJob], bounds: PriorityBoostLimits
) -> list[tuple[int, int]]:
    """Return changed boosts by job: the front of the plan first, then those to remove.

    `wished` is the plan's order. `others` are jobs outside the plan; they lose their boosts.
    """
    front, behind = wished[: bounds.depth], [*wished[bounds.depth :], *others]
    found: dict[int, int] = {}
    for tier in {each.tier for each in front}:
        ahead = [each for each in front if each.tier == tier]
        found.update(_in_tier(ahead, [each for each in behind if each.tier == tier], bounds))
    told = [(each.id, found[each.id]) for each in front if found.get(each.id, each.points) != each.points]
    told += [(each.id, 0) for each in behind if each.movable and each.points]
    return told[: bounds.changes]


def order_agreement(wished: Sequence[BoostableJob]) -> float:
    """Return the share of pairs of jobs of one tier that the cluster ranks in the order of the plan; 1 without pairs.

    1 minus the normalised Kendall distance.
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


def _in_tier(
    front: Sequence[BoostableJob], behind: Sequence[BoostableJob], bounds: PriorityBoostLimits
) -> dict[int, int]:
    """Return the boosts of the movable jobs at one tier's front."""
    floor = sorted(max(1, each.own) if each.movable else each.displayed_priority for each in behind)
    layout = _layout(front, floor, bounds.points, bounds.min_gap)
    order = sorted(range(len(front)), key=lambda at: (-layout[at], at))
    ahead, fresh = [front[at] for at in order], [layout[at] for at in order]
    tight = _layout(ahead, floor, bounds.points, 1)
    later = min((each.id for each in behind), default=0) > max((each.id for each in front), default=0)
    level = _layout(ahead, floor if later or not behind else [value + 1 for value in floor], bounds.points, 0)
    # Change as few jobs as possible: first allow equal priorities, where job numbers decide, then
    # require a distance of one, then compute a new order.
    tries = [_kept(ahead, fresh, level, bounds, True), _kept(ahead, fresh, tight, bounds, False), fresh]
    best = min(tries, key=lambda values: (_out_of_order(ahead, values), _moved(ahead, values)))
    return {each.id: _points(each, value, bounds) for each, value in zip(ahead, best, strict=True) if each.movable}


def _layout(front: Sequence[BoostableJob], floor: Sequence[int], most: int, gap: int) -> list[int]:
    """Return the lowest priorities with which every job precedes as many later ones as it can pass.

    Built from the last job to the first. A job ignores those that it cannot pass.
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


def _kept(
    front: Sequence[BoostableJob], fresh: Sequence[int], least: Sequence[int], bounds: PriorityBoostLimits, ties: bool
) -> list[int]:
    """Return priorities that keep the longest ordered run of jobs and move the others between them.

    `least` are the minimum priorities. With `ties`, two jobs with equal priority are in order if their numbers are.
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
    stay = _longest([(at, keys[at] + step * at) for at in may_stay])
    values = [each.displayed_priority for each in front]
    for above, below in zip([None, *stay], [*stay, None], strict=True):
        between = range(0 if above is None else above + 1, len(front) if below is None else below)
        for at in between:
            if below is None:
                room = fresh[at] if above is None else min(fresh[at], values[above] - (at - above))
            elif above is None:
                room = front[below].displayed_priority + bounds.min_gap * (below - at)
            else:
                high, low = front[above].displayed_priority, front[below].displayed_priority
                room = low + (high - low) * (below - at) // (below - above)
            values[at] = _shown(front[at], room, bounds)
    return values


def _longest(keys: Sequence[tuple[int, int]]) -> list[int]:
    """Return the positions of a longest non-increasing run of keys."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for at, (_, key) in enumerate(keys):
        length = bisect_right(ends, -key)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [-key]
        last[length : length + 1] = [at]
    found, at = [], last[-1] if last else -1
    while at >= 0:
        found.append(keys[at][0])
        at = before[at]
    return found[::-1]


def _points(each: BoostableJob, value: int, bounds: PriorityBoostLimits) -> int:
    """Return the boost that brings a job to a priority; the current one if that suffices."""
    if each.displayed_priority == value and 0 <= each.points <= bounds.points:
        return each.points
    return max(0, min(bounds.points, value - each.own)) if each.own + bounds.points > 1 else 0


def _shown(each: BoostableJob, value: int, bounds: PriorityBoostLimits) -> int:
    """Return the priority nearest to `value` that a job can have."""
    if not each.movable:
        return each.displayed_priority
    return max(1, each.own + max(0, min(bounds.points, value - each.own)))


def _out_of_order(front: Sequence[BoostableJob], values: Sequence[int]) -> int:
    places = [(-value, each.id) for each, value in zip(front, values, strict=True)]
    return sum(one > other for one, other in pairwise(places))


def _moved(front: Sequence[BoostableJob], values: Sequence[int]) -> int:
    return sum(each.movable and each.displayed_priority != value for each, value in zip(front, values, strict=True))
