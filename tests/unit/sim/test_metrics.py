import numpy as np
import pytest

from cpsched_sim.metrics import Latencies, Measures, steps


def measures(*jobs):
    """From (submit, start, end, processors) per job."""
    return Measures(*(np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True)))


TWO = measures((0, 0, 100, 2), (10, 100, 105, 4))


def test_per_job_metrics():
    assert TWO.wait_s.tolist() == [0, 90]
    assert TWO.run_s.tolist() == [100, 5]
    assert TWO.slowdown.tolist() == [1.0, 19.0]
    assert TWO.bounded_slowdown.tolist() == [1.0, 9.5]


def test_sums_by_hand():
    assert TWO.bsld == 5.25
    assert TWO.af == (100 + 95) / 2
    assert TWO.awf == (200 * 100 + 20 * 95) / 220
    assert TWO.makespan_s == 105
    assert TWO.utilization(processors=4) == 220 / (4 * 105)
    assert TWO.mean_queue_length() == 90 / 105


@pytest.mark.parametrize("a", [0, 1, 2, 3])
def test_pasf_by_hand(a):
    upper = 2 * 100 ** (a + 2) + 4 * (95 ** (a + 2) - 90 ** (a + 2))
    lower = 2 * 100 ** (a + 1) + 4 * (95 ** (a + 1) - 90 ** (a + 1))
    assert TWO.pasf(a) == pytest.approx((a + 1) / (a + 2) * upper / lower, rel=1e-12)
    assert TWO.p2sf == TWO.pasf(2)


def test_short_jobs_that_do_not_wait_have_bounded_slowdown_one():
    assert measures((5, 5, 6, 1)).bounded_slowdown.tolist() == [1.0]


def test_queue_length_steps_through_arrivals_and_starts():
    at, length = TWO.queue_length()
    assert list(zip(at.tolist(), length.tolist(), strict=True)) == [(0, 0), (10, 1), (100, 0)]
    at, count = steps(np.array([3, 3, 1]), np.array([5, 9, 3]))
    assert list(zip(at.tolist(), count.tolist(), strict=True)) == [(1, 1), (3, 2), (5, 1), (9, 0)]


def test_latencies_are_in_milliseconds():
    assert Latencies.of([0.001, 0.002, 0.009]) == Latencies(
        mean_ms=pytest.approx(4.0), median_ms=pytest.approx(2.0), p99_ms=pytest.approx(8.86), max_ms=pytest.approx(9.0)
    )
    assert Latencies.of([]) == Latencies(None, None, None, None)


def test_the_makespan_is_from_the_first_submission_to_the_last_end():
    measures = Measures(*(np.array(column, np.int64) for column in ([5, 7], [9, 8], [20, 30], [1, 1])))
    assert measures.makespan_s == 25
