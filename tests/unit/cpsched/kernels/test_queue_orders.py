"""Sorting in kernels compared with NumPy: as plain Python here, and compiled in the golden tests."""

from types import SimpleNamespace

import numpy as np
import pytest

from cpsched.kernels import order_search, plan_costs, queue_orders

SIZES = (0, 1, 2, 3, 7, 8, 40, 121, 1000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kinds", [2, 10**6])
def test_sorts_pairs_by_first_number(size, kinds):
    rng = np.random.default_rng(size + kinds)
    first, second = rng.integers(-kinds, kinds, size + 3), rng.integers(0, 99, size + 3)
    before = sorted(zip(first[:size].tolist(), second[:size].tolist(), strict=True))
    rest = first[size:].copy()
    queue_orders.sort_pairs(first, second, size)
    after = sorted(zip(first[:size].tolist(), second[:size].tolist(), strict=True))
    assert (first[:size].tolist(), after) == ([a for a, _ in before], before)
    assert first[size:].tolist() == rest.tolist(), "what lies beyond is not touched"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kinds", [2, 10**6])
def test_sorts_by_two_numbers_stably(size, kinds):
    rng = np.random.default_rng(size + kinds)
    first, second = rng.integers(-kinds, kinds, size), rng.integers(-2, 2, size)
    assert queue_orders.sort_positions(first, second).tolist() == np.lexsort((np.arange(size), second, first)).tolist()


def test_bit_order_equals_number_order():
    numbers = np.array([0.0, 5e-324, 1e-300, 0.1, 0.3, 1.0, 1.5, 2.0, 1e9, 1e300, np.inf])
    bits = queue_orders.sortable_bits(numbers)
    assert ((np.diff(bits) > 0).all(), bits.dtype) == (True, np.int64)


def a_queue(size, seed):
    """As much of a site and a search as the sorts look at; several jobs are alike."""
    rng = np.random.default_rng(seed)
    jobs = SimpleNamespace(
        units=rng.integers(1, 4, size),
        per_unit=rng.integers(1, 3, (size, 1)),
        estimate_s=rng.integers(1, 9, size),
        submit_s=np.zeros(size, np.int64),
    )
    site = SimpleNamespace(queued=size, queue=np.arange(size), jobs=jobs, now_s=100)
    queued = SimpleNamespace(
        weight=rng.integers(0, 3, size).astype(float), expected=rng.integers(0, 4, size) / 2.0, amount=jobs.units
    )
    return site, SimpleNamespace(queued=queued)


@pytest.mark.parametrize("seed", range(5))
def test_sort_by_cost_per_area_equals_stable_numpy_sort(seed, monkeypatch):
    site, found = a_queue(60, seed)
    found.head, found.shared = 60, SimpleNamespace()
    arranged = []
    monkeypatch.setattr(order_search, "set_trial_order", lambda site, found, order: arranged.append(order.tolist()))
    order_search.load_candidate_order(site, found, order_search.SMITH)
    area = np.maximum(1, site.jobs.units * site.jobs.per_unit[:, 0])
    key = -found.queued.weight / (area * np.maximum(found.queued.expected, 1.0))
    assert arranged == [np.argsort(key, kind="stable").tolist()]


@pytest.mark.parametrize("size", [1, 2, 9, 60])
def test_typical_area_equals_numpy_partition(size):
    site, found = a_queue(size, size)
    areas = np.maximum(1, site.jobs.units * site.jobs.per_unit[:, 0]) * np.maximum(found.queued.expected, 0.5)
    at = int(np.ceil(plan_costs.TYPICAL_AREA_QUANTILE * (size - 1)))
    assert plan_costs.typical_area(site, found, 0.5) == np.partition(areas, at)[at]
