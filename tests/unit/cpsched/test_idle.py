"""Idle processors while somebody waits, by hand and against a reference that looks at every second."""

from random import Random

import numpy as np
import pytest

from cpsched.fit import used_by
from cpsched.idle import Course, Idle, counted
from cpsched.metrics import Measures
from cpsched.model import Cluster, Job, Request
from tests.builders import a_cluster, a_job


def columns(*rows):
    return [np.array(column, np.int64) for column in zip(*rows, strict=True)]


def course(cluster, jobs, starts_s, ends_s, placements, **window):
    at = np.cumsum([0] + [len(placement) for placement in placements])
    entries = [entry for placement in placements for entry in placement]
    return Course(
        cluster, jobs, np.array(starts_s), np.array(ends_s), at[:-1], np.diff(at),
        np.array([node for node, _ in entries]), np.array([units for _, units in entries]), **window,
    )  # fmt: skip


def test_by_hand_on_a_machine_of_ten_processors():
    """Job B waits from 0 to 100 for 8 processors beside A, which holds 6; C, of 3, would fit from 20 to 50.

    Of the 100 seconds in which somebody waits, 4 processors are idle: 70 s because nothing fits, 30 s although C does.
    """
    rows = (0, 0, 100, 6), (0, 100, 110, 8), (20, 50, 100, 3)
    assert counted(*columns(*rows), 10) == Idle(30 * 4 / 1000, (20 * 4 + 50 * 1) / 1000, 100)


def test_what_had_room_may_have_none_a_moment_later():
    """B, of 3 processors, waits from 0 to 40 beside A, which holds 6 of 10; from 10 on C holds 2 of the other 4."""
    rows = (0, 0, 40, 6), (0, 40, 50, 3), (10, 10, 40, 2)
    assert counted(*columns(*rows), 10) == Idle(10 * 4 / 400, 30 * 2 / 400, 40)


def test_where_nobody_waits_nothing_counts():
    assert counted(*columns((0, 0, 100, 2), (50, 50, 60, 3)), 8) == Idle(0.0, 0.0, 0)
    assert Measures.of([]).idle == Idle(0.0, 0.0, 0)


def test_a_record_that_holds_more_than_the_machine_has_idles_nothing():
    assert counted(*columns((0, 0, 100, 12), (0, 50, 60, 3)), 10) == Idle(0.0, 0.0, 50)


def test_jobs_that_end_as_they_start_hold_nothing():
    assert counted(*columns((0, 10, 10, 4), (0, 20, 30, 4)), 8) == Idle(1.0, 0.0, 20)


def test_free_processors_on_many_nodes_have_no_room_for_what_wants_one_node():
    """Two nodes have two cores free each: four processors, and no room for a unit of four."""
    cluster = a_cluster(nodes=2, cores=4)
    jobs = [a_job(1, units=2, per_unit=2, distinct=True), a_job(2, per_unit=4), a_job(3, per_unit=2)]
    placements = [(0, 1), (1, 1)], [(0, 1)], [(1, 1)]
    apart = course(cluster, jobs[:2], [0, 60], [60, 90], placements[:2])
    assert apart.idle() == Idle(0.0, 0.5, 60)
    assert course(cluster, jobs, [0, 60, 60], [60, 90, 90], placements).idle() == Idle(0.5, 0.0, 60)


def test_only_what_is_within_the_window_counts():
    """The queue is judged from 40 to 70: what is waited for, and what fits, is known from before."""
    cluster, jobs = a_cluster(nodes=1, cores=4), [a_job(1, per_unit=3), a_job(2, per_unit=4)]
    placements = [(0, 1)], [(0, 1)]
    assert course(cluster, jobs, [0, 60], [60, 90], placements, from_s=40, to_s=70).idle() == Idle(0.0, 0.25, 20)
    assert course(cluster, jobs, [0, 60], [60, 90], placements, from_s=60).idle() == Idle(0.0, 0.0, 0)


def test_measures_ask_the_course_where_there_is_one():
    cluster, jobs = a_cluster(nodes=2, cores=4), [a_job(1, units=2, per_unit=2), a_job(2, per_unit=4)]
    ran = course(cluster, jobs, [0, 60], [60, 90], ([(0, 1), (1, 1)], [(0, 1)]))
    measures = Measures(*columns((0, 0, 60, 4), (0, 60, 90, 4)), machine=8)
    assert measures.idle == Idle(0.5, 0.0, 60)
    assert Measures(*columns((0, 0, 60, 4), (0, 60, 90, 4)), machine=8, course=ran).idle == Idle(0.0, 0.5, 60)


# ------------------------------------------------------------------------------------------ every second


