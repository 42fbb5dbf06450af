"""Choose the running jobs to stop for one start so that the least work is lost.

As jobs on a node stop, more units of the starting job fit on the node. Finding the cheapest set of jobs that makes
enough room is a knapsack cover problem over the nodes. A job on several nodes makes room on all of them. Branch and
bound finds this set unless it reaches the effort limit. In that case, the result is the best set found so far, with a
lower bound on the cheapest price.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from cpsched.feasibility import FreeAmounts, fills_blocks, stack_placement_amounts, units_fitting_given_amounts
from cpsched.model import Request, RunningJob

FloatArray = npt.NDArray[np.float64]

REQUEUE_S = 60
"""Seconds that a stopped job loses in addition to its work, until it starts again."""
EFFORT = 500
"""Default effort limit of the search, as a number of tentative stops."""
SLACK = 1e-6
"""Tolerance that exceeds the rounding errors in sums of gains."""
UNREACHABLE = 1 << 62
"""A price above all others."""


@dataclass(frozen=True, slots=True)
class PreemptibleJob:
    """A running job that may be stopped now to start another job.

    - `price`: in node-seconds (see `stop_price_node_s`).
    - `grace_s`: how many seconds the other job must wait after the stop request.
    - `rank`: the priority of the job's QOS or the tier of its partition. Slurm stops jobs of low rank first.
    - `preemption_class`: see `cpsched.site.preemption`.
    """

    running: RunningJob
    price: int
    grace_s: int = 0
    rank: int = 0
    preemption_class: str = ""


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """The jobs to stop, their price, and a lower bound on any permitted set's price."""

    victims: tuple[PreemptibleJob, ...]
    price: int
    at_least: int


def stop_price_node_s(nodes: float, start_s: int, now_s: int, checkpoint_s: int | None = None, grace_s: int = 0) -> int:
    """Return the price of stopping a job on `nodes` nodes, in node-seconds.

    It includes lost work (see `lost_work_s`), work during the grace time, and `REQUEUE_S`.
    """
    return math.ceil(nodes * (lost_work_s(start_s, now_s, checkpoint_s) + grace_s + REQUEUE_S))


def lost_work_s(start_s: int, now_s: int, checkpoint_s: int | None = None) -> int:
    """Return the seconds of work since the start or, if later, the last checkpoint.

    A checkpoint before the start counts as one at the start, and a checkpoint in the future as one at `now_s`.
    """
    return now_s - (start_s if checkpoint_s is None else max(start_s, min(checkpoint_s, now_s)))


class TentativeJobStops:
    """The room for one request while running jobs are stopped tentatively."""

    def __init__(self, amounts: FreeAmounts, request: Request) -> None:
        self.amounts, self.request = amounts.copy(), request
        self.room = self.amounts.units_fitting(request)
        self.total = int(self.room.sum())

    @property
    def fits(self) -> bool:
        """Whether the request fits now."""
        is_enough = self.total >= self.request.units
        return is_enough and fills_blocks(self.room, self.request, self.amounts.cluster)

    def stop(self, running: RunningJob) -> None:
        """Stop a running job tentatively."""
        self.amounts.release(running.job.request, running.placement)
        self._recount_fitting_units(running)

    def undo(self, running: RunningJob) -> None:
        """Undo the tentative stop of a job."""
        self.amounts.take(running.job.request, running.placement)
        self._recount_fitting_units(running)

    def _recount_fitting_units(self, running: RunningJob) -> None:
        nodes = np.array([node for node, _ in running.placement], np.int64)
        room = self.amounts.units_fitting(self.request, nodes)
        self.total += int(room.sum() - self.room[nodes].sum())
        self.room[nodes] = room


def cheapest_victims(
    amounts: FreeAmounts,
    request: Request,
    candidates: Sequence[PreemptibleJob],
    sufficient: Sequence[PreemptibleJob],
    effort: int = EFFORT,
) -> VictimChoice:
    """Return the cheapest set of `candidates` to stop so that a request fits.

    The request also fits after the jobs in `sufficient`, such as Slurm's choice, have stopped. The result has at most
    as many jobs as `sufficient`, and costs no more. To avoid delaying the start, no victim has a longer grace time than
    the longest in `sufficient`. No victim can be omitted.
    """
    longest_s = max(victim.grace_s for victim in sufficient)
    permitted = [each for each in candidates if each.grace_s <= longest_s]
    search = _VictimSearch(amounts, request, permitted, sufficient)
    search.offer(sufficient)
    search.greedy()
    at_least = search.bound(0, search.need)
    if search.run(effort):
        at_least = search.price
    return VictimChoice(tuple(search.best), search.price, min(search.price, at_least))


