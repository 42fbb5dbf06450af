"""Priorities worked out by hand from Slurm's formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.site.multifactor_priority import (
    FIRST_BASIC_PRIORITY,
    ClusterSize,
    PriorityInputColumns,
    PriorityPolicy,
    PriorityWeights,
    age_accrual_start_s,
    age_factor,
    basic_priorities,
    normalized_priority,
    priority_points,
    size_factor,
    tres_points,
)

NOW_S = 1_700_000_000
DAY_S = 86_400
TEN_NODES = ClusterSize(nodes=10, cpus=320)


def candidates(**given):
    """One job without any priority factor except the given ones."""
    whole = {"accrue_s": 0, "nodes": 1, "cpus": 0, "limit_min": 60}
    real = dict.fromkeys(("fair_share", "partition", "qos", "association", "tres", "site", "nice"), 0.0)
    columns = {name: np.array([given.get(name, value)], np.int64) for name, value in whole.items()}
    columns |= {name: np.array([given.get(name, value)], np.float64) for name, value in real.items()}
    return PriorityInputColumns(**columns)


def priority(weights=None, machine=TEN_NODES, **given):
    return int(priority_points(candidates(**given), weights or PriorityWeights(), machine, NOW_S).total()[0])


@pytest.mark.parametrize(
    ("accrue_s", "expected"),
    [
        (0, 0.0),
        (NOW_S, 0.0),
        (NOW_S + 60, 0.0),
        (NOW_S - DAY_S, 1 / 7),
        (NOW_S - 7 * DAY_S, 1.0),
        (NOW_S - 70 * DAY_S, 1.0),
    ],
)
def test_age_factor_reaches_1_after_a_week(accrue_s, expected):
    assert age_factor(NOW_S, np.array([accrue_s]), 7 * DAY_S)[0] == expected


@pytest.mark.parametrize(
    ("weights", "nodes", "cpus", "limit_min", "expected"),
    [
        (PriorityWeights(), 2, 64, 60, 0.2),
        (PriorityWeights(), 2, 0, 60, 0.2),
        (PriorityWeights(), 2, 16, 60, (0.2 + 0.05) / 2),
        (PriorityWeights(favor_small=True), 2, 16, 60, (0.8 + 0.95) / 2),
        (PriorityWeights(favor_small=True), 2, 0, 60, 0.8),
        (PriorityWeights(favor_small=True), 12, 0, 60, 0.0),
        (PriorityWeights(), 30, 960, 60, 1.0),
        (PriorityWeights(size_over_time=True), 2, 16, 60, 2 * 32 / 60 / 320),
        (PriorityWeights(size_over_time=True), 1, 64, 60, 64 / 60 / 320),
        (PriorityWeights(size_over_time=True, favor_small=True), 1, 64, 60, 1 - 64 / 60 / 320),
        (PriorityWeights(size_over_time=True), 10, 320, 0, 1.0),
        (PriorityWeights(size_over_time=True), 1, 16, 0, 0.1),
        (PriorityWeights(size_over_time=True), 1, 640, 1, 1.0),
        (PriorityWeights(size_over_time=True, favor_small=True), 1, 640, 1, 0.0),
    ],
)
def test_computes_job_size_factor(weights, nodes, cpus, limit_min, expected):
    columns = (np.array([value]) for value in (nodes, cpus, limit_min))
    assert size_factor(*columns, weights, TEN_NODES)[0] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("value", "largest", "raw", "expected"),
    [
        (50, 200, False, 0.25),
        (50, 200, True, 50.0),
        (0, 0, False, 0.0),
        (7, 0, True, 7.0),
        (1, 1, False, 1.0),
        (0, 1, False, 0.0),
        (1, -1, False, 0.0),
        (5, 2, False, 2.5),
    ],
)
def test_normalizes_priority_by_largest(value, largest, raw, expected):
    assert normalized_priority(value, largest, raw) == expected


@pytest.mark.parametrize(
    ("asked", "present", "weights", "points"),
    [
        ({"cpu": 8, "gres/gpu": 1, "mem": 4000}, {"cpu": 32, "gres/gpu": 4},
         {"tres": {"cpu": 1000, "gres/gpu": 3000, "mem": 10}}, 1000 * 0.25 + 3000 * 0.25),
        ({"cpu": 8, "gres/gpu": 1}, {}, {"tres": {"cpu": 2.5, "gres/gpu": 3000, "mem": 10}, "raw_tres": True}, 3020),
        ({}, {"cpu": 32}, {"tres": {"cpu": 1000}}, 0.0),
        ({}, {"cpu": 32}, {"tres": {"cpu": 1000}, "raw_tres": True}, 0.0),
        ({"cpu": 0}, {"cpu": 32}, {"tres": {"cpu": 100}}, 0.0),
        ({"cpu": 8}, {"cpu": 32}, {"tres": {"cpu": 100}}, 25.0),
        ({"cpu": 8}, {"cpu": 0}, {"tres": {"cpu": 100}}, 0.0),
        ({"cpu": 8}, {}, {"tres": {"cpu": 100}}, 0.0),
    ],
)  # fmt: skip
def test_tres_points_are_raw_or_shares_of_partition(asked, present, weights, points):
    assert tres_points(asked, present, PriorityWeights(**weights)) == points


def test_columns_compare_by_identity():
    """Whether two arrays are equal is no yes or no: each is equal to itself alone, and can be looked up."""
    facts = candidates()
    found = priority_points(facts, PriorityWeights(), TEN_NODES, NOW_S)
    for each, other in ((facts, replace(facts)), (found, replace(found))):
        assert (each != other, each in {each}) == (True, True)


def test_priority_is_truncated_sum_of_factors():
    weights = PriorityWeights(age=1000, fair_share=10_000, job_size=500, partition=200, qos=2000, association=100)
    found = priority(
        weights,
        accrue_s=NOW_S - DAY_S,  # 1000 / 7 = 142.857...
        fair_share=0.35,  # 3500
        nodes=2, cpus=16,  # 62.5
        partition=0.5,  # 100
        qos=0.25,  # 500
        association=0.1,  # 10
        tres=33.4,
        site=7,
        nice=100,
    )  # fmt: skip
    assert found == 4255  # 142.857 + 10 + 3500 + 62.5 + 100 + 500 + 33.4 + 7 - 100 = 4255.757


@pytest.mark.parametrize(("nice", "expected"), [(0, 1), (5000, 1), (-5000, 5000), (-(2**40), 2**32 - 1)])
def test_priority_is_between_1_and_32_bits(nice, expected):
    assert priority(nice=nice) == expected


def test_zero_weight_disables_factor():
    assert priority(accrue_s=NOW_S - DAY_S, fair_share=1.0, nodes=10, partition=1, qos=1, association=1) == 1


def test_basic_priority_decreases_by_arrival_and_nice():
    top = FIRST_BASIC_PRIORITY
    assert basic_priorities([0, 0, 10, 0, -30, 0]).tolist() == [
        top - 1, top - 2, top - 13, top - 14, top - 15 + 30, top - 15,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("submit_s", "begin_s", "free_since_s", "always", "expected"),
    [(100, 0, 0, False, 100), (100, 500, 0, False, 500), (100, 500, 900, False, 900), (100, 500, 900, True, 100)],
)
def test_age_starts_when_unheld_job_would_accrue(submit_s, begin_s, free_since_s, always, expected):
    assert age_accrual_start_s(submit_s, begin_s, free_since_s, always) == expected


@pytest.mark.parametrize(
    ("nodes", "cpus", "counts"), [(0, 0, False), (0, 5, False), (5, 0, False), (-1, 5, False), (1, 1, True)]
)
@pytest.mark.parametrize(
    "weights", [PriorityWeights(), PriorityWeights(favor_small=True), PriorityWeights(size_over_time=True)]
)
def test_empty_machine_has_constant_size_factor(nodes, cpus, counts, weights):
    columns = (np.array([value]) for value in (1, 0, 1))
    found = size_factor(*columns, weights, ClusterSize(nodes, cpus))[0]
    assert found == (0.0 if not counts or weights.favor_small else 1.0)


@pytest.mark.parametrize("name", ["age", "fair_share", "job_size", "partition", "qos", "association"])
def test_rejects_negative_but_not_zero_weight(name):
    assert getattr(PriorityWeights(**{name: 0}), name) == 0
    with pytest.raises(InvalidValue, match=f"weights.{name}=-1: must not be negative"):
        PriorityWeights(**{name: -1})


@pytest.mark.parametrize("wrong", [{"max_age_s": 0}, {"tres": {"cpu": -1.0}}])
def test_rejects_invalid_age_or_tres(wrong):
    assert PriorityWeights(tres={"cpu": 0.0}, max_age_s=1).max_age_s == 1
    with pytest.raises(InvalidValue):
        PriorityWeights(**wrong)


def test_each_factor_has_its_weight_and_nice_is_subtracted():
    found = priority_points(
        candidates(accrue_s=NOW_S - DAY_S, fair_share=0.5, nodes=10, partition=0.25, qos=0.1, association=0.2, tres=3.5,
                   site=4, nice=6),
        PriorityWeights(age=7, fair_share=10, job_size=3, partition=8, qos=20, association=30),
        TEN_NODES,
        NOW_S,
    )  # fmt: skip
    told = {name: getattr(found, name)[0] for name in found.__slots__}
    assert told == pytest.approx(
        {"age": 1.0, "association": 6.0, "fair_share": 5.0, "job_size": 3.0, "partition": 2.0, "qos": 2.0, "tres": 3.5,
         "site": 4.0, "nice": 6.0}
    )  # fmt: skip
    assert found.total()[0] == 20


def test_default_rules_normalize_priority():
    weights = PriorityWeights(0, 0, 0, 0, 0, 0, {}, 7 * DAY_S, False, False, False, False, False, False)
    assert PriorityPolicy() == PriorityPolicy("multifactor", weights, False, 300)
    assert normalized_priority(1, 4) == 0.25, "a part, unless it is asked for as it is"
