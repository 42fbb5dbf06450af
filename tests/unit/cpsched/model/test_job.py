import pytest

from cpsched.errors import InvalidValue
from cpsched.model import Cluster, EndedJob, Request
from cpsched.model.value_bounds import MOST_AMOUNT, MOST_IN_ALL, MOST_S
from tests.builders import a_job, a_running


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Request(0, (1,)), "units=0: must be positive"),
        (lambda: Request(1, ()), r"per_unit=\(\): must not be negative"),
        (lambda: Request(1, (0, 0)), r"per_unit=\(0, 0\): must request a positive amount"),
        (lambda: Request(1, (MOST_AMOUNT,)), r"per_unit=1099511627776: must be below 2\^40"),
        (lambda: Request(MOST_IN_ALL, (1,)), "units=.*: must be below 2.60 in total"),
        (lambda: a_job(walltime_s=0), "walltime_s=0: must be positive"),
        (lambda: a_job(walltime_s=2**62), "walltime_s=4611686018427387904: must be below"),
        (lambda: a_job(submit_s=-(2**62)), "submit_s=.*: must be within"),
        (lambda: a_running(a_job(), ((0, 1),), start_s=2**62), "start_s=.*: must be within"),
        (
            lambda: Cluster.of([[MOST_AMOUNT], [1]], ["cores"]),
            "capacity=1099511627776: must be below",
        ),
    ],
)
def test_times_and_amounts_have_bounds(make, message):
    with pytest.raises(InvalidValue, match=message):
        make()


def test_bounds_leave_room_for_sums_and_doubles_in_64_bits():
    assert 4 * MOST_S + 4 * MOST_IN_ALL < 2**63


def test_a_job_that_ended_in_its_first_second_ran_one_second():
    assert EndedJob(a_job(submit_s=5), 10, 10).run_s == 1
    assert EndedJob(a_job(submit_s=5), 10, 10).wait_s == 5
