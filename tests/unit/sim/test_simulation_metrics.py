import numpy as np
import pytest

from cpsched.metrics import METRICS, bounded_slowdown, find_metric, known_metrics
from cpsched.model import EndedJob
from cpsched_sim.simulation_metrics import DecisionTimes, ScheduleData, count_overlapping_intervals
from tests.builders import a_job


def measures(*jobs):
    """From (submit, start, end, processors) per job."""
    return ScheduleData(*(np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True)))


TWO = measures((0, 0, 100, 2), (10, 100, 105, 4))


def test_computes_metrics_per_job():
    assert (TWO.wait_s.tolist(), TWO.run_s.tolist(), TWO.slowdown.tolist()) == ([0, 90], [100, 5], [1.0, 19.0])
    assert TWO.bounded_slowdown.tolist() == [1.0, 9.5]


@pytest.mark.parametrize("a", [0, 1, 2, 3])
def test_computes_pasf(a):
    upper = 2 * 100 ** (a + 2) + 4 * (95 ** (a + 2) - 90 ** (a + 2))
    lower = 2 * 100 ** (a + 1) + 4 * (95 ** (a + 1) - 90 ** (a + 1))
    assert TWO.pasf(a) == pytest.approx((a + 1) / (a + 2) * upper / lower, rel=1e-12)
    assert TWO.p2sf == TWO.pasf(2)


def test_queue_length_changes_at_arrivals_and_starts():
    at, length = TWO.queue_length()
    assert list(zip(at.tolist(), length.tolist(), strict=True)) == [(0, 0), (10, 1), (100, 0)]
    at, count = count_overlapping_intervals(np.array([3, 3, 1]), np.array([5, 9, 3]))
    assert list(zip(at.tolist(), count.tolist(), strict=True)) == [(1, 1), (3, 2), (5, 1), (9, 0)]


def test_latencies_are_in_milliseconds():
    assert DecisionTimes.of([0.001, 0.002, 0.009]) == DecisionTimes(
        mean_ms=pytest.approx(4.0), median_ms=pytest.approx(2.0), p99_ms=pytest.approx(8.86), max_ms=pytest.approx(9.0)
    )
    assert DecisionTimes.of([]) == DecisionTimes(None, None, None, None)


def test_ended_jobs_become_integer_columns():
    jobs = [a_job(1, units=3, per_unit=(2, 7), submit_s=5), a_job(2, units=1, per_unit=(4, 0), submit_s=6)]
    found = ScheduleData.of([EndedJob(jobs[0], 8, 20), EndedJob(jobs[1], 9, 10)], machine=64)
    columns = (found.submit_s, found.start_s, found.end_s, found.processors)
    assert [column.tolist() for column in columns] == [[5, 6], [8, 9], [20, 10], [6, 4]]
    assert {column.dtype for column in columns} == {np.dtype(np.int64)}
    assert (found.machine, found.jobs) == (64, jobs)
    assert ScheduleData.of([]).wait_s.tolist() == []


def test_each_metric_has_formula_and_source():
    listings = {listing.name: listing for listing in known_metrics().builtins()}
    assert (listings["mean_wait_s"].summary, listings["mean_wait_s"].source) == ("mean of W", "mod17 section 5; cp19")
    assert find_metric("mean_wait_s").of(TWO) == 45


@pytest.mark.parametrize(
    ("wait_s", "run_s", "expected"),
    [(0, 1, 1.0), (9, 1, 1.0), (10, 1, 1.1), (0, 10, 1.0), (5, 9, 1.4), (5, 10, 1.5), (5, 11, 16 / 11), (100, 0, 10.0)],
)
def test_bounded_slowdown_uses_at_least_10_seconds(wait_s, run_s, expected):
    assert bounded_slowdown(wait_s, run_s) == pytest.approx(expected)


BY_HAND = {
    "bsld": 5.25,
    "af": 97.5,
    "awf": (200 * 100 + 20 * 95) / 220,
    "p2sf": 3 / 4 * (2 * 100**4 + 4 * (95**4 - 90**4)) / (2 * 100**3 + 4 * (95**3 - 90**3)),
    "mean_slowdown": 10.0,
    "mean_wait_s": 45.0,
    "utilization": 220 / (8 * 105),
    "makespan_s": 105,
}


@pytest.mark.parametrize("row", METRICS, ids=lambda row: row.name)
def test_metric_lookup_returns_table_row(row):
    known = ScheduleData(TWO.submit_s, TWO.start_s, TWO.end_s, TWO.processors, machine=8)
    assert row.of(known) == pytest.approx(BY_HAND[row.name], rel=1e-12)
    if row.per_job is not None:
        assert row.per_job(known).mean() == pytest.approx(row.of(known))
    assert (row.better == "higher") == (row.name == "utilization")
    assert (row.compared, row.drawn) == (row.name != "makespan_s", row.name in {"bsld", "mean_slowdown", "mean_wait_s"})
    assert find_metric(row.name) == row
    assert find_metric(row) is row


def test_every_metric_is_computed_by_hand():
    assert [row.name for row in METRICS] == list(BY_HAND)


@pytest.mark.parametrize(
    ("name", "label"),
    [("mean_wait_s", "mean wait, s (lower is better)"), ("utilization", "in use (higher is better)")],
)
def test_labels_have_unit_and_direction(name, label):
    assert find_metric(name).label == label


@pytest.mark.parametrize(
    ("jobs", "makespan_s", "utilization"),
    [
        ([(5, 5, 5, 4)], 0, 0.0),
        ([(5, 5, 6, 4)], 1, 1.0),
        ([(5, 7, 8, 4)], 3, pytest.approx(1 / 3)),
        ([(5, 9, 20, 1), (7, 8, 30, 1)], 25, pytest.approx(33 / 100)),
    ],
)
def test_makespan_is_from_first_submission_to_last_end(jobs, makespan_s, utilization):
    found = measures(*jobs)
    assert (found.makespan_s, found.utilization(4)) == (makespan_s, utilization)


def test_unknown_machine_size_is_zero_processors():
    assert (TWO.machine, TWO.jobs) == (0, ())
    assert ScheduleData.of([EndedJob(a_job(1), 0, 5)]).machine == 0
