"""Test victims for one start: enough room, no unnecessary victims, and the cheapest set if the search is complete.

The verifier and the reference share no code with the search. They count units on each node in plain Python, and try
every set of jobs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cpsched.feasibility import FreeAmounts
from cpsched.model import Cluster, Request, RunningJob
from cpsched.site.victims import REQUEUE_S, PreemptibleJob, cheapest_victims, lost_work_s, stop_price_node_s
from cpsched_sim.testing.hypothesis_strategies import (
    clusters,
    first_fit_placement,
    jobs,
    requests,
    scaled_example_settings,
    subtract_placement,
)
from tests.builders import a_job, a_running

COMPLETE = 100_000
"""An effort that exceeds the needs of every example."""
MANY = 1000
"""A number of units that exceeds the capacity of every drawn cluster."""


def units_without(cluster, free, request, victims):
    """Return how many units of a request fit after these jobs have stopped."""
    rows = [list(row) for row in free.tolist()]
    for each in victims:
        asked = each.running.job.request
        for node, units in each.running.placement:
            for r, capacity in enumerate(cluster.capacity[node].tolist()):
                rows[node][r] += capacity if asked.exclusive else units * asked.per_unit[r]
    total = 0
    for node, row in enumerate(rows):
        if not cluster.node_sets[request.node_set, node]:
            continue
        if request.exclusive and row != cluster.capacity[node].tolist():
            continue
        fitting = min((have // need for have, need in zip(row, request.per_unit, strict=True) if need), default=0)
        total += min(fitting, 1 if request.distinct else request.units)
    return total


def faults(cluster, free, request, candidates, sufficient, victims):
    """Return what is wrong with a choice of victims."""
    enough, ids = request.units, {id(each) for each in candidates}
    rest = [[other for other in victims if other is not each] for each in victims]
    wrong = {
        "too little room": units_without(cluster, free, request, victims) < enough,
        "a needless victim": any(units_without(cluster, free, request, others) >= enough for others in rest),
        "not candidates": not {id(each) for each in victims} <= ids or len(victims) != len(set(victims)),
        "more victims": len(victims) > len(sufficient),
        "dearer": sum(each.price for each in victims) > sum(each.price for each in sufficient),
        "a later start": max(each.grace_s for each in victims) > max(each.grace_s for each in sufficient),
    }
    return [fault for fault, is_wrong in wrong.items() if is_wrong]


def least_price(cluster, free, request, candidates, sufficient):
    """Return the price of the cheapest permitted set, by trying all of them."""
    longest_s = max(each.grace_s for each in sufficient)
    permitted = [each for each in candidates if each.grace_s <= longest_s]
    sets = (some for count in range(1, len(sufficient) + 1) for some in combinations(permitted, count))
    prices = [
        sum(e.price for e in some) for some in sets if units_without(cluster, free, request, some) >= request.units
    ]
    return min(prices)


@st.composite
def starts(draw, most=8):
    """Draw a start that needs victims: cluster, free amounts, request, candidates, and a sufficient set."""
    cluster = draw(clusters())
    free, candidates = cluster.capacity.copy(), []
    for number in range(draw(st.integers(1, most))):
        job = draw(jobs(cluster, number))
        placement = first_fit_placement(job.request, cluster, free)
        if placement is not None:
            subtract_placement(job.request, placement, cluster, free)
            price, grace_s = draw(st.integers(0, 20)), draw(st.sampled_from([0, 0, 0, 30]))
            candidates.append(PreemptibleJob(RunningJob(job, 0, placement), price, grace_s))
    wanted = replace(draw(requests(cluster)), units=MANY)
    room, most = (units_without(cluster, free, wanted, victims) for victims in ((), candidates))
    assume(room < most)
    request = replace(wanted, units=draw(st.integers(room + 1, most)))
    order, sufficient = draw(st.permutations(candidates)), []
    while units_without(cluster, free, request, sufficient) < request.units:
        sufficient.append(order[len(sufficient)])
    return cluster, free, request, candidates, sufficient


def preemptible(number, placement, price, per_unit=4, **request):
    job = a_job(number, sum(units for _, units in placement), per_unit, **request)
    return PreemptibleJob(a_running(job, placement), price)


def cheaper_by_more_jobs_than_slurm():
    """Return a start for which one job is sufficient, and two jobs together are cheaper."""
    cluster = Cluster.of([[4], [2], [2]], ["cores"])
    dear = preemptible(0, ((0, 1),), 20)
    cheap = [preemptible(node, ((node, 1),), 1, per_unit=2) for node in (1, 2)]
    return cluster, np.zeros((3, 1), np.int64), Request(4, (1,)), [dear, *cheap], [dear]


@scaled_example_settings(400)
@given(starts())
@example(cheaper_by_more_jobs_than_slurm())
def test_complete_search_finds_cheapest_permitted_set(start):
    cluster, free, request, candidates, sufficient = start
    before = free.copy()
    found = cheapest_victims(FreeAmounts(cluster, free), request, candidates, sufficient, COMPLETE)
    assert faults(*start, found.victims) == []
    assert found.price == sum(each.price for each in found.victims) == found.at_least == least_price(*start)
    assert np.array_equal(free, before)


@scaled_example_settings(400)
@given(starts(), st.integers(0, 3))
def test_short_search_states_valid_lower_bound(start, effort):
    cluster, free, request, candidates, sufficient = start
    found = cheapest_victims(FreeAmounts(cluster, free), request, candidates, sufficient, effort)
    assert faults(*start, found.victims) == []
    assert found.at_least <= least_price(*start) <= found.price


def test_wide_job_is_stopped_if_it_costs_less():
    cluster = Cluster.of([[4]] * 4, ["cores"])
    wide, *narrow = (
        preemptible(at, nodes, 6 - at) for at, nodes in enumerate([((0, 1), (1, 1)), ((2, 1),), ((3, 1),)])
    )
    amounts = FreeAmounts(cluster, np.zeros((4, 1), np.int64))
    assert cheapest_victims(amounts, Request(2, (4,)), [wide, *narrow], narrow).victims == (wide,)


@pytest.mark.parametrize(
    ("sufficient", "effort", "victims", "price", "at_least"),
    [
        (range(14), 33, {7, 9, 10, 12, 13}, 175, 153),
        (range(14), 34, {7, 11, 12, 13}, 160, 153),
        (range(14), 37, {7, 11, 12, 13}, 160, 160),
        ((6, 11, 12), 46, {3, 11, 12}, 200, 153),
        ((6, 11, 12), 47, {3, 11, 12}, 200, 200),
    ],
)
def test_search_needs_so_many_tentative_stops(sufficient, effort, victims, price, at_least):
    """Nodes of six cores, and (cores, price) of the jobs on each. The greedy set is the dearer one."""
    nodes = [
        [(3, 90), (3, 40)], [(2, 70), (4, 65)], [(1, 30), (5, 99)], [(6, 120)],
        [(2, 20), (4, 85)], [(3, 55), (3, 35)], [(6, 75)], [(5, 60), (1, 5)],
    ]  # fmt: skip
    placed = [(node, *job) for node, jobs in enumerate(nodes) for job in jobs]
    jobs = [preemptible(at, ((node, cores),), price, 1) for at, (node, cores, price) in enumerate(placed)]
    amounts = FreeAmounts(Cluster.of([[6]] * 8, ["cores"]), np.zeros((8, 1), np.int64))
    found = cheapest_victims(amounts, Request(7, (2,)), jobs, [jobs[at] for at in sufficient], effort)
    assert {each.running.job.id for each in found.victims} == victims
    assert (found.price, found.at_least) == (price, at_least)


def test_greedy_set_omits_dearest_unneeded_job():
    """Without effort, the result is the greedy set. Its jobs of 1 core are not both needed."""
    sizes_and_prices = [(1, 1), (1, 2), (3, 30), (1, 50)]
    jobs = [preemptible(at, ((0, size),), price, 1) for at, (size, price) in enumerate(sizes_and_prices)]
    amounts = FreeAmounts(Cluster.of([[6]], ["cores"]), np.zeros((1, 1), np.int64))
    assert set(cheapest_victims(amounts, Request(4, (1,)), jobs, jobs, effort=0).victims) == {jobs[0], jobs[2]}


@pytest.mark.parametrize(
    ("facts", "lost_s"),
    [
        ({}, 900),
        ({"checkpoint_s": 400}, 600),
        ({"checkpoint_s": 50}, 900),  # before the start
        ({"checkpoint_s": 5000}, 0),  # in the future
        ({"grace_s": 30}, 930),
    ],
)
def test_price_counts_work_since_last_checkpoint_and_during_grace_time(facts, lost_s):
    assert stop_price_node_s(2, 100, 1000, **facts) == 2 * (lost_s + 60) == 2 * (lost_s + REQUEUE_S)


@given(
    nodes=st.integers(1, 8),
    start_s=st.integers(0, 2**31),
    ran_s=st.integers(0, 10**7),
    checkpoint_s=st.none() | st.integers(-(10**12), 10**12),
)
def test_price_is_bounded_whatever_checkpoint_says(nodes, start_s, ran_s, checkpoint_s):
    now_s = start_s + ran_s
    assert 0 <= lost_work_s(start_s, now_s, checkpoint_s) <= ran_s
    price = stop_price_node_s(nodes, start_s, now_s, checkpoint_s)
    assert nodes * REQUEUE_S <= price <= stop_price_node_s(nodes, start_s, now_s)


@pytest.mark.parametrize("count", [40, 400])
def test_search_of_many_jobs_ends_at_its_effort(count):
    """Prices in proportion to sizes weaken the bound, so that the search cannot be complete."""
    cluster, sizes = Cluster.of([[20 * count]], ["cores"]), [7 + at % 11 for at in range(count)]
    some = [preemptible(at, ((0, size),), 1000 * size + at % 3, 1) for at, size in enumerate(sizes)]
    free = cluster.capacity - sum(sizes)
    request = Request(int(free[0, 0]) + sum(sizes) // 2, (1,))
    found = cheapest_victims(FreeAmounts(cluster, free), request, some, some)
    assert 0 < found.at_least <= found.price <= 1.01 * found.at_least
