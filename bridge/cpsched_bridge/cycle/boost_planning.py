"""Works out by how many points each waiting job is raised, so that the cluster's own order becomes the plan's order.

Slurm sorts by tier, then by priority, then by the number of the job. Advice adds points to the priority of some jobs:
from 0 to a bound, never less. So a job passes another one of its tier only where Slurm's own priorities of the two
differ by less than the bound.

This module is pure: the jobs in the order of the plan go in, numbers come out.

Example: the plan wants 3, 1, 2, and Slurm's own priorities are 50, 60, 40 for the jobs 3, 1, 2. Job 3 must pass job 1:
it gets ten points and some head room. Jobs 1 and 2 are in order, and are told nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cpsched.errors import require

HEAD_ROOM = 2
"""Part of the bound that a whole new order may take up: the rest is left to jobs that come to stand in front later."""


@dataclass(frozen=True, slots=True)
class RankedJob:
    """A waiting job as the cluster ranks it."""

    id: int
    """Of two jobs with the same priority the cluster takes that with the lower one first."""
    own: int
    """The priority that the cluster computes, without points; below 1 where it is shown as 1."""
    points: int = 0
    """What somebody has added to it."""
    tier: int = 0
    movable: bool = True
    """False: the points are somebody else's, or would have no effect."""

    @property
    def shown(self) -> int:
        """The priority by which the cluster sorts; nothing is below 1."""
        return max(1, self.own + self.points)


