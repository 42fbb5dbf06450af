"""Points for an order: bounds, few changes, head room, and hours in which priorities move underneath."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpsched.errors import InvalidValue
from cpsched_bridge.cycle.boost_planning import BoostableJob, PriorityBoostLimits, order_agreement, plan_boost_changes

BOUNDS = PriorityBoostLimits(points=1000, depth=100, changes=1000)


def jobs(*own: int, **more) -> list[BoostableJob]:
    """Candidates 1, 2, 3, ... in the order of the plan, with these priorities."""
    return [BoostableJob(at, priority, **more) for at, priority in enumerate(own, start=1)]


def after(candidates, told):
    points = dict(told)
    return [replace(each, points=points.get(each.id, each.points)) for each in candidates]


def test_jobs_in_order_are_told_nothing():
    assert plan_boost_changes(jobs(90, 60, 50), [], BOUNDS) == []


def test_equal_priorities_go_by_the_number_of_the_job():
    assert plan_boost_changes(jobs(1, 1, 1, 1), [], BOUNDS) == []


def test_a_job_that_must_pass_is_lifted_over_it_with_head_room_and_nobody_else_is_told():
    told = plan_boost_changes(jobs(50, 60, 40), [], BOUNDS)
    assert told == [(1, 10 + BOUNDS.min_gap)]


def test_of_many_jobs_in_order_only_the_one_that_came_in_front_is_told():
    candidates = [BoostableJob(999, 1), *jobs(*range(500, 400, -1))]
    assert [id for id, _ in plan_boost_changes(candidates, [], PriorityBoostLimits(1000, 101))] == [999]


def test_a_job_in_the_middle_goes_between_its_neighbours():
    candidates = jobs(100, 90, 1, 50, 40)
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert [id for id, _ in told] == [3]
    assert 50 < after(candidates, told)[2].displayed_priority < 90


def test_no_job_passes_another_whose_priority_is_higher_by_the_bound_or_more():
    candidates = jobs(10, 2000)
    assert after(candidates, plan_boost_changes(candidates, [], BOUNDS))[0].displayed_priority < 2000


def test_a_job_out_of_reach_does_not_spoil_the_order_of_those_within_reach():
    candidates = jobs(10, 12, 5000, 11)
    now = after(candidates, plan_boost_changes(candidates, [], BOUNDS))
    assert now[0].displayed_priority > now[1].displayed_priority > now[3].displayed_priority


def test_tiers_are_put_in_order_each_by_itself():
    high = BoostableJob(1, 5, tier=2)
    low = [BoostableJob(2, 900, tier=1), BoostableJob(3, 950, tier=1)]
    assert [id for id, _ in plan_boost_changes([high, *low], [], BOUNDS)] == [2]


def test_points_of_somebody_else_stay_and_are_reckoned_with():
    candidates = [BoostableJob(1, 50), BoostableJob(2, 10, points=300, movable=False)]
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert [id for id, _ in told] == [1]
    assert after(candidates, told)[0].displayed_priority > 310


def test_jobs_behind_the_front_and_jobs_that_nobody_plans_lose_their_points_last():
    front, behind = BoostableJob(1, 10), BoostableJob(2, 90, points=5)
    told = plan_boost_changes(
        [front, behind], [BoostableJob(3, 7, points=9)], PriorityBoostLimits(1000, depth=1, changes=3)
    )
    assert [id for id, _ in told] == [1, 2, 3]
    assert told[1:] == [(2, 0), (3, 0)]
    assert [id for id, _ in plan_boost_changes([front, behind], [], PriorityBoostLimits(1000, depth=1, changes=1))] == [
        1
    ]


def test_a_priority_below_1_is_made_good_before_anything_is_gained():
    candidates = [BoostableJob(2, -200), BoostableJob(1, 1)]
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert after(candidates, told)[0].displayed_priority > 1
    assert told[0][1] > 201


def test_a_job_that_the_bound_cannot_bring_above_1_is_not_told():
    assert plan_boost_changes(jobs(-5000, 1), [], BOUNDS) == []


@pytest.mark.parametrize("own", [(10, 5), (5, 10), (2000, 5)])
def test_points_above_a_bound_that_was_lowered_come_down(own):
    """Whether or not the order is right with them."""
    candidates = jobs(*own, points=900)
    now = after(candidates, plan_boost_changes(candidates, [], PriorityBoostLimits(100)))
    assert all(0 <= each.points <= 100 for each in now)
    assert order_agreement(now) == 1.0


@pytest.mark.parametrize(
    ("front", "behind", "expected"),
    [
        ([BoostableJob(1, 10), BoostableJob(2, 30)], [], [(1, 24)]),
        ([BoostableJob(3, 10)], [BoostableJob(2, 10)], [(3, 4)]),
        ([BoostableJob(3, 10)], [BoostableJob(4, 10)], []),
        ([BoostableJob(3, 10)], [BoostableJob(2, 10, tier=1)], []),
        ([BoostableJob(3, -5)], [BoostableJob(2, -9)], [(3, 10)]),
        ([BoostableJob(3, -300)], [BoostableJob(2, -9)], []),
        ([BoostableJob(3, -99)], [BoostableJob(2, -9)], []),
        ([BoostableJob(3, -5000, points=900)], [], [(3, 0)]),
        ([BoostableJob(3, 10, points=7)], [], []),
        ([BoostableJob(3, 10)], [BoostableJob(2, 10, points=50)], [(3, 4), (2, 0)]),
        ([BoostableJob(3, 10)], [BoostableJob(2, 10, points=50, movable=False)], [(3, 54)]),
        ([BoostableJob(3, 10)], [BoostableJob(2, 106)], [(3, 100)]),
        ([BoostableJob(3, 10)], [BoostableJob(2, 107)], []),
    ],
)  # fmt: skip
def test_points_as_a_whole(front, behind, expected):
    """With a bound of 100 and a depth of 11, jobs that must pass get four points more than their difference."""
    bounds = PriorityBoostLimits(points=100, depth=11)
    assert bounds.min_gap == 4
    assert plan_boost_changes(front, behind, bounds) == expected


@pytest.mark.parametrize("name", ["points", "depth", "changes"])
def test_a_bound_is_positive(name):
    with pytest.raises(InvalidValue, match=name):
        PriorityBoostLimits(**{"points": 1, "depth": 1, "changes": 1, name: 0})


def test_share_of_pairs_in_order():
    assert order_agreement(jobs(3, 2, 1)) == 1.0
    assert order_agreement(jobs(1, 2, 3)) == 0.0
    assert order_agreement(jobs(3, 1, 2)) == pytest.approx(2 / 3)
    assert order_agreement([]) == 1.0


CANDIDATES = st.lists(
    st.tuples(st.integers(-100, 900), st.one_of(st.just(0), st.integers(0, 1000))), min_size=1, max_size=60
).flatmap(lambda rows: st.permutations([BoostableJob(at, own, points) for at, (own, points) in enumerate(rows)]))


WHATEVER_THE_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine takes its time over sixty candidates, which is no fault of theirs."""


