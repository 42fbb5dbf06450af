import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster, EndedJob, Request
from cpsched.model.value_bounds import AMOUNT_BOUND, TIME_BOUND_S, TOTAL_AMOUNT_BOUND
from tests.builders import a_job, a_running


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Request(0, (1,)), "units=0: must be positive"),
        (lambda: Request(1, ()), r"per_unit=\(\): must not be negative"),
        (lambda: Request(1, (0, 0)), r"per_unit=\(0, 0\): must request a positive amount"),
        (lambda: Request(1, (AMOUNT_BOUND,)), r"per_unit=1099511627776: must be below 2\^40"),
        (lambda: Request(TOTAL_AMOUNT_BOUND, (1,)), "units=.*: must be below 2.60 in total"),
        (lambda: a_job(walltime_s=0), "walltime_s=0: must be positive"),
        (lambda: a_job(walltime_s=2**62), "walltime_s=4611686018427387904: must be below"),
        (lambda: a_job(submit_s=-(2**62)), "submit_s=.*: must be within"),
        (lambda: a_running(a_job(), ((0, 1),), start_s=2**62), "start_s=.*: must be within"),
        (
            lambda: Cluster.of([[AMOUNT_BOUND], [1]], ["cores"]),
            "capacity=1099511627776: must be below",
        ),
    ],
)
def test_rejects_times_and_amounts_out_of_bounds(make, message):
    with pytest.raises(InvalidValue, match=message):
        make()


def test_sums_of_bounds_fit_in_64_bits():
    assert 4 * TIME_BOUND_S + 4 * TOTAL_AMOUNT_BOUND < 2**63


def test_job_ended_in_its_first_second_ran_1_second():
    assert EndedJob(a_job(submit_s=5), 10, 10).run_s == 1
    assert EndedJob(a_job(submit_s=5), 10, 10).wait_s == 5
