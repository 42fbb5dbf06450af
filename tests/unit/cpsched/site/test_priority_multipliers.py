"""The effect of a priority on an objective."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster, Job, Request, Snapshot
from cpsched.site.priority_multipliers import site_priority_multipliers, site_rank_multipliers

TIER = np.zeros(5, np.int64)
PRIORITY = np.array([10, 500, 20, 7_000_000, 30])
OWN = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


def test_zero_weight_leaves_objective_unchanged():
    assert site_rank_multipliers(TIER, PRIORITY, 0.0, OWN).tolist() == [1.0] * 5


def test_factors_follow_priorities_with_mean_1():
    factors = site_rank_multipliers(TIER, PRIORITY, 0.5, OWN)
    assert np.argsort(factors).tolist() == np.argsort(PRIORITY).tolist()
    assert factors.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
def test_weight_1_spreads_like_own_weights(weight):
    factors = site_rank_multipliers(TIER, PRIORITY, weight, OWN)
    assert np.log(factors).std() == pytest.approx(weight * np.log(OWN).std())


def test_only_order_counts_and_ties_are_equal():
    far, near = site_rank_multipliers(TIER, PRIORITY, 1.0), site_rank_multipliers(TIER, np.array([1, 4, 2, 5, 3]), 1.0)
    assert far == pytest.approx(near)
    tied = site_rank_multipliers(TIER, np.array([1, 2, 2, 2, 9]), 1.0)
    assert tied[1] == tied[2] == tied[3]


def test_tier_precedes_any_priority():
    factors = site_rank_multipliers(np.array([0, 1]), np.array([4_000_000_000, 1]), 1.0)
    assert factors[1] > factors[0]


def test_computes_factors_of_snapshot_and_empty_queue():
    jobs = [Job(1, 0, 60, Request(1, (1,)), priority=3), Job(2, 0, 60, Request(1, (1,)), priority=9)]
    cluster = Cluster.of([[4]], ["cores"])
    snapshot = Snapshot.of(0, cluster, cluster.capacity, jobs, (), {1: 60, 2: 60})
    assert site_priority_multipliers(snapshot, 1.0).argmax() == 1
    assert len(site_rank_multipliers(TIER[:0], PRIORITY[:0], 1.0)) == 0


def test_rejects_negative_weight():
    with pytest.raises(InvalidValue):
        site_rank_multipliers(TIER, PRIORITY, -1.0)


@pytest.mark.parametrize(
    ("priority", "rank"),
    [
        ([3, 1, 2], [1.0, -1.0, 0.0]),
        ([1, 2, 2, 3, 3, 3], [0 - 2.5, 1.5 - 2.5, 1.5 - 2.5, 4 - 2.5, 4 - 2.5, 4 - 2.5]),
        ([9, 1, 1, 1, 1, 5], [5 - 2.5, 1.5 - 2.5, 1.5 - 2.5, 1.5 - 2.5, 1.5 - 2.5, 4 - 2.5]),
    ],
)
@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_equal_ranks_share_mean_position(priority, rank, weight):
    """By hand: exp(weight x spread x rank / its standard deviation), scaled to a mean of 1; the spread is 1 here."""
    expected = np.exp(weight * np.array(rank) / np.std(rank))
    found = site_rank_multipliers(np.zeros(len(rank), np.int64), np.array(priority), weight)
    assert found == pytest.approx(expected / expected.mean())


@pytest.mark.parametrize("own", [[0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.0, 5.0, 0.0], None])
def test_equal_own_weights_give_spread_1(own):
    found = site_rank_multipliers(TIER[:3], np.array([5, 9, 7]), 1.0, own)
    assert (np.argsort(found).tolist(), np.log(found).std()) == ([0, 2, 1], pytest.approx(1.0))


@pytest.mark.parametrize(("largest", "spread"), [(np.e**2, 1.0), (np.e**6, 3.0)])
def test_zero_own_weights_do_not_count_for_spread(largest, spread):
    found = site_rank_multipliers(TIER[:4], np.array([5, 9, 7, 8]), 1.0, [0.0, 1.0, largest, 0.0])
    assert np.log(found).std() == pytest.approx(spread)


@pytest.mark.parametrize("jobs", [1, 2])
def test_equal_priorities_have_factor_1(jobs):
    assert site_rank_multipliers(TIER[:jobs], np.full(jobs, 7), 1.0, OWN[:jobs]).tolist() == [1.0] * jobs