@WHATEVER_THE_SPEED
@given(CANDIDATES)
def test_within_the_bound_the_order_is_the_plans_and_then_nobody_is_told_again(candidates):
    told = plan_boost_changes(candidates, [], BOUNDS)
    assert all(0 <= points <= BOUNDS.points for _, points in told)
    assert len(dict(told)) == len(told)
    now = after(candidates, told)
    within = max(each.own for each in candidates) - min(each.own for each in candidates)
    if within + BOUNDS.min_gap * len(candidates) <= BOUNDS.points:
        assert order_agreement(now) == 1.0
        assert plan_boost_changes(now, [], BOUNDS) == []


def test_beyond_the_bound_jobs_may_be_told_twice_and_the_order_is_better_then():
    """Priorities too far apart for the bound: what points cannot reach at once is reached from where they led."""
    rows = [(5, -97, 458), (1, 812, 0), (3, -64, 522), (4, 9, 436), (0, 673, 0), (6, 121, 719), (2, 893, 500)]
    first = [BoostableJob(id, own, points) for id, own, points in rows]
    second = after(first, plan_boost_changes(first, [], BOUNDS))
    third = after(second, plan_boost_changes(second, [], BOUNDS))
    assert order_agreement(first) < order_agreement(second) < order_agreement(third) < 1.0
    assert plan_boost_changes(third, [], BOUNDS) == []


@WHATEVER_THE_SPEED
@given(CANDIDATES, st.integers(1, 9))
def test_told_a_few_at_a_time_it_comes_to_rest(candidates, at_a_time):
    bounds = replace(BOUNDS, changes=at_a_time)
    for _ in range(40 * len(candidates)):
        told = plan_boost_changes(candidates, [], bounds)
        assert len(told) <= at_a_time
        if not told:
            return
        candidates = after(candidates, told)
    raise AssertionError("never at rest")


def test_over_eight_hours_of_age_and_fair_share_the_order_stays_the_plans():
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
            BoostableJob(id, int(500 * min(1.0, (minute - arrival) / 240) + 500 * shares[user]), told_points.get(id, 0))
            for id, _, arrival, user in queue
        ]
        if minute > 0:
            shown.append(order_agreement(candidates))
        told = plan_boost_changes(candidates, [], bounds)
        told_points |= dict(told)
        sent += len(told)
        assert order_agreement(after(candidates, told)) == 1.0
    assert min(shown) > 0.9
    assert sum(shown) / len(shown) > 0.98
    assert sent / 480 < 12, "a fifth of the queue a minute at most"
