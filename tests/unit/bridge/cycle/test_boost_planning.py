"""Boosts for an order: bounds, few changes, headroom, and hours in which the other priorities change."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.errors import InvalidValue
from cpsched_bridge.cycle.boost_planning import (
    PriorityBoostLimits,
    RankedPendingJob,
    compute_order_agreement,
    plan_boost_changes,
)

BOUNDS = PriorityBoostLimits(points=1000, depth=100, changes=1000)


def jobs(*own: int, **more) -> list[RankedPendingJob]:
    """Candidates 1, 2, 3, ... in the order of the plan, with these priorities."""
    return [RankedPendingJob(at, priority, **more) for at, priority in enumerate(own, start=1)]


def after(candidates, told):
    points = dict(told)
    return [replace(each, points=points.get(each.id, each.points)) for each in candidates]


TIERS = [RankedPendingJob(1, 5, tier=2), RankedPendingJob(2, 900, tier=1), RankedPendingJob(3, 950, tier=1)]


@pytest.mark.parametrize(
    ("candidates", "depth", "boosted"),
    [
        (jobs(90, 60, 50), 100, []),
        (jobs(1, 1, 1, 1), 100, []),
        (jobs(-5000, 1), 100, []),
        ([RankedPendingJob(999, 1), *jobs(*range(500, 400, -1))], 101, [999]),
        (TIERS, 100, [2]),
    ],
    ids=["in order", "equal priorities by id", "beyond the bound", "new first job of many", "tiers separately"],
)
def test_boosts_only_jobs_out_of_order(candidates, depth, boosted):
    assert [id for id, _ in plan_boost_changes(candidates, [], PriorityBoostLimits(1000, depth))] == boosted


def test_boosts_job_between_its_neighbours():
    candidates = jobs(100, 90, 1, 50, 40)
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert [id for id, _ in told] == [3]
    assert 50 < after(candidates, told)[2].displayed_priority < 90


def test_unreachable_job_does_not_affect_order_of_others():
    candidates = jobs(10, 12, 5000, 11)
    now = after(candidates, plan_boost_changes(candidates, [], BOUNDS))
    assert now[0].displayed_priority > now[1].displayed_priority > now[3].displayed_priority


def test_keeps_and_respects_foreign_points():
    candidates = [RankedPendingJob(1, 50), RankedPendingJob(2, 10, points=300, movable=False)]
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert [id for id, _ in told] == [1]
    assert after(candidates, told)[0].displayed_priority > 310


def test_removes_points_of_unplanned_jobs_last():
    front, behind = RankedPendingJob(1, 10), RankedPendingJob(2, 90, points=5)
    told = plan_boost_changes(
        [front, behind], [RankedPendingJob(3, 7, points=9)], PriorityBoostLimits(1000, depth=1, changes=3)
    )
    assert ([id for id, _ in told], told[1:]) == ([1, 2, 3], [(2, 0), (3, 0)])
    assert [id for id, _ in plan_boost_changes([front, behind], [], PriorityBoostLimits(1000, depth=1, changes=1))] == [
        1
    ]


@pytest.mark.parametrize("own", [(10, 5), (5, 10), (2000, 5)])
def test_lowered_bound_reduces_points(own):
    """Whether or not the order is right with them."""
    candidates = jobs(*own, points=900)
    now = after(candidates, plan_boost_changes(candidates, [], PriorityBoostLimits(100)))
    assert all(0 <= each.points <= 100 for each in now)
    assert compute_order_agreement(now) == 1.0


@pytest.mark.parametrize(
    ("front", "behind", "expected"),
    [
        ([RankedPendingJob(1, 10), RankedPendingJob(2, 30)], [], [(1, 24)]),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(2, 10)], [(3, 4)]),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(4, 10)], []),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(2, 10, tier=1)], []),
        ([RankedPendingJob(3, -5)], [RankedPendingJob(2, -9)], [(3, 10)]),
        ([RankedPendingJob(3, -300)], [RankedPendingJob(2, -9)], []),
        ([RankedPendingJob(3, -99)], [RankedPendingJob(2, -9)], []),
        ([RankedPendingJob(3, -5000, points=900)], [], [(3, 0)]),
        ([RankedPendingJob(3, 10, points=7)], [], []),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(2, 10, points=50)], [(3, 4), (2, 0)]),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(2, 10, points=50, movable=False)], [(3, 54)]),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(2, 106)], [(3, 100)]),
        ([RankedPendingJob(3, 10)], [RankedPendingJob(2, 107)], []),
    ],
)  # fmt: skip
def test_plans_exact_points(front, behind, expected):
    """With a bound of 100 and a depth of 11, jobs that must pass get four points more than their difference."""
    bounds = PriorityBoostLimits(points=100, depth=11)
    assert bounds.min_priority_gap == 4
    assert plan_boost_changes(front, behind, bounds) == expected


@pytest.mark.parametrize("name", ["points", "depth", "changes"])
def test_rejects_non_positive_limits(name):
    with pytest.raises(InvalidValue, match=name):
        PriorityBoostLimits(**{"points": 1, "depth": 1, "changes": 1, name: 0})


def test_computes_share_of_pairs_in_order():
    found = [compute_order_agreement(each) for each in (jobs(3, 2, 1), jobs(1, 2, 3), jobs(3, 1, 2), [])]
    assert found == [1.0, 0.0, pytest.approx(2 / 3), 1.0]


CANDIDATES = st.lists(
    st.tuples(st.integers(-100, 900), st.one_of(st.just(0), st.integers(0, 1000))), min_size=1, max_size=60
).flatmap(lambda rows: st.permutations([RankedPendingJob(at, own, points) for at, (own, points) in enumerate(rows)]))


@given(CANDIDATES)
def test_reaches_plan_order_within_bound_and_stays(candidates):
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert all(0 <= points <= BOUNDS.points for _, points in told)
    assert len(dict(told)) == len(told)
    now = after(candidates, told)
    within = max(each.own for each in candidates) - min(each.own for each in candidates)
    if within + BOUNDS.min_priority_gap * len(candidates) <= BOUNDS.points:
        assert compute_order_agreement(now) == 1.0
        assert plan_boost_changes(now, [], BOUNDS) == []


def test_reaches_better_order_beyond_bound_in_two_steps():
    """Priorities too far apart for the bound: what points cannot reach at once is reached from where they led."""
    rows = [(5, -97, 458), (1, 812, 0), (3, -64, 522), (4, 9, 436), (0, 673, 0), (6, 121, 719), (2, 893, 500)]
    first = [RankedPendingJob(id, own, points) for id, own, points in rows]
    second = after(first, plan_boost_changes(first, [], BOUNDS))
    third = after(second, plan_boost_changes(second, [], BOUNDS))
    assert compute_order_agreement(first) < compute_order_agreement(second) < compute_order_agreement(third) < 1.0
    assert plan_boost_changes(third, [], BOUNDS) == []


@given(CANDIDATES, st.integers(1, 9))
def test_converges_with_few_changes_at_a_time(candidates, at_a_time):
    bounds = replace(BOUNDS, changes=at_a_time)
    for _ in range(40 * len(candidates)):
        told = plan_boost_changes(candidates, [], bounds)
        assert len(told) <= at_a_time
        if not told:
            return
        candidates = after(candidates, told)
    raise AssertionError("never at rest")


def test_keeps_plan_order_over_8_hours_of_moving_priorities():
    """A queue in Slurm's way: age grows until it is full, shares move every five minutes, jobs start and arrive.

    The plan is one wish that holds for each job as long as it waits: jobs are advised when they arrive, and when what
    moves underneath has turned two of them round.
    """
    rng, bounds = random.Random(1), PriorityBoostLimits(points=2000, depth=60, changes=60)
    next_id, told_points = 1, {}
    queue: list[tuple[int, float, int, str]] = []  # id, wish, arrival, user
    shares = {user: rng.random() for user in "abcde"}
    shown, sent = [], 0
    for minute in range(8 * 60):
        if minute % 5 == 0:
            shares = {user: min(1.0, max(0.0, share + rng.gauss(0, 0.01))) for user, share in shares.items()}
        if minute and minute % 4 == 0:
            queue.pop(0)
        while len(queue) < 60:
            queue.append((next_id, rng.random() + minute / 480, minute, rng.choice("abcde")))
            next_id += 1
        queue.sort(key=lambda each: each[1])
        candidates = [
            RankedPendingJob(
                id, int(500 * min(1.0, (minute - arrival) / 240) + 500 * shares[user]), told_points.get(id, 0)
            )
            for id, _, arrival, user in queue
        ]
        if minute > 0:
            shown.append(compute_order_agreement(candidates))
        told = plan_boost_changes(candidates, [], bounds)
        told_points |= dict(told)
        sent += len(told)
        assert compute_order_agreement(after(candidates, told)) == 1.0
    assert min(shown) > 0.9
    assert sum(shown) / len(shown) > 0.98
    assert sent / 480 < 12, "a fifth of the queue a minute at most"
