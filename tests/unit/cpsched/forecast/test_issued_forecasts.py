import numpy as np

from cpsched.forecast import IssuedStartForecasts, StartCalibrator
from tests.builders import a_job


def an_interval(now_s=0, middle_s=3600):
    (found,) = StartCalibrator().forecast(now_s, [a_job(1)], [middle_s], np.full((5, 1), middle_s, np.int64), [True])
    return found


def issue(issued, now_s, waiting):
    due = issued.due_jobs(now_s, waiting)
    issued.store_issued({job: an_interval(now_s, now_s + 600) for job in due})
    return due


def test_issues_forecast_at_once_and_then_rarely():
    issued = IssuedStartForecasts()
    rounds = [(100, [1, 2]), (200, [1, 2, 3]), (699, [3, 1]), (700, [3, 1]), (2499, [1]), (2500, [1])]
    assert [issue(issued, now_s, waiting) for now_s, waiting in rounds] == [[1, 2], [3], [], [1], [], [1]]
    assert [each.issued_at_s for each in issued.take_forecasts(1)] == [100, 700, 2500]
    assert issued.take_forecasts(1) == []


def test_forgets_oldest_jobs_beyond_bound():
    issued = IssuedStartForecasts(most=2)
    for job in (1, 2, 3):
        issue(issued, 0, [job])
    assert set(issued.by_job) == {2, 3}


def test_classifies_outcome_of_interval():
    interval = an_interval()
    starts = (interval.from_s - 1, interval.from_s, interval.to_s, interval.to_s + 1)
    assert [interval.classify_outcome(at_s) for at_s in starts] == ["early", "covered", "covered", "late"]