@dataclass(frozen=True, slots=True)
class BoostLimits:
    """How far advice may go."""

    points: int
    """The most that a job is raised."""
    depth: int = 100
    """How many jobs at the front of the plan are put in order; those behind have no points."""
    changes: int = 100
    """How many jobs are told at a time, those at the front first."""

    def __post_init__(self) -> None:
        for name in ("points", "depth", "changes"):
            require(getattr(self, name) > 0, name, getattr(self, name), "must be positive")

    @property
    def gap(self) -> int:
        """Points between two jobs that are put in order: what may move underneath before they change places."""
        return max(1, self.points // (HEAD_ROOM * (self.depth + 1)))


def boost_changes(
    wished: Sequence[RankedJob], others: Iterable[RankedJob], bounds: BoostLimits
) -> list[tuple[int, int]]:
    """The jobs to be told, and their new points: the front of the plan first, then those that have points no more.

    `wished` is the plan's order. `others` are jobs that nobody plans; they lose their points.
    """
    front, behind = wished[: bounds.depth], [*wished[bounds.depth :], *others]
    found: dict[int, int] = {}
    for tier in {each.tier for each in front}:
        ahead = [each for each in front if each.tier == tier]
        found.update(_in_tier(ahead, [each for each in behind if each.tier == tier], bounds))
    told = [(each.id, found[each.id]) for each in front if found.get(each.id, each.points) != each.points]
    told += [(each.id, 0) for each in behind if each.movable and each.points]
    return told[: bounds.changes]


def order_agreement(wished: Sequence[RankedJob]) -> float:
    """Of all pairs of jobs of one tier, the share that the cluster's list has in the order of the plan; 1 without any.

    1 less the normalised Kendall distance.
    """
    pairs = right = 0
    for tier in {each.tier for each in wished}:
        before: list[tuple[int, int]] = []
        for each in (candidate for candidate in wished if candidate.tier == tier):
            place = (-each.shown, each.id)
            right += bisect_right(before, place)
            pairs += len(before)
            insort(before, place)
    return right / pairs if pairs else 1.0


def _in_tier(front: Sequence[RankedJob], behind: Sequence[RankedJob], bounds: BoostLimits) -> dict[int, int]:
    """The points of the movable jobs of one tier's front."""
    floor = sorted(max(1, each.own) if each.movable else each.shown for each in behind)
    layout = _layout(front, floor, bounds.points, bounds.gap)
    order = sorted(range(len(front)), key=lambda at: (-layout[at], at))
    ahead, fresh = [front[at] for at in order], [layout[at] for at in order]
    tight = _layout(ahead, floor, bounds.points, 1)
    later = min((each.id for each in behind), default=0) > max((each.id for each in front), default=0)
    level = _layout(ahead, floor if later or not behind else [value + 1 for value in floor], bounds.points, 0)
    # As few changes as possible, where that gives the order: first with ties that the numbers of jobs break, then
    # with a point between any two, then a whole new order.
    tries = [_kept(ahead, fresh, level, bounds, True), _kept(ahead, fresh, tight, bounds, False), fresh]
    best = min(tries, key=lambda values: (_out_of_order(ahead, values), _moved(ahead, values)))
    return {each.id: _points(each, value, bounds) for each, value in zip(ahead, best, strict=True) if each.movable}


def _layout(front: Sequence[RankedJob], floor: Sequence[int], most: int, gap: int) -> list[int]:
    """The lowest priorities that put every job before as many of those behind it as it can pass.

    Built from the last job to the first. A job that cannot pass another one ignores that one.
    """
    values, taken = [0] * len(front), list(floor)
    for at in range(len(front) - 1, -1, -1):
        each = front[at]
        value = each.shown
        if each.movable:
            value = max(1, each.own)
            passed = bisect_right(taken, each.own + most - gap)
            if passed:
                value = max(value, taken[passed - 1] + gap)
        values[at] = value
        insort(taken, value)
    return values


def _kept(
    front: Sequence[RankedJob], fresh: Sequence[int], least: Sequence[int], bounds: BoostLimits, ties: bool
) -> list[int]:
    """Priorities for which the longest run of jobs that are in order stays as it is, and the others go between.

    `least` are the priorities below which no job may stay. With `ties`, two jobs with the same priority are in order
    where their numbers are.
    """
    scale = len(front) + 1
    by_number = {each.id: rank for rank, each in enumerate(sorted(front, key=lambda each: -each.id))}
    keys = [each.shown * scale + (by_number[each.id] if ties else 0) for each in front]
    step = 1 if ties else scale
    may_stay = [
        at
        for at, each in enumerate(front)
        if each.shown >= min(least[at], fresh[at]) and (not each.movable or 0 <= each.points <= bounds.points)
    ]
    stay = _longest([(at, keys[at] + step * at) for at in may_stay])
    values = [each.shown for each in front]
    for above, below in zip([None, *stay], [*stay, None], strict=True):
        between = range(0 if above is None else above + 1, len(front) if below is None else below)
        for at in between:
            if below is None:
                room = fresh[at] if above is None else min(fresh[at], values[above] - (at - above))
            elif above is None:
                room = front[below].shown + bounds.gap * (below - at)
            else:
                high, low = front[above].shown, front[below].shown
                room = low + (high - low) * (below - at) // (below - above)
            values[at] = _shown(front[at], room, bounds)
    return values


def _longest(keys: Sequence[tuple[int, int]]) -> list[int]:
    """The places of a longest run of keys that do not go up."""
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


def _points(each: RankedJob, value: int, bounds: BoostLimits) -> int:
    """The points that bring a job to a priority; it keeps those that it has where they do, too."""
    if each.shown == value and 0 <= each.points <= bounds.points:
        return each.points
    return max(0, min(bounds.points, value - each.own)) if each.own + bounds.points > 1 else 0


def _shown(each: RankedJob, value: int, bounds: BoostLimits) -> int:
    """The priority nearest to `value` that a job can have."""
    if not each.movable:
        return each.shown
    return max(1, each.own + max(0, min(bounds.points, value - each.own)))


def _out_of_order(front: Sequence[RankedJob], values: Sequence[int]) -> int:
    places = [(-value, each.id) for each, value in zip(front, values, strict=True)]
    return sum(one > other for one, other in pairwise(places))


def _moved(front: Sequence[RankedJob], values: Sequence[int]) -> int:
    return sum(each.movable and each.shown != value for each, value in zip(front, values, strict=True))