class _VictimSearch:
    """Branch and bound over the candidates, ordered by price per gain.

    No set of candidates makes more room than the sum of its gains. Therefore, the price of the cheapest fractional
    cover by gains is a lower bound.
    """

    def __init__(
        self,
        amounts: FreeAmounts,
        request: Request,
        candidates: Sequence[PreemptibleJob],
        sufficient: Sequence[PreemptibleJob],
    ) -> None:
        self.amounts, self.request = amounts, request
        self.need = request.units - TentativeJobStops(amounts, request).total
        self.most = len(sufficient)
        gains = (
            np.minimum(_room_gained_by_candidate(amounts, request, candidates), self.need).tolist()
            if candidates
            else []
        )
        useful = [at for at, gain in enumerate(gains) if gain > 0]
        useful.sort(key=lambda at: (candidates[at].price / gains[at], -gains[at]))
        self.order = [candidates[at] for at in useful]
        self.gains = [gains[at] for at in useful]
        self.price_before: list[int] = list(accumulate((each.price for each in self.order), initial=0))
        self.gain_before = list(accumulate(self.gains, initial=0.0))
        self.largest_from = list(accumulate(reversed(self.gains), max, initial=0.0))[::-1]
        self.best: list[PreemptibleJob] = list(sufficient)
        self.price = sum(each.price for each in sufficient)

    def offer(self, victims: Sequence[PreemptibleJob]) -> None:
        """Remove unneeded jobs from a sufficient set, and keep it if it is cheapest."""
        trial, needed = TentativeJobStops(self.amounts, self.request), list[PreemptibleJob]()
        for each in victims:
            trial.stop(each.running)
        for each in sorted(victims, key=lambda each: -each.price):
            trial.undo(each.running)
            if not trial.fits:
                trial.stop(each.running)
                needed.append(each)
        price = sum(each.price for each in needed)
        if (price, len(needed)) < (self.price, len(self.best)):
            self.best, self.price = needed, price

    def greedy(self) -> None:
        """Offer jobs by price per gain, skipping gains below the required average."""
        trial, left, chosen = TentativeJobStops(self.amounts, self.request), list(range(len(self.order))), list[int]()
        while left and len(chosen) < self.most and not trial.fits:
            average = (self.request.units - trial.total) / (self.most - len(chosen))
            at = next((at for at in left if self.gains[at] >= average - SLACK), left[0])
            left.remove(at)
            chosen.append(at)
            trial.stop(self.order[at].running)
        if trial.fits:
            self.offer([self.order[at] for at in chosen])

    def bound(self, at: int, need: float) -> int:
        """Return a lower bound on the price of `need` units from candidates `at` onwards."""
        goal = self.gain_before[at] + need - SLACK
        end = bisect_left(self.gain_before, goal, at)
        if end == at:
            return 0
        if end == len(self.gain_before):
            return UNREACHABLE
        part: float = (goal - self.gain_before[end - 1]) / self.gains[end - 1] * self.order[end - 1].price
        return self.price_before[end - 1] - self.price_before[at] + math.ceil(part - SLACK)

    def run(self, effort: int) -> bool:
        """Search depth first, and return whether the search completed."""
        trial, chosen, price, need, at = (
            TentativeJobStops(self.amounts, self.request),
            list[int](),
            0,
            float(self.need),
            0,
        )
        while True:
            rest = self.most - len(chosen) if at < len(self.order) else 0
            too_few = not rest or self.largest_from[at] * rest < need - SLACK
            if too_few or price + self.bound(at, need) >= self.price:
                if not chosen:
                    return True
                at = chosen.pop()
                trial.undo(self.order[at].running)
                price, need = price - self.order[at].price, need + self.gains[at]
            elif not effort:
                return False
            else:
                effort -= 1
                trial.stop(self.order[at].running)
                if trial.fits:
                    self.offer([self.order[each] for each in (*chosen, at)])
                    trial.undo(self.order[at].running)
                else:
                    chosen.append(at)
                    price, need = price + self.order[at].price, need - self.gains[at]
            at += 1


def _room_gained_by_candidate(
    amounts: FreeAmounts, request: Request, candidates: Sequence[PreemptibleJob]
) -> FloatArray:
    """Return each candidate's gain (see `_VictimSearch`).

    If certain jobs must all stop before a node offers more room, they share this room in proportion to their prices.
    Otherwise, a job's gain on a node is the room that it frees in one resource, at most the room that all jobs free.
    """
    cluster, without = amounts.cluster, amounts.copy()
    owner, node, freed = stack_placement_amounts([each.running for each in candidates], cluster.capacity)
    np.add.at(without.free, node, freed)
    room, most = amounts.units_fitting(request), without.units_fitting(request)
    useful = most[node] > room[node]
    owner, node, freed = owner[useful], node[useful], freed[useful]
    is_needed = units_fitting_given_amounts(request, cluster, without.free[node] - freed, node) == room[node]
    share = np.array([each.price / len(each.running.placement) + SLACK for each in candidates])[owner] * is_needed
    needed = np.bincount(node, share, cluster.size)[node]

    asked = np.flatnonzero(request.per_unit)
    per_unit = np.array(request.per_unit, np.float64)[asked]
    spare = np.maximum(amounts.free[:, asked] / per_unit - room[:, None], 0)[node]
    by_resource = np.minimum(freed[:, asked] / per_unit + spare, (most - room)[node, None])
    total = np.zeros((cluster.size, len(asked)))
    np.add.at(total, node, by_resource)
    alone = by_resource[np.arange(len(node)), total.argmin(axis=1)[node]]
    shared = share / np.maximum(needed, SLACK) * (most - room)[node]
    gain = np.maximum(np.where(needed > 0, shared, alone), SLACK)  # a job without gain may complete a set
    found: FloatArray = np.bincount(owner, gain, len(candidates)).astype(np.float64)
    return found
