import numpy as np

from cpsched.forecast import ISSUE_INTERVAL_S, IntervalCalibrator, IssuedStartForecasts
from tests.builders import a_job


def an_interval(now_s=0, middle_s=3600):
    (found,) = IntervalCalibrator().predict_intervals(
        now_s, [a_job(1)], [middle_s], np.full((5, 1), middle_s, np.int64)
    )
    return found


def tell(telling, now_s, waiting):
    due = telling.due_jobs(now_s, waiting)
    telling.issue(now_s, {job: an_interval(now_s, now_s + 600) for job in due})
    return due


def test_a_job_is_told_at_once_and_everybody_once_an_hour():
    telling = IssuedStartForecasts()
    assert tell(telling, 100, [1, 2]) == [1, 2]
    assert tell(telling, 200, [1, 2, 3]) == [3]
    assert tell(telling, 100 + ISSUE_INTERVAL_S - 1, [3, 1]) == []
    assert tell(telling, 100 + ISSUE_INTERVAL_S, [3, 1]) == [3, 1]
    assert [each.issued_at_s for each in telling.take_forecasts(1)] == [100, 100 + ISSUE_INTERVAL_S]
    assert telling.take_forecasts(1) == []


def test_an_hour_in_which_nobody_waited_is_not_begun():
    telling = IssuedStartForecasts()
    assert tell(telling, 0, []) == []
    assert tell(telling, 100, [1]) == [1]
    assert telling.look_s == 100 + ISSUE_INTERVAL_S


def test_of_too_many_jobs_the_oldest_are_forgotten():
    telling = IssuedStartForecasts(most=2)
    for job in (1, 2, 3):
        tell(telling, 0, [job])
    assert set(telling.told) == {2, 3}


def test_what_becomes_of_an_interval():
    interval = an_interval()
    starts = (interval.from_s - 1, interval.from_s, interval.to_s, interval.to_s + 1)
    assert [interval.classify_outcome(at_s) for at_s in starts] == ["early", "held", "held", "late"]