def first_fit(cluster: Cluster, request: Request, free: np.ndarray) -> list[tuple[int, int]]:
    """The first nodes with room, node by node and unit by unit; [] where there are too few."""
    left, found = request.units, []
    for node in range(cluster.size):
        units = 0
        while units < left and cluster.node_sets[request.node_set, node]:
            if request.exclusive and (free[node] != cluster.capacity[node]).any():
                break
            if request.distinct and units == 1:
                break
            if any((units + 1) * amount > free[node, r] for r, amount in enumerate(request.per_unit)):
                break
            units += 1
        if units:
            found.append((node, units))
            left -= units
    return found if not left else []


def schedule(seed):
    """A cluster, and jobs that start in any order, as late as a coin says, with starts, ends and placements."""
    draw = Random(seed)
    cluster = Cluster.of(
        [[draw.randint(1, 4), draw.randint(0, 3)] for _ in range(draw.randint(1, 3))],
        ["cores", "gpus"],
        node_sets={"first": [0]},
    )
    jobs, runs = [], []
    for id in range(draw.randint(0, 7)):
        per_unit = draw.choice([(0, 1), (1, 0), (1, 1), (2, 0), (3, 1)])
        distinct, exclusive = draw.random() < 0.5, draw.random() < 0.3
        request = Request(draw.randint(1, 4), per_unit, distinct, exclusive, draw.randint(0, 1))
        if first_fit(cluster, request, cluster.capacity):
            jobs.append(Job(id, draw.randint(0, 9), 100, request))
            runs.append(draw.randint(1, 6))
    free, now_s, waiting, running = cluster.capacity.copy(), 0, list(range(len(jobs))), []
    start_s, places = [0] * len(jobs), [[] for _ in jobs]
    while waiting:
        for index in [index for index in running if start_s[index] + runs[index] == now_s]:
            for node, amounts in used_by(jobs[index].request, tuple(places[index]), cluster.capacity).items():
                free[node] += amounts
            running.remove(index)
        for index in [index for index in waiting if jobs[index].submit_s <= now_s]:
            place = first_fit(cluster, jobs[index].request, free) if draw.random() < 0.5 else []
            if place:
                start_s[index], places[index] = now_s, place
                for node, amounts in used_by(jobs[index].request, tuple(place), cluster.capacity).items():
                    free[node] -= amounts
                waiting.remove(index)
                running.append(index)
        now_s += 1
    return cluster, jobs, start_s, [s + run_s for s, run_s in zip(start_s, runs, strict=True)], places


def second_by_second(cluster, jobs, start_s, end_s, places, from_s, to_s) -> Idle:
    """What `Course.idle` says, from the free amounts of every second."""
    contended, idle = 0, [0, 0]
    for now_s in range(from_s, min(to_s, max(end_s, default=0))):
        free = cluster.capacity.copy()
        for job, begin_s, over_s, place in zip(jobs, start_s, end_s, places, strict=True):
            if begin_s <= now_s < over_s:
                for node, amounts in used_by(job.request, tuple(place), cluster.capacity).items():
                    free[node] -= amounts
        waiting = [job for job, begin_s in zip(jobs, start_s, strict=True) if job.submit_s <= now_s < begin_s]
        if waiting:
            contended += 1
            fits = any(first_fit(cluster, job.request, free) for job in waiting)
            idle[not fits] += int(free[:, 0].sum())
    whole = contended * int(cluster.capacity[:, 0].sum())
    return Idle(idle[0] / whole, idle[1] / whole, contended) if whole else Idle(0.0, 0.0, contended)


@pytest.mark.parametrize("seed", range(60))
def test_every_second_by_the_fit_rule_says_the_same(seed):
    cluster, jobs, start_s, end_s, places = schedule(seed)
    from_s, lasts_s = seed % 7, 30 if seed % 2 else 5
    found = course(cluster, jobs, start_s, end_s, places, from_s=from_s, to_s=from_s + lasts_s).idle()
    assert found == second_by_second(cluster, jobs, start_s, end_s, places, from_s, from_s + lasts_s)


@pytest.mark.parametrize("nodes", [1, 6])
def test_nodes_of_one_processor_are_counted(nodes):
    """A machine of six processors, as one node or as six: the figures are the same."""
    cluster = a_cluster(nodes=nodes, cores=6 // nodes)
    jobs = [a_job(1, units=4), a_job(2, units=3), a_job(3, units=2)]
    places = [[(0, 4)], [(0, 3)], [(0, 2)]] if nodes == 1 else [[(n, 1) for n in range(k)] for k in (4, 3, 2)]
    assert cluster.counted
    assert course(cluster, jobs, [0, 50, 20], [50, 60, 40], places).idle() == Idle(40 / 300, 20 / 300, 50)
    late = course(cluster, jobs, [0, 50, 20], [50, 60, 40], places, from_s=10, to_s=45).idle()
    assert late == Idle(20 / 210, 10 / 210, 35)
